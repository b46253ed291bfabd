//! Batches: what is submitted to a lane, and what a lane receives.

mod recording;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use syncline_sync::ignore_poison;
use syncline_tensor::{Access, Arg, View};

pub use recording::Recording;

use crate::kernel::seen;
use crate::{
    Backend, BufferView, CancelToken, DeviceError, Kernel, Lane, Lease, Point, Scalar, SourceRef,
};

/// Commands that run in order, after all waits, and then signal.
///
/// ```no_run
/// use syncline_device::{Batch, BufferView, Command, Point};
/// # fn example(source: BufferView, target: BufferView, ready: Point) {
/// let batch = Batch::new().wait(ready).command(Command::copy(source, target)).task("gather");
/// # }
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct Batch {
    pub(crate) waits: Vec<Point>,
    pub(crate) commands: Commands,
    pub(crate) signals: Vec<Point>,
    pub(crate) task: Option<Arc<str>>,
    pub(crate) cancel: Option<CancelToken>,
}

impl Batch {
    /// A batch of nothing: its waits and signals still count.
    pub fn new() -> Self {
        Self::default()
    }

    /// A batch of nothing that takes its memory from what ended batches of `lane` left.
    pub fn for_lane(lane: &dyn Lane) -> Self {
        Self { waits: lane.info().spares.take_points(), ..Self::default() }
    }

    /// Also waits for `point`, which may be one that nothing has promised yet.
    pub fn wait(mut self, point: Point) -> Self {
        self.waits.push(point);
        self
    }

    /// Also waits for all of `points`.
    pub fn waits(mut self, points: impl IntoIterator<Item = Point>) -> Self {
        self.waits.extend(points);
        self
    }

    /// Adds a command.
    pub fn command(mut self, command: Command) -> Self {
        self.commands.push(command);
        self
    }

    /// Also signals `point`, in addition to the lane's own timeline; if the batch fails, its
    /// timeline fails.
    pub fn signal(mut self, point: Point) -> Self {
        self.signals.push(point);
        self
    }

    /// Fails the batch when `token` is cancelled while the batch waits for conflicting work that
    /// was submitted before, on any lane. Waits that were asked for are not cut short. Of use with
    /// `submit` alone, which finds such work.
    pub fn cancelled_by(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// The task that this is, for errors and traces.
    pub fn task(mut self, name: impl Into<Arc<str>>) -> Self {
        self.task = Some(name.into());
        self
    }
}

impl From<Command> for Batch {
    fn from(command: Command) -> Self {
        Self::new().command(command)
    }
}

/// A list of commands that needs no allocation for a single one.
#[derive(Debug, Default)]
pub struct Commands {
    first: Option<Command>,
    rest: Vec<Command>,
}

impl Commands {
    /// Adds a command behind the others.
    pub fn push(&mut self, command: Command) {
        match self.first {
            None => self.first = Some(command),
            Some(_) => self.rest.push(command),
        }
    }

    /// The commands in order.
    pub fn iter(&self) -> impl Iterator<Item = &Command> {
        self.first.iter().chain(&self.rest)
    }

    /// The one command, if it is a recording.
    pub fn as_recording(&self) -> Option<&Arc<Recording>> {
        match &self.first {
            Some(Command::Recording(recording)) if self.rest.is_empty() => Some(recording),
            _ => None,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

impl IntoIterator for Commands {
    type Item = Command;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Command>, std::vec::IntoIter<Command>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}

/// One step of a batch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Command {
    /// Copies elements; both views have one shape.
    Copy(Box<Copy>),
    /// Sets every element to a pattern.
    Fill(Box<Fill>),
    /// Runs a kernel.
    Dispatch(Dispatch),
    /// Calls a function on the lane.
    Host(HostFunction),
    /// Runs commands that were recorded once.
    Recording(Arc<Recording>),
}

/// Copies the elements of `source` to `target`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Copy {
    pub source: BufferView,
    pub target: BufferView,
}

/// Sets every element of `target` to `pattern`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Fill {
    pub target: BufferView,
    pub pattern: Pattern,
}

/// The bytes of one element, 1, 2, 4 or 8 of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    bytes: [u8; 8],
    len: u8,
}

