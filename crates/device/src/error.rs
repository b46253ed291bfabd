//! What can go wrong with a device, and how a failure is handed on.

use std::sync::Arc;
use std::time::Duration;

use syncline_copy::CopyError;
use syncline_tensor::BufferId;

use crate::{Backend, DeviceSpec};

/// A device, a lane or a kernel failed, or was asked for what it cannot do.
///
/// Errors are cloned to every waiter, so that each variant is cheap to clone. An error that came
/// through another lane is wrapped in [`DeviceError::Inherited`]; [`DeviceError::root_cause`] finds
/// where it began.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum DeviceError {
    #[error(
        "{device}: {bytes} bytes do not fit: {in_use_bytes} of {cap_bytes} are in use; free buffers or raise `memory_bytes`"
    )]
    OutOfMemory { device: DeviceSpec, bytes: u64, in_use_bytes: u64, cap_bytes: u64 },
    #[error("kernel `{kernel}`{}: {message}", in_task(.task))]
    KernelFailed { kernel: Arc<str>, task: Option<Arc<str>>, message: Arc<str> },
    #[error("kernel `{kernel}`{} panicked: {message}", in_task(.task))]
    KernelPanicked { kernel: Arc<str>, task: Option<Arc<str>>, message: Arc<str> },
    #[error("lane `{lane}`{}: an earlier failure: {cause}", in_task(.task))]
    Inherited {
        lane: Arc<str>,
        task: Option<Arc<str>>,
        #[source]
        cause: Arc<DeviceError>,
    },
    #[error("kernel `{kernel}` has no implementation for {backend}; it has: {available}")]
    NoImplementation { kernel: Arc<str>, backend: Backend, available: String },
    #[error("kernel `{kernel}` does not take this on {backend}: {message}")]
    KernelRefuses { kernel: Arc<str>, backend: Backend, message: Arc<str> },
    #[error("{what} cannot be recorded: submit it in a batch of its own")]
    NotRecordable { what: String },
    #[error("waited {waited:?} for `{timeline}` to reach {value}; it stands at {current}")]
    DeadlinePassed { timeline: Arc<str>, value: u64, current: u64, waited: Duration },
    #[error("buffer {buffer}: waited {waited:?} for the work that uses it")]
    BufferBusy { buffer: BufferId, waited: Duration },
    #[error(
        "`{timeline}` stands at {current} and cannot be signalled to {value}: values only grow"
    )]
    SignalBackwards { timeline: Arc<str>, current: u64, value: u64 },
    #[error("value {value} is above the largest that a timeline can hold, {max}")]
    ValueTooLarge { value: u64, max: u64 },
    #[error("`{timeline}` belongs to a lane: only that lane signals it")]
    NotTheOwner { timeline: Arc<str> },
    #[error(
        "lane `{lane}` stands at {current}: a batch there that waits for {value} would wait for itself"
    )]
    WaitsForItself { lane: Arc<str>, current: u64, value: u64 },
    #[error("a wait for any of no points would never end")]
    NothingToWaitFor,
    #[error("buffer {buffer} is mapped by the host: drop the map before giving it work")]
    Mapped { buffer: BufferId },
    #[error(
        "buffer {buffer} is mapped by the thread that asks for it, which would wait for itself: drop the map first"
    )]
    MappedByCaller { buffer: BufferId },
    #[error(
        "buffer {buffer} is used by the work that asks for it, or by work that is queued behind it on lane {lane}: \
         pass the buffer to the kernel as an argument, or open it when that work has ended"
    )]
    UsedByCaller { buffer: BufferId, lane: u64 },
    #[error(
        "buffer {buffer} is held by a thread that has ended, or that waits in its turn for what this thread holds: \
         drop a map or guard first, or wait with a deadline"
    )]
    WaitsInCircle { buffer: BufferId },
    #[error(
        "a tensor of a recording has no memory before the plan runs: the tasks that are recorded cannot depend on it"
    )]
    Placeholder,
    #[error(
        "buffer {buffer} was over memory lent for a scope or a call, which has ended: lend it again"
    )]
    LoanEnded { buffer: BufferId },
    #[error("buffer {buffer} is in use by tasks of a stream: {message}")]
    UsedByStream { buffer: BufferId, message: Arc<str> },
    #[error(
        "buffer {buffer} lives on {buffer_device}, the lane belongs to {lane_device}: transfer it first"
    )]
    WrongDevice { buffer: BufferId, buffer_device: DeviceSpec, lane_device: DeviceSpec },
    #[error("bytes {start}..{end} of buffer {buffer}, which has {bytes}")]
    OutOfBounds { buffer: BufferId, start: u64, end: u64, bytes: u64 },
    #[error(
        "buffer {buffer}: a write through a view whose elements share bytes (a stride of zero)"
    )]
    BroadcastWrite { buffer: BufferId },
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error("buffer {buffer}: source and target of a copy overlap; copy through another buffer")]
    OverlappingCopy { buffer: BufferId },
    #[error(
        "a fill pattern of {bytes} bytes: patterns have 1, 2, 4 or 8 bytes, and as many as an element"
    )]
    FillPattern { bytes: usize },
    #[error("argument {arg}: {message}")]
    BadArgument { arg: usize, message: String },
    #[error("`{lane}` was closed with work pending")]
    Closed { lane: Arc<str> },
    #[error("{device}: {what} is not supported")]
    Unsupported { device: DeviceSpec, what: String },
    #[error("{device}: {message}")]
    Backend { device: DeviceSpec, message: Arc<str> },
    #[error("cancelled: {reason}")]
    Cancelled { reason: Arc<str> },
}

impl DeviceError {
    /// The failure that all the others in the chain come from.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use syncline_device::DeviceError;
    ///
    /// let first = DeviceError::Cancelled { reason: "shutdown".into() };
    /// let (lane, cause) = ("cpu:0 copy".into(), Arc::new(first.clone()));
    /// let there = DeviceError::Inherited { lane, task: None, cause };
    /// assert_eq!(there.root_cause(), &first);
    /// ```
    pub fn root_cause(&self) -> &DeviceError {
        let mut error = self;
        while let DeviceError::Inherited { cause, .. } = error {
            error = cause;
        }
        error
    }

    /// This failure as seen by `lane`, which waited for the work that failed.
    pub fn inherited(&self, lane: &Arc<str>, task: Option<&Arc<str>>) -> DeviceError {
        DeviceError::Inherited {
            lane: lane.clone(),
            task: task.cloned(),
            cause: Arc::new(self.clone()),
        }
    }

    /// The task that failed, where it was given a name.
    pub fn task(&self) -> Option<&str> {
        match self.root_cause() {
            DeviceError::KernelFailed { task, .. } | DeviceError::KernelPanicked { task, .. } => {
                task.as_deref()
            }
            _ => None,
        }
    }
}

fn in_task(task: &Option<Arc<str>>) -> String {
    task.as_ref().map(|name| format!(" in task `{name}`")).unwrap_or_default()
}
