//! Why a plan cannot be loaded, bound or run to its end.

use syncline_device::{DeviceError, DeviceSpec, UnknownDevice};
use syncline_plan::{CheckError, TaskIndex};

/// Why a plan was not loaded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum LoadError {
    #[error("no body for task `{task}` ({index}), kernel `{kernel}`, on {device}")]
    NoBody { task: String, index: TaskIndex, kernel: String, device: String },
    #[error("the plan's machine has {name}, which names no device: {source}")]
    NoDevice { name: String, source: UnknownDevice },
    #[error("the plan needs {device}, which was not given")]
    MissingDevice { device: DeviceSpec },
    #[error(
        "task `{task}` ({index}) is a closure, which only a CPU lane can call, and was placed on {device}: give it a \
         kernel, or keep it on the CPU"
    )]
    NotAKernel { task: String, index: TaskIndex, device: DeviceSpec },
    #[error("task `{task}` ({index}) cannot run on {device}: {source}")]
    NoKernel { task: String, index: TaskIndex, device: DeviceSpec, source: DeviceError },
    #[error(
        "the plan copies from {source_device} to {target} on a lane of {lane}, which does not reach both: compile it for \
         a machine that knows its routes, such as `UnifiedExecutor::machine` gives"
    )]
    NoRoute { source_device: DeviceSpec, target: DeviceSpec, lane: DeviceSpec },
    #[error("the plan is not safe to run: {0}")]
    Unsafe(#[from] CheckError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("no thread for lane {lane}: {message}")]
    NoThread { lane: usize, message: String },
}

/// Why buffers cannot be bound to a plan; nothing has run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum BindError {
    #[error("the plan has no external buffer `{buffer}`")]
    NoSuchBuffer { buffer: String },
    #[error("nothing is bound to buffer `{buffer}`")]
    Unbound { buffer: String },
    #[error("`{buffer}` is {needed} bytes in the plan; what is bound to it has {given}")]
    WrongSize { buffer: String, needed: u64, given: u64 },
    #[error("`{buffer}` lives on {needed} in the plan; what is bound to it is on {given}")]
    WrongDevice { buffer: String, needed: DeviceSpec, given: DeviceSpec },
    #[error(
        "`{buffer}` and `{other}` are bound to the same memory, which the plan did not know: it writes at least one of \
         them, so their tasks would race; bind different buffers, or record the graph with one buffer for both"
    )]
    Aliased { buffer: String, other: String },
    #[error("`{buffer}`: {source}")]
    Device { buffer: String, source: DeviceError },
    #[error("the plan cannot be written down for its devices: {source}")]
    NotRecorded { source: DeviceError },
}

/// Why a run did not come to its end. Bound buffers hold what was written until then.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum RunError {
    #[error("task `{task}` ({index}) failed: {cause}")]
    Failed { task: String, index: TaskIndex, cause: String },
    #[error("task `{task}` ({index}) panicked: {cause}")]
    Panicked { task: String, index: TaskIndex, cause: String },
    #[error("the run was cancelled")]
    Cancelled,
    #[error("the run was stopped at its deadline")]
    DeadlinePassed,
    #[error(transparent)]
    Bind(#[from] BindError),
}
