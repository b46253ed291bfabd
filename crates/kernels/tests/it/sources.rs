//! Every variant of every kernel in WGSL, parsed and validated.

use naga::valid::{Capabilities, ValidationFlags, Validator};
use syncline_device::{Backend, DeviceError, KernelSource};
use syncline_kernels::{Entry, Library};
use syncline_tensor::{Dtype, View};

/// Shapes that every kernel takes in its place.
fn shapes(entry: &Entry) -> Vec<Vec<u64>> {
    match entry.signature.name.as_str() {
        "stencil" => vec![vec![6, 6], vec![4, 4]],
        "reduce_sum" | "reduce_max" => vec![vec![4, 4], vec![4]],
        "layernorm" => vec![vec![4, 4], vec![4], vec![4], vec![4, 4]],
        "rmsnorm" => vec![vec![4, 4], vec![4], vec![4, 4]],
        "embedding" => vec![vec![4, 4], vec![4], vec![4, 4]],
        _ => vec![vec![4, 4]; entry.signature.parameters.len()],
    }
}

/// Every choice of a dtype for each argument.
fn dtypes(entry: &Entry) -> Vec<Vec<Dtype>> {
    entry.signature.parameters.iter().fold(vec![Vec::new()], |choices, parameter| {
        let longer = |choice: &Vec<Dtype>| {
            let choice = choice.clone();
            let one = move |&dtype: &Dtype| [&choice[..], &[dtype]].concat();
            parameter.dtypes.iter().map(one).collect::<Vec<_>>()
        };
        choices.iter().flat_map(longer).collect()
    })
}

fn view(dtype: Dtype, shape: &[u64], is_flat: bool) -> View {
    let padded: Vec<u64> = shape.iter().map(|size| size + u64::from(!is_flat)).collect();
    let mut view = View::contiguous(dtype, &padded).unwrap();
    for (dim, &size) in shape.iter().enumerate() {
        view = view.slice(dim, 0..size).unwrap();
    }
    view
}

fn validate(source: &KernelSource, name: &str) {
    let text = source.text();
    let module = naga::front::wgsl::parse_str(text)
        .unwrap_or_else(|error| panic!("{name}: {}\n{text}", error.emit_to_string(text)));
    Validator::new(ValidationFlags::all(), Capabilities::empty())
        .validate(&module)
        .unwrap_or_else(|error| panic!("{name}: {}\n{text}", error.emit_to_string(text)));
    let [entry] = &module.entry_points[..] else { panic!("{name}: not one entry point") };
    assert_eq!(entry.name, **source.entry());
    assert_eq!(entry.workgroup_size, source.group(), "{name}");
    let items: u32 = source.group().iter().product();
    assert!(items <= 128, "{name}: {items} items, more than every device has");
}

#[test]
fn every_variant_is_valid_wgsl() {
    for entry in Library::builtin().iter() {
        let name = &entry.signature.name;
        let shapes = shapes(entry);
        let mut seen = std::collections::HashSet::new();
        for dtypes in dtypes(entry) {
            for is_flat in [true, false] {
                let views: Vec<View> = dtypes
                    .iter()
                    .zip(&shapes)
                    .map(|(&dtype, shape)| view(dtype, shape, is_flat))
                    .collect();
                match entry.kernel.source(Backend::Vulkan, &views) {
                    Ok(source) if seen.insert(source.key()) => validate(&source, name),
                    Ok(_) => {}
                    Err(DeviceError::KernelRefuses { message, .. }) => {
                        assert!(message.contains("argument"), "{message}");
                    }
                    Err(error) => panic!("{name}: {error}"),
                }
                let of_opencl = entry.kernel.source(Backend::OpenCl, &views);
                let text = of_opencl.map(|source| source.text().to_string()).unwrap_or_default();
                for placeholder in ["ENTRY", "STATEMENT"] {
                    assert!(!text.contains(placeholder), "{name}: {text}");
                }
            }
        }
        assert!(!seen.is_empty(), "{name} has no variant");
    }
}
