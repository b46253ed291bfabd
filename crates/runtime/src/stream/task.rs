//! Tasks as the caller describes them.

use std::borrow::{Borrow, Cow};
use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};

use syncline_device::{Buffer, Kernel, KernelArgs, KernelOutcome, Scalar};
use syncline_tensor::{Access, Arg, BufferId, TaskId, View};

use super::TaskHandle;
use super::body::{Body, InlineFn, Part};
use super::context::TaskContext;

/// What to run, on what, and when: built, then given to [`Stream::submit`](super::Stream::submit).
///
/// ```
/// use syncline_tensor::{Dtype, View};
/// use syncline_runtime::stream::{Stream, StreamOptions, Task};
///
/// let stream = Stream::new(StreamOptions::default())?;
/// let view = View::contiguous(Dtype::U32, &[4])?;
/// let first = stream.submit(Task::new("fill").output(view).body(|args| {
///     args.slice_mut::<u32>(0).map(|xs| xs.copy_from_slice(&[1, 2, 3, 4]))
/// }))?;
/// let numbers = first.output(0);
/// stream.submit(Task::new("double").inout(numbers, view).body(|args| {
///     args.slice_mut::<u32>(0).map(|xs| xs.iter_mut().for_each(|x| *x *= 2))
/// }))?;
/// assert_eq!(stream.read(numbers)?.as_slice::<u32>()?, [2, 4, 6, 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a task does nothing until it is submitted"]
pub struct Task {
    /// Behind a pointer, so that building a task moves one word however often it is passed on.
    pub(crate) spec: Box<TaskSpec>,
}

/// A task's description. What the task has to keep moves into its slot; the rest is used again for
/// the next one.
pub(crate) struct TaskSpec {
    pub(crate) name: Cow<'static, str>,
    pub(crate) args: Args,
    pub(crate) places: Vec<Place>,
    pub(crate) deps: Vec<TaskId>,
    pub(crate) body: Body,
    pub(crate) priority: i32,
    pub(crate) blocks: u32,
    pub(crate) gang: bool,
    /// Some argument is `Commutative` or `Reduce`.
    pub(crate) exclusive: bool,
    /// The task stands for a host access: it is not run, but granted.
    pub(crate) host: bool,
    pub(crate) outputs: u32,
    /// Buffers that had no home when they were given.
    pub(crate) strangers: Vec<Buffer>,
    /// The buffers that were allocated for them.
    pub(crate) made: Vec<Buffer>,
    /// The stream that buffers and handles belong to, zero where there are none; `u64::MAX` where
    /// they disagree.
    pub(crate) stream: u64,
}

/// A description's arguments. Those of earlier tasks stay behind the end, to be written over: a
/// view has room for more dimensions than most have, and only those that are there need to move.
pub(crate) struct Args {
    items: Vec<Arg>,
    len: usize,
}

impl Args {
    const fn new() -> Self {
        Self { items: Vec::new(), len: 0 }
    }

    /// Adds an argument.
    #[inline]
    pub(crate) fn push(&mut self, access: Access, buffer: BufferId, view: &View) {
        match self.items.get_mut(self.len) {
            Some(item) => {
                (item.access, item.buffer) = (access, buffer);
                item.view.assign(view);
            }
            None => self.items.push(Arg::new(access, buffer, *view)),
        }
        self.len += 1;
    }

    #[inline]
    fn clear(&mut self) {
        self.len = 0;
    }
}

impl Deref for Args {
    type Target = [Arg];

    #[inline]
    fn deref(&self) -> &[Arg] {
        &self.items[..self.len]
    }
}

impl DerefMut for Args {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Arg] {
        &mut self.items[..self.len]
    }
}

/// Where an argument's buffer is: its number in the buffer table and, once submitted, its first
/// byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) buffer: u32,
    pub(crate) base: *mut u8,
}

// SAFETY: an address and a number; whoever follows the address has its own argument.
unsafe impl Send for Place {}

/// The number of a buffer that does not exist yet: an output's.
pub(crate) const FRESH: u32 = u32::MAX;
/// The number of a buffer that has no home yet.
const HOMELESS: u32 = u32::MAX - 1;

