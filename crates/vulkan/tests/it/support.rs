//! What the tests share: a device if there is one, and kernels.

use std::sync::Arc;

use syncline_device::registry::BackendProbe;
use syncline_device::{Backend, Device, Grid, Kernel, KernelSource};
use syncline_vulkan::{Probe, VulkanOptions};

/// `vulkan:0` opened with `options`. `None`, with a word, where there is none and nobody insists.
pub fn open(options: VulkanOptions) -> Option<Arc<dyn Device>> {
    open_from(&Probe::with_options(options))
}

/// The first device of `probe`.
pub fn open_from(probe: &Probe) -> Option<Arc<dyn Device>> {
    match probe.probe() {
        Ok(_) => Some(probe.open(0).expect("a device that was listed can be opened")),
        Err(reason) if std::env::var_os("CI").is_some() => {
            panic!("these tests need a Vulkan driver (mesa-vulkan-drivers): {reason}")
        }
        Err(reason) => {
            eprintln!("skipped: {reason}");
            None
        }
    }
}

/// A device with the usual options.
pub fn device() -> Option<Arc<dyn Device>> {
    open(VulkanOptions::default())
}

/// A kernel over the elements of `f32` arguments: `body` is a statement that may use `at(i)`, the place of the
/// element in argument `i`.
pub fn elementwise(name: &str, args: usize, body: &str) -> Kernel {
    let bindings: String = (0..args)
        .map(|at| {
            format!("@group(0) @binding({at}) var<storage, read_write> arg_{at}: array<f32>;\n")
        })
        .collect();
    let text = format!(
        "{bindings}@group(0) @binding({args}) var<storage, read> params: array<u32>;
fn at(arg: u32, element: u32) -> u32 {{
    let base = 18u * arg;
    var place = i32(params[base]);
    var rest = element;
    for (var dim = i32(params[base + 1u]) - 1; dim >= 0; dim--) {{
        let size = params[base + 2u + u32(dim)];
        place += i32(rest % size) * bitcast<i32>(params[base + 10u + u32(dim)]);
        rest /= size;
    }}
    return u32(place);
}}
fn elements() -> u32 {{
    var count = 1u;
    for (var dim = 0u; dim < params[1]; dim++) {{ count *= params[2u + dim]; }}
    return count;
}}
fn scalar(number: u32) -> f32 {{ return bitcast<f32>(params[{scalars}u + number]); }}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) item: u32) {{
    let i = (group.x + group.y * groups.x) * 64u + item;
    if i < elements() {{ {body} }}
}}
",
        scalars = 18 * args
    );
    let source = KernelSource::new(text, "main", [64, 1, 1]).grid(Grid::Elements { arg: 0 });
    Kernel::builder(name).source(Backend::Vulkan, source).build()
}

/// The kernels of the conformance suite.
pub fn suite_kernels() -> [Kernel; 3] {
    [
        elementwise("add_one", 1, "arg_0[at(0u, i)] += 1.0;"),
        elementwise("scale", 1, "arg_0[at(0u, i)] *= scalar(0u);"),
        elementwise("add", 3, "arg_2[at(2u, i)] = arg_0[at(0u, i)] + arg_1[at(1u, i)];"),
    ]
}
