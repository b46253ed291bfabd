//! Any target and any rules, in two parts of one text, applied to the tensors of a small model.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncline_checkpoint::{parse_rules, parse_target};
use syncline_layout::{Dims, MeshLayout, TensorSpec};

fuzz_target!(|text: &str| {
    let Some((target, rules)) = text.split_once('\n') else { return };
    let (target, rules) = (parse_target(target), parse_rules(rules));
    let (Ok(mesh), Ok(rules)) = (target, rules) else { return };
    if mesh.axes.iter().fold(1u64, |pes, (_, size)| pes.saturating_mul(*size)) > 64 {
        return;
    }
    let shape = Dims::from_slice(&[12, 8]).expect("two dimensions");
    let dtype = "f32".parse().expect("a dtype");
    let names = ["q_proj", "o_proj", "experts.0.up", "experts.1.up"];
    let spec = |layer: usize, name: &str| {
        let name = format!("model.layers.{layer}.{name}.weight");
        TensorSpec { name, dtype, shape }
    };
    let specs: Vec<_> = (0..2).flat_map(|layer| names.map(|name| spec(layer, name))).collect();
    let _ = MeshLayout::new(mesh, rules).compile(&specs);
});