thread_local! {
    /// The description of the last task, for its vectors: a task costs no allocation once a thread
    /// is warm.
    static SPENT: Cell<Option<Box<TaskSpec>>> = const { Cell::new(None) };
    /// More of them, for a thread that prepares several tasks before it submits them.
    #[allow(clippy::vec_box, reason = "they come and go as boxes: taking one out moves one word")]
    static RESERVE: RefCell<Vec<Box<TaskSpec>>> = const { RefCell::new(Vec::new()) };
}

/// Descriptions in a thread's reserve, at most.
const RESERVE_MAX: usize = 16;

impl TaskSpec {
    pub(crate) const fn empty() -> Self {
        Self {
            name: Cow::Borrowed(""),
            args: Args::new(),
            places: Vec::new(),
            deps: Vec::new(),
            body: Body::Empty,
            priority: 0,
            blocks: 1,
            gang: false,
            exclusive: false,
            host: false,
            outputs: 0,
            strangers: Vec::new(),
            made: Vec::new(),
            stream: 0,
        }
    }

    #[inline]
    pub(crate) fn reused(name: Cow<'static, str>) -> Box<Self> {
        let mut spec = match SPENT.try_with(Cell::take) {
            Ok(Some(spec)) => spec,
            _ => Self::from_reserve(),
        };
        spec.name = name;
        spec
    }

    #[cold]
    fn from_reserve() -> Box<Self> {
        let reserve = RESERVE.try_with(|reserve| reserve.borrow_mut().pop());
        reserve.ok().flatten().unwrap_or_else(|| Box::new(Self::empty()))
    }

    #[cold]
    fn to_reserve(self: Box<Self>) {
        let _ = RESERVE.try_with(|reserve| {
            let mut reserve = reserve.borrow_mut();
            if reserve.len() < RESERVE_MAX {
                reserve.push(self);
            }
        });
    }

    /// Keeps the vectors for another task of this thread.
    #[inline]
    pub(crate) fn recycle(mut self: Box<Self>) {
        self.args.clear();
        self.places.clear();
        self.deps.clear();
        if !self.strangers.is_empty() {
            self.strangers.clear();
        }
        self.body.set(Body::Empty);
        (self.priority, self.blocks, self.gang, self.host) = (0, 1, false, false);
        (self.exclusive, self.outputs, self.stream) = (false, 0, 0);
        if let Ok(Some(before)) = SPENT.try_with(|spent| spent.replace(Some(self))) {
            before.to_reserve();
        }
    }

    #[inline]
    fn belongs_to(&mut self, stream: u64) {
        if self.stream != stream {
            self.stream = if self.stream == 0 { stream } else { u64::MAX };
        }
    }
}

