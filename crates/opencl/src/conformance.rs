//! The conformance suite with kernels in OpenCL C.

use syncline_backend::conformance::Suite;
use syncline_device::{Backend, Grid, Kernel, KernelSource, ScalarType};

/// The suite of `syncline-backend`, with the kernels that it dispatches in OpenCL C.
///
/// ```
/// use syncline_device::registry::BackendProbe;
/// use syncline_opencl::{Probe, conformance};
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
    let scale = source("scale").scalars([ScalarType::F32]);
    let kernels = [("add_one", source("add_one")), ("scale", scale), ("add", source("add"))];
    kernels.into_iter().fold(Suite::new(), |suite, (name, source)| {
        suite.kernel(Kernel::builder(name).source(source).build())
    })
}

fn source(entry: &str) -> KernelSource {
    let text = include_str!("conformance.cl");
    // SAFETY: the suite calls them with the arguments that they are written for.
    let source = unsafe { KernelSource::native(Backend::OpenCl, text, entry, [64, 1, 1]) };
    source.grid(Grid::Elements { arg: 0 })
}
