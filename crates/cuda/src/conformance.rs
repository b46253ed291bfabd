//! The conformance suite with kernels in CUDA C.

use syncline_backend::conformance::Suite;
use syncline_device::{Backend, Grid, Kernel, KernelSource, ScalarType};

/// The CUDA C of the kernels that the suite dispatches.
pub const SOURCE: &str = include_str!("conformance.cu");

/// The suite of `syncline-backend`, with the kernels that it dispatches in CUDA C.
///
/// ```
/// use syncline_device::registry::BackendProbe;
/// use syncline_cuda::{Probe, conformance};
///
/// let probe = Probe::new();
/// match probe.probe() {
///     Ok(_) => {
///         let report = conformance::suite().only("timeline").run(&probe.open(0)?);
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
    // SAFETY: the suite calls them with the arguments that they are written for.
    let source = unsafe { KernelSource::native(Backend::Cuda, SOURCE, entry, [64, 1, 1]) };
    source.grid(Grid::Elements { arg: 0 })
}
