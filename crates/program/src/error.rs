//! Why a trace cannot be run, and where in it the reason is.

use std::path::PathBuf;

use syncline_device::DeviceError;
use syncline_kernels::KernelError;
use syncline_tensor::UnknownDtype;
use syncline_trace::{Place, TraceError};

/// A program that cannot be run as it is written. Nothing has run when one of these is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ProgramError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(
        "{place}: the member `kernel` is missing: a trace without kernels can be analysed, not run"
    )]
    NoKernel { place: Place },
    #[error("{place}: {source}")]
    Kernel { place: Place, source: KernelError },
    #[error("{place}: expected {expected}, found {found}")]
    Shape { place: Place, expected: &'static str, found: String },
    #[error("{place}: {source}")]
    Dtype { place: Place, source: UnknownDtype },
    #[error("{place}: {path}: {message}")]
    File { place: Place, path: PathBuf, message: String },
    #[error("{place}: {path} holds {found} bytes, the buffer {wanted}")]
    FileSize { place: Place, path: PathBuf, found: u64, wanted: u64 },
    #[error("{place}: no device `{name}`{}; there are: {known}", meant(.nearest))]
    UnknownDevice { place: Place, name: String, nearest: Option<String>, known: String },
    #[error(
        "{place}: the kernel is code in {library}, which a program may bring along only if you trust it: \
         say so with `--trust-kernels`"
    )]
    Untrusted { place: Place, library: String },
    #[error(
        "{place}: kernel `{kernel}` does not share its work out over blocks: each of {blocks} would do all of it"
    )]
    Blocks { place: Place, kernel: String, blocks: u32 },
    #[error(
        "{place}: buffers of {bytes} bytes up to here are more than this machine has, {memory_bytes} bytes"
    )]
    Memory { place: Place, bytes: u64, memory_bytes: u64 },
    #[error("{place}: a kernel needs one of `cpu`, `wgsl` and `opencl`")]
    NoBody { place: Place },
    #[error(
        "{place}: kernel `{kernel}` has no body for the CPU, where streams and serial runs are made"
    )]
    NoCpuBody { place: Place, kernel: String },
    #[error("{place}: kernel `{kernel}` runs on none of {devices}: {source}")]
    NoDevice { place: Place, kernel: String, devices: String, source: DeviceError },
    #[error("{place}: {path}:{line}:{column}: {message}")]
    Source { place: Place, path: PathBuf, line: u32, column: u32, message: String },
    #[error("no buffer is called `{name}`{}", meant(.nearest))]
    UnknownBuffer { name: String, nearest: Option<String> },
    #[error("buffer `{name}` takes {wanted} bytes, {found} were given")]
    ContentsSize { name: String, found: u64, wanted: u64 },
    #[error("{path}: {message}")]
    Output { path: PathBuf, message: String },
}

/// A run that could not be made, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ProgramRunError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("{0}")]
    Plan(String),
    #[error("task {id} `{name}`: {message}")]
    Task { id: u64, name: String, message: String },
    #[error("cannot start: {0}")]
    Start(String),
}

fn meant(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(": did you mean `{name}`?")).unwrap_or_default()
}
