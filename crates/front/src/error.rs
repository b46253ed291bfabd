//! One error for all that a program can meet, with a kind to act upon.

use std::fmt;
use std::sync::Arc;

use syncline_device::DeviceError;
use syncline_kernels::KernelError;
use syncline_plan::{CompileError, GraphError};
use syncline_runtime::ExecutorError;
use syncline_runtime::replay::{BindError, LoadError, RunError};
use syncline_runtime::stream::{Cause, StreamError};
use syncline_tensor::ViewError;

/// The result of calls of the front end.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, roughly: enough to decide what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A shape, a range or an element type that does not fit.
    Shape,
    /// A task's body failed or panicked; what depends on it did not run.
    Task,
    /// A scope or a run was cancelled, or the stream was dropped.
    Cancelled,
    /// A deadline passed.
    TimedOut,
    /// Memory or another bounded resource is used up, or too small.
    Full,
    /// A kernel does not take these arguments, or has no body for the device.
    Kernel,
    /// A device failed, is missing, or cannot do this.
    Device,
    /// A plan cannot be recorded, compiled, loaded or bound.
    Plan,
    /// The call can never succeed as it is: it waits for itself, or names something unknown.
    Usage,
}

/// An error of the front end: its text, its [kind](Error::kind), and the error of the layer below
/// as its source.
///
/// ```
/// use syncline_front::{ErrorKind, Tensor};
///
/// let error = Tensor::from_vec([2, 2], vec![1.0f32; 3]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Shape);
/// assert_eq!(error.to_string(), "a tensor of shape [2, 2] has 4 elements, 3 were given");
/// ```
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    inner: Arc<dyn std::error::Error + Send + Sync>,
}

impl Error {
    /// An error of `kind` with a text or another error.
    pub fn new(
        kind: ErrorKind,
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, inner: Arc::from(error.into()) }
    }

    /// What went wrong, roughly.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The error of the layer below.
    pub fn inner(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.inner
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.inner)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source()
    }
}

impl From<ViewError> for Error {
    fn from(error: ViewError) -> Self {
        Self::new(ErrorKind::Shape, error)
    }
}

fn of_device(error: &DeviceError) -> ErrorKind {
    match error.root_cause() {
        DeviceError::OutOfMemory { .. } => ErrorKind::Full,
        DeviceError::KernelFailed { .. } | DeviceError::KernelPanicked { .. } => ErrorKind::Task,
        DeviceError::NoImplementation { .. } | DeviceError::KernelRefuses { .. } => {
            ErrorKind::Kernel
        }
        DeviceError::DeadlinePassed { .. } | DeviceError::BufferBusy { .. } => ErrorKind::TimedOut,
        DeviceError::Cancelled { .. } | DeviceError::Closed { .. } => ErrorKind::Cancelled,
        DeviceError::OutOfBounds { .. } | DeviceError::BadArgument { .. } => ErrorKind::Shape,
        DeviceError::Backend { .. } | DeviceError::Unsupported { .. } => ErrorKind::Device,
        _ => ErrorKind::Usage,
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::new(of_device(&error), error)
    }
}

impl From<KernelError> for Error {
    fn from(error: KernelError) -> Self {
        Self::new(ErrorKind::Kernel, error)
    }
}

impl From<ExecutorError> for Error {
    fn from(error: ExecutorError) -> Self {
        let kind = match &error {
            ExecutorError::Device(source) => of_device(source),
            _ => ErrorKind::Device,
        };
        Self::new(kind, error)
    }
}

impl From<StreamError> for Error {
    fn from(error: StreamError) -> Self {
        let kind = match &error {
            StreamError::TaskFailed { failure, .. } => match &failure.cause {
                Cause::Panicked(_) | Cause::Failed(_) => ErrorKind::Task,
                Cause::DeadlinePassed(_) => ErrorKind::TimedOut,
                _ => ErrorKind::Cancelled,
            },
            StreamError::TooManyFailures { .. } => ErrorKind::Task,
            StreamError::Device { source, .. } | StreamError::Buffer { source, .. } => {
                of_device(source)
            }
            StreamError::ScopeCancelled { .. } => ErrorKind::Cancelled,
            StreamError::ScopeDeadline { .. } | StreamError::TimedOut { .. } => ErrorKind::TimedOut,
            StreamError::NeverFits { .. }
            | StreamError::Exhausted { .. }
            | StreamError::OutOfMemory { .. } => ErrorKind::Full,
            _ => ErrorKind::Usage,
        };
        Self::new(kind, error)
    }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        let kind = match &error {
            RunError::Cancelled => ErrorKind::Cancelled,
            RunError::DeadlinePassed => ErrorKind::TimedOut,
            RunError::Bind(_) => ErrorKind::Plan,
            _ => ErrorKind::Task,
        };
        Self::new(kind, error)
    }
}

macro_rules! of_plans {
    ($($error:ty),*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::new(ErrorKind::Plan, error)
            }
        }
    )*};
}

of_plans!(GraphError, CompileError, LoadError, BindError);