impl Task {
    /// A task that does nothing yet.
    #[inline]
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self { spec: TaskSpec::reused(name.into()) }
    }

    /// `buffer` is read through `view`.
    #[inline]
    pub fn input(self, buffer: &Buffer, view: impl Borrow<View>) -> Self {
        self.arg(Access::Input, buffer, view)
    }

    /// `buffer` is read and written through `view`.
    #[inline]
    pub fn inout(self, buffer: &Buffer, view: impl Borrow<View>) -> Self {
        self.arg(Access::InOut, buffer, view)
    }

    /// `buffer` is written through `view`.
    #[inline]
    pub fn output_existing(self, buffer: &Buffer, view: impl Borrow<View>) -> Self {
        self.arg(Access::OutputExisting, buffer, view)
    }

    /// A fresh buffer, just large enough for `view`, is written through it. The runtime allocates
    /// it at submission; [`TaskHandle::output`] has it. Its first contents are unspecified.
    #[inline]
    pub fn output(mut self, view: impl Borrow<View>) -> Self {
        self.spec.outputs += 1;
        self.spec.args.push(Access::Output, BufferId::default(), view.borrow());
        self.spec.places.push(Place { buffer: FRESH, base: std::ptr::null_mut() });
        self
    }

    /// `buffer` is used through `view` in the way of `access`; an `Output` of a buffer that exists
    /// is taken as [`Access::OutputExisting`]. Keep the buffer until the task is submitted.
    #[inline]
    pub fn arg(mut self, access: Access, buffer: &Buffer, view: impl Borrow<View>) -> Self {
        let access = if access == Access::Output { Access::OutputExisting } else { access };
        self.spec.exclusive |= access.is_grouped();
        let (stream, mut number) = buffer.home();
        match stream {
            0 => {
                self.spec.strangers.push(buffer.clone());
                number = HOMELESS;
            }
            stream => self.spec.belongs_to(stream.into()),
        }
        self.spec.args.push(access, buffer.id(), view.borrow());
        self.spec.places.push(Place { buffer: number, base: std::ptr::null_mut() });
        self
    }

    /// Runs after `task` in any case.
    #[inline]
    pub fn after(mut self, task: &TaskHandle) -> Self {
        self.spec.belongs_to(task.stream_id());
        self.spec.deps.push(task.id());
        self
    }

    /// Ready tasks with a higher priority run first; zero unless given.
    #[inline]
    pub fn priority(mut self, priority: i32) -> Self {
        self.spec.priority = priority;
        self
    }

    /// What to do, once. An error or a panic fails the task and what depends on it.
    #[inline]
    pub fn body<O: KernelOutcome>(
        mut self,
        body: impl FnOnce(&mut KernelArgs<'_>) -> O + Send + 'static,
    ) -> Self {
        self.spec.body.set(Body::Once(InlineFn::new(body)));
        self.spec.blocks = 1;
        self
    }

    /// What to do `blocks` times, by as many threads as are free. What is written is taken in
    /// parts, with [`KernelArgs::block_slice_mut`].
    pub fn blocks<O: KernelOutcome>(
        mut self,
        blocks: u32,
        body: impl Fn(&mut KernelArgs<'_>) -> O + Send + Sync + 'static,
    ) -> Self {
        self.spec.body = Body::Blocks(Box::new(move |args| body(args).into_result()));
        self.spec.blocks = blocks;
        self
    }

    /// As [`Task::blocks`], but all blocks run at the same time, each on its own thread, so that
    /// they may wait for one another.
    pub fn gang<O: KernelOutcome>(
        self,
        blocks: u32,
        body: impl Fn(&mut KernelArgs<'_>) -> O + Send + Sync + 'static,
    ) -> Self {
        let mut task = self.blocks(blocks, body);
        task.spec.gang = true;
        task
    }

    /// A kernel, which must have an implementation for the CPU.
    pub fn kernel(mut self, kernel: &Kernel, scalars: &[Scalar]) -> Self {
        self.spec.body = Body::Kernel(kernel.clone(), scalars.to_vec());
        self
    }

    /// The number of blocks of a [`Task::kernel`].
    pub fn kernel_blocks(mut self, blocks: u32) -> Self {
        self.spec.blocks = blocks;
        self
    }

    /// One of several bodies that run at the same time and end together: it sees the arguments
    /// added since the part before it, counted from zero. Parts must not write what another part
    /// touches.
    pub fn part<O: KernelOutcome>(
        mut self,
        body: impl FnOnce(&mut KernelArgs<'_>) -> O + Send + 'static,
    ) -> Self {
        let mut parts = match std::mem::replace(&mut self.spec.body, Body::Empty) {
            Body::Parts(parts) => parts,
            _ => Vec::new(),
        };
        let first = parts.last().map_or(0, |part| part.first + part.count);
        let body = syncline_sync::shim::Mutex::new(Some(InlineFn::new(body)));
        parts.push(Part { first, count: self.spec.args.len() - first, body });
        self.spec.blocks = parts.len() as u32;
        self.spec.body = Body::Parts(parts);
        self
    }

    /// What to do, once, with the right to submit tasks: see [`TaskContext`]. The task ends when
    /// those have ended.
    pub fn parent<O: KernelOutcome>(
        mut self,
        body: impl FnOnce(&mut TaskContext<'_>) -> O + Send + 'static,
    ) -> Self {
        let body = move |context: &mut TaskContext<'_>| body(context).into_result();
        (self.spec.body, self.spec.blocks) = (Body::Parent(Box::new(body)), 1);
        self
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({}, {:?})", self.spec.name, &*self.spec.args)
    }
}
