//! Any layout file of any form: an error, or a layout that can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncline_layout::{Dims, Layout, LayoutFile, TensorSpec};

/// Meshes of more PEs are valid, and take longer to lay out than a fuzzer likes to wait.
const PES_MAX: u64 = 64;

fuzz_target!(|text: &str| {
    let Ok(file) = LayoutFile::parse(text) else { return };
    if let LayoutFile::Mesh(mesh) = &file {
        let sizes = mesh.mesh.axes.iter().map(|(_, size)| *size);
        let pes = sizes.fold(1u64, u64::saturating_mul).saturating_add(mesh.mesh.offset.into());
        if pes > PES_MAX {
            return;
        }
    }
    let shape = Dims::from_slice(&[6, 4]).expect("two dimensions");
    let dtype = "bf16".parse().expect("a dtype");
    let spec = |name: &str| TensorSpec { name: name.to_owned(), dtype, shape };
    let specs = ["model.layers.0.mlp.up.weight", "model.layers.1.mlp.experts.1.down.weight", "w"];
    if let Ok(layout) = file.resolve(&specs.map(spec)) {
        let again = Layout::from_json(&layout.to_json()).expect("a read form can be written");
        assert_eq!(again.to_json(), layout.to_json());
    }
});