impl Pattern {
    /// A pattern of `bytes`.
    pub fn new(bytes: &[u8]) -> Result<Self, DeviceError> {
        if !matches!(bytes.len(), 1 | 2 | 4 | 8) {
            return Err(DeviceError::FillPattern { bytes: bytes.len() });
        }
        let mut pattern = Self { bytes: [0; 8], len: bytes.len() as u8 };
        pattern.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(pattern)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

/// Runs `kernel` on `args`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Dispatch {
    pub kernel: Kernel,
    pub args: Vec<KernelArg>,
    pub scalars: Vec<Scalar>,
    /// Groups along each dimension, for backends that have them; a CPU kernel is called once and
    /// may read it.
    pub grid: [u32; 3],
    /// The source on each backend, once it was chosen.
    chosen: [OnceLock<SourceRef>; Backend::ALL.len()],
}

impl Dispatch {
    /// Returns the source for these arguments on `backend`, which is not the CPU. For submitted
    /// work that is the one chosen before any lock was taken: a kernel's choice is user code.
    ///
    /// # Errors
    /// As [`Kernel::source`].
    pub fn source(&self, backend: Backend) -> Result<SourceRef, DeviceError> {
        match self.chosen[backend as usize].get() {
            Some(source) => Ok(source.clone()),
            None => self.kernel.source(backend, &self.views()),
        }
    }

    /// Has the kernel choose the source on `backend`, unless it has. Only for submitted work, which
    /// does not change any more: the source fits these arguments alone.
    pub(crate) fn choose_source(&self, backend: Backend) -> Result<(), DeviceError> {
        let chosen = &self.chosen[backend as usize];
        if chosen.get().is_none() {
            let source = self.kernel.source(backend, &self.views())?;
            let _ = chosen.set(source);
        }
        Ok(())
    }

    /// How the arguments lie in their buffers. One without order has no elements here: others may
    /// write them at any time.
    pub fn views(&self) -> Vec<View> {
        self.args.iter().map(KernelArg::view).collect()
    }

    /// Whether all that it would write has no elements, so that there is nothing to launch.
    pub fn writes_nothing(&self) -> bool {
        let mut written = self.args.iter().filter(|arg| arg.access.writes()).peekable();
        written.peek().is_some() && written.all(|arg| arg.target.view().is_empty())
    }

    /// The arguments as [`Kernel::check`] takes them.
    pub(crate) fn described(&self) -> Vec<Arg> {
        let describe = |arg: &KernelArg| {
            // Its buffer is one that exists, so that other arguments may overlap it.
            let access = match arg.access {
                Access::Output => Access::OutputExisting,
                other => other,
            };
            Arg::new(access, arg.target.buffer().id(), arg.view())
        };
        self.args.iter().map(describe).collect()
    }
}

/// One argument of a kernel.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct KernelArg {
    pub access: Access,
    pub target: BufferView,
}

impl KernelArg {
    /// An argument; the constructors named after accesses are shorter.
    pub fn new(access: Access, target: BufferView) -> Self {
        Self { access, target }
    }

    /// How it lies in its buffer; an argument without order has no elements.
    pub fn view(&self) -> View {
        seen(self.access, self.target.view())
    }

    /// Read.
    pub fn input(target: BufferView) -> Self {
        Self::new(Access::Input, target)
    }

    /// Written without being read.
    pub fn output(target: BufferView) -> Self {
        Self::new(Access::OutputExisting, target)
    }

    /// Read and written.
    pub fn inout(target: BufferView) -> Self {
        Self::new(Access::InOut, target)
    }
}

/// A function to be called on a lane, once.
pub struct HostFunction {
    name: Arc<str>,
    /// Never locked: it makes commands `Sync`, so that recordings of them can be shared.
    function: Mutex<Box<HostFn>>,
}

