//! Mesh layouts of small models, random ones and a regular one.

use syncline_layout::{Dims, Layout, Mesh, MeshLayout, ShardRule, TensorRule, TensorSpec};
use syncline_tensor::Dtype;
use syncline_testing::Rng;

/// Tensors of up to three dimensions, some with sizes below the number of PEs, some empty, some
/// scalar.
pub fn any_specs(rng: &mut Rng) -> Vec<TensorSpec> {
    let layers = rng.range(1..4);
    let mut specs = Vec::new();
    let mut add = |name: String, rng: &mut Rng| {
        let dims = rng.below(4);
        let sizes: Vec<u64> =
            (0..dims).map(|_| *rng.pick(&[0, 1, 2, 3, 5, 6, 7, 8, 11, 12, 12])).collect();
        let dtype = *rng.pick(&[Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::F64]);
        specs.push(TensorSpec { name, dtype, shape: Dims::from_slice(&sizes).unwrap() });
    };
    for layer in 0..layers {
        add(format!("layers.{layer}.a.weight"), rng);
        add(format!("layers.{layer}.b.weight"), rng);
        for expert in 0..rng.range(0..4) {
            add(format!("layers.{layer}.experts.{expert}.w"), rng);
        }
    }
    add("embed.weight".to_owned(), rng);
    specs
}

/// A layout of `specs` on any mesh, with any rules that fit.
pub fn any_layout(rng: &mut Rng, specs: &[TensorSpec]) -> Layout {
    let mut axes: Vec<(String, u64)> = ["tp", "ep", "pp", "dp"]
        .iter()
        .map(|axis| (axis.to_string(), *rng.pick(&[1, 1, 2, 2, 3, 5, 7])))
        .collect();
    while axes.iter().map(|(_, size)| size).product::<u64>() > 24 {
        let largest = axes.iter_mut().max_by_key(|(_, size)| *size).unwrap();
        largest.1 = 1;
    }
    rng.shuffle(&mut axes);
    let mesh = Mesh { axes, offset: *rng.pick(&[0, 0, 2, 7]), ..Default::default() };
    // One rule a tensor, so that each can be split in its own way.
    let rules = specs.iter().filter_map(|spec| any_rule(rng, spec)).collect();
    MeshLayout::new(mesh, rules).compile(specs).expect("the rules fit")
}

fn any_rule(rng: &mut Rng, spec: &TensorSpec) -> Option<TensorRule> {
    let dims = spec.shape.len();
    if dims == 0 || rng.one_in(5) {
        return None;
    }
    let mut shard = Vec::new();
    for axis in ["tp", "dp"] {
        if rng.one_in(4) {
            continue;
        }
        let dim = rng.below(dims);
        let size = spec.shape[dim];
        let mut rule = ShardRule { dim: dim as i64, axis: axis.to_owned(), ..Default::default() };
        // Only the first split of a dimension sees its whole size.
        if shard.is_empty() && size > 0 {
            match rng.below(4) {
                0 => {
                    let cut = rng.range(0..size + 1);
                    rule.blocks = Some(vec![cut.into(), (size - cut).into()]);
                }
                1 if size.is_multiple_of(2) => rule.stride = Some(2),
                _ => {}
            }
        }
        shard.push(rule);
    }
    Some(TensorRule { pattern: spec.name.clone(), shard, stage: None, tied_to: None })
}

/// Two layouts of the same tensors.
pub fn any_pair(rng: &mut Rng) -> (Layout, Layout) {
    let specs = any_specs(rng);
    (any_layout(rng, &specs), any_layout(rng, &specs))
}

/// A model of `layers` with a column-wise and a row-wise split tensor in each.
pub fn model(layers: usize, side: u64, dtype: Dtype, axes: &str) -> Layout {
    let toml = format!(
        r#"
        [mesh]
        axes = {axes}
        [[tensor]]
        match = "layers.*.up"
        shard = [{{dim = 0, axis = "tp"}}]
        [[tensor]]
        match = "layers.*.down"
        shard = [{{dim = 1, axis = "tp"}}]
        "#
    );
    let spec =
        |name: String| TensorSpec { name, dtype, shape: Dims::from_slice(&[side, side]).unwrap() };
    let specs: Vec<TensorSpec> = (0..layers)
        .flat_map(|layer| ["up", "down"].map(|part| spec(format!("layers.{layer}.{part}"))))
        .collect();
    MeshLayout::from_toml(&toml).unwrap().compile(&specs).unwrap()
}
