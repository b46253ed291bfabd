//! The conformance suite with kernels in WGSL.

use syncline_backend::conformance::Suite;
use syncline_device::{Grid, Kernel, KernelSource};

/// The suite of `syncline-backend`, with the kernels that it dispatches in WGSL.
///
/// ```
/// use syncline_device::registry::BackendProbe;
/// use syncline_vulkan::{Probe, conformance};
///
/// let probe = Probe::new();
/// match probe.probe() {
///     Ok(_) => {
///         let device = probe.open(0)?;
///         let report = conformance::suite().only("dispatch/a_kernel_runs").run(&device);
///         assert!(report.is_success(), "{report}");
///     }
///     Err(reason) => println!("skipped: {reason}"),
/// }
/// # Ok::<(), syncline_device::DeviceError>(())
/// ```
pub fn suite() -> Suite {
    let kernels = [
        elementwise("add_one", 1, "arg_0[at(0u, i)] += 1.0;"),
        elementwise("scale", 1, "arg_0[at(0u, i)] *= scalar(0u);"),
        elementwise("add", 3, "arg_2[at(2u, i)] = arg_0[at(0u, i)] + arg_1[at(1u, i)];"),
    ];
    kernels.into_iter().fold(Suite::new(), Suite::kernel)
}

/// A kernel over the elements of `f32` arguments: `body` is a statement that may use `i`, the
/// number of the element, `at(n, i)`, its place in argument `n`, which is called `arg_n`, and
/// `scalar(n)`. It writes the argument with which it begins.
pub fn elementwise(name: &str, args: usize, body: &str) -> Kernel {
    let bindings: String = (0..args)
        .map(|at| {
            let access =
                if body.starts_with(&format!("arg_{at}[")) { "read_write" } else { "read" };
            format!("@group(0) @binding({at}) var<storage, {access}> arg_{at}: array<f32>;\n")
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
    let source = KernelSource::wgsl(text, "main", [64, 1, 1]).grid(Grid::Elements { arg: 0 });
    Kernel::builder(name).source(source).build()
}