type HostFn = dyn FnOnce() -> Result<(), DeviceError> + Send;

impl HostFunction {
    /// `function`, called `name` in errors and traces.
    pub fn new(
        name: impl Into<Arc<str>>,
        function: impl FnOnce() -> Result<(), DeviceError> + Send + 'static,
    ) -> Self {
        Self { name: name.into(), function: Mutex::new(Box::new(function)) }
    }

    /// What it is called.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Calls it.
    pub fn call(self) -> Result<(), DeviceError> {
        (ignore_poison(self.function.into_inner()))()
    }
}

impl fmt::Debug for HostFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostFunction({})", self.name)
    }
}

impl Command {
    /// Copies `source` to `target`.
    pub fn copy(source: BufferView, target: BufferView) -> Self {
        Command::Copy(Box::new(Copy { source, target }))
    }

    /// Sets every element of `target` to `pattern`.
    pub fn fill(target: BufferView, pattern: Pattern) -> Self {
        Command::Fill(Box::new(Fill { target, pattern }))
    }

    /// Runs `kernel` once.
    pub fn dispatch(kernel: &Kernel, args: Vec<KernelArg>, scalars: Vec<Scalar>) -> Self {
        let (kernel, chosen) = (kernel.clone(), Default::default());
        Command::Dispatch(Dispatch { kernel, args, scalars, grid: [1; 3], chosen })
    }

    /// Calls `function` on the lane.
    pub fn host(
        name: impl Into<Arc<str>>,
        function: impl FnOnce() -> Result<(), DeviceError> + Send + 'static,
    ) -> Self {
        Command::Host(HostFunction::new(name, function))
    }

    /// Runs the commands of `recording`.
    pub fn recording(recording: &Arc<Recording>) -> Self {
        Command::Recording(recording.clone())
    }

    /// Calls `visit` with every view that the command touches, and how.
    pub fn for_each_access(&self, mut visit: impl FnMut(&BufferView, Access)) {
        match self {
            Command::Copy(copy) => {
                visit(&copy.source, Access::Input);
                visit(&copy.target, Access::OutputExisting);
            }
            Command::Fill(fill) => visit(&fill.target, Access::OutputExisting),
            Command::Dispatch(dispatch) => {
                dispatch.args.iter().for_each(|arg| visit(&arg.target, arg.access));
            }
            Command::Host(_) => {}
            Command::Recording(recording) => recording.for_each_access(visit),
        }
    }
}

/// A batch that was checked against a lane, with leases on the buffers that it uses.
///
/// A backend runs `commands`, then drops `leases`, then signals `signals`, then its own timeline.
/// Where a batch fails or does not run, the backend first fails its own timeline, then drops
/// `leases`: who waits for a buffer must find the failure when it gets there.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Work {
    pub waits: Vec<Point>,
    pub commands: Commands,
    pub signals: Vec<Point>,
    pub task: Option<Arc<str>>,
    pub leases: Vec<Lease>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelSource;

    /// What was asked of a dispatch before it is submitted binds it to nothing.
    #[test]
    fn a_source_is_that_of_the_kernel_that_is_submitted() {
        let source = || KernelSource::wgsl("", "main", [1; 3]);
        let kernel = |name| Kernel::builder(name).source(source()).build();
        let Command::Dispatch(mut dispatch) = Command::dispatch(&kernel("one"), vec![], vec![])
        else {
            unreachable!("a dispatch")
        };
        let key = |dispatch: &Dispatch| dispatch.source(Backend::Vulkan).unwrap().key();
        let before = key(&dispatch);
        dispatch.kernel = kernel("other");
        assert_ne!(key(&dispatch), before);
        dispatch.choose_source(Backend::Vulkan).unwrap();
        assert_eq!(key(&dispatch), dispatch.kernel.source(Backend::Vulkan, &[]).unwrap().key());
    }
}
