//! What a task that may submit tasks sees.

use std::fmt;
use std::sync::Arc;

use syncline_deps::{DepInputs, EdgeFlags};
use syncline_device::{Buffer, KernelArgs, RawArg};
use syncline_tensor::{Access, Arg, Region, TaskId};

use super::children::{ChildOutput, Parent};
use super::error::{Cause, Failure};
use super::ring::Ring;
use super::scope::ScopeState;
use super::shared::{Shared, Via, lock};
use super::task::{FRESH, TaskSpec};
use super::work::Work;
use super::{StreamError, Task, TaskHandle};

/// A running task's arguments, and its right to submit tasks of its own.
///
/// Children may touch what is an argument of their parent, in the same way or a weaker one, and
/// what siblings have made. They are ordered among themselves like any tasks, and what waits for
/// the parent waits for them too. A child that fails, fails its parent.
///
/// ```
/// use syncline_tensor::{Dtype, View};
/// use syncline_runtime::stream::{Stream, StreamError, StreamOptions, Task};
///
/// let stream = Stream::new(StreamOptions::default())?;
/// let sum = stream.buffer(8)?;
/// let view = View::contiguous(Dtype::U64, &[1])?;
/// let inner = sum.clone();
/// stream.submit(Task::new("parent").inout(&sum, view).parent(move |task| {
///     for number in 1..=10u64 {
///         task.submit(Task::new("child").inout(&inner, view).body(move |args| {
///             args.slice_mut::<u64>(0).map(|sum| sum[0] += number)
///         }))?;
///     }
///     Ok::<(), StreamError>(())
/// }))?;
/// assert_eq!(stream.read(&sum)?.as_slice::<u64>()?, [55]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TaskContext<'a> {
    shared: &'a Arc<Shared>,
    lane: Option<usize>,
    work: &'a Work,
    raw: &'a [RawArg],
    ring: Option<Arc<Ring>>,
    failure: Option<Arc<Failure>>,
    /// What the task and its children are cancelled with.
    scope: Option<Arc<ScopeState>>,
    /// The task outside all others.
    root: TaskId,
    /// Why a child was refused.
    cancelled: Option<Cause>,
}

impl<'a> TaskContext<'a> {
    pub(crate) fn new(
        shared: &'a Arc<Shared>,
        lane: Option<usize>,
        work: &'a Work,
        raw: &'a [RawArg],
        (scope, root): (Option<Arc<ScopeState>>, TaskId),
    ) -> Self {
        let (ring, failure, cancelled) = (None, None, None);
        Self { shared, lane, work, raw, ring, failure, scope, root, cancelled }
    }

    /// The task itself.
    pub fn id(&self) -> TaskId {
        self.work.id
    }

    /// The task's arguments, when all children submitted so far have ended: nobody else touches
    /// them then.
    pub fn args(&mut self) -> KernelArgs<'_> {
        self.wait_for_children();
        // SAFETY: the task is ordered against all others that touch these bytes; its own children
        // have ended, and none can be submitted while the arguments are borrowed.
        unsafe { KernelArgs::from_raw(self.raw, &[]) }
    }

    /// Waits until all children submitted so far have ended.
    ///
    /// # Errors
    /// Where one has failed; the parent fails then too, whatever it returns.
    pub fn wait(&mut self) -> Result<(), StreamError> {
        self.wait_for_children();
        match &self.failure {
            Some(failure) => {
                Err(StreamError::TaskFailed { task: failure.task, failure: failure.clone() })
            }
            None => Ok(()),
        }
    }

    /// Submits a child.
    ///
    /// Where there are many unfinished ones, runs them first.
    ///
    /// # Errors
    /// As [`Stream::submit`](super::Stream::submit); where the child touches what is not its
    /// parent's; and where the scope of the outermost task has been cancelled or its deadline has
    /// passed. A parent that returns that error counts as cancelled.
    pub fn submit(&mut self, task: Task) -> Result<TaskHandle, StreamError> {
        let mut spec = task.spec;
        if let Some(scope) = &self.scope
            && let Some(cause) = scope.reason_to_skip()
        {
            let refused = scope.refusal(&cause);
            self.cancelled = Some(cause);
            return Err(refused);
        }
        self.shared.check(&spec)?;
        let bytes = self.shared.need(&spec)?.bytes;
        let ring = self.open()?;
        let parent = ring.parent();
        if spec.deps.iter().any(|dep| dep.ring() != parent.number) {
            return Err(StreamError::WrongStream { what: "dependency, which is no sibling," });
        }
        self.find_places(parent, &mut spec)?;
        let outputs = self.allocate(parent, &mut spec, bytes)?;
        let mut table = lock(&parent.table);
        parent.reclaim(&ring, &mut table);
        if !parent.has_room(&table) {
            drop(table);
            self.shared.wait_children(self.lane, &ring);
            table = lock(&parent.table);
            parent.reclaim(&ring, &mut table);
        }
        table.preds.clear();
        let mut preds = std::mem::take(&mut table.preds);
        let inputs = DepInputs { args: &spec.args, deps: &spec.deps };
        let task = table.submitter.submit(inputs, |edge| {
            if edge.flags.contains(EdgeFlags::WAIT) {
                preds.push(edge.pred);
            }
        });
        table.preds = preds;
        let task = task?;
        let (slot, blocks, accesses) = (table.next_slot(), spec.blocks, spec.args.len() as u32);
        let place = ring.slot(slot);
        // SAFETY: the slot is free and this thread holds the lock of the task table.
        place.set_traits(unsafe { place.work_mut() }.fill(task, &mut spec, None));
        parent.child_entered();
        // The parent holds all buffers, and those that children make are kept with their ring.
        if table.enter(&ring, task, accesses, &[], blocks, |pred| ring.origin_of(pred)) {
            self.shared.enqueue(&ring, slot, Via::Parent(parent));
        }
        drop(table);
        self.shared.sleep.work_arrived();
        spec.recycle();
        Ok(TaskHandle::new(self.shared.stream_id, task, outputs))
    }

    fn wait_for_children(&mut self) {
        let Some(ring) = &self.ring else { return };
        let parent = ring.parent();
        self.shared.wait_children(self.lane, ring);
        // The table knows of failed children until they are asked, so that siblings inherit; here
        // all have ended.
        let mut table = lock(&parent.table);
        parent.reclaim(ring, &mut table);
        let failure = ring.report_failures(&mut table.submitter).map(|(_, failure)| failure);
        self.failure = self.failure.take().or(failure);
    }

    /// The ring of this task's children, in which the parent's buffers are known.
    fn open(&mut self) -> Result<Arc<Ring>, StreamError> {
        if let Some(ring) = &self.ring {
            return Ok(ring.clone());
        }
        let (ring_tasks, scope) = (self.shared.options.ring_tasks, self.scope.clone());
        let ring = self.shared.children.open(ring_tasks, scope, self.root);
        self.ring = Some(ring.clone());
        let parent = ring.parent();
        let state = self.shared.lock();
        let mut table = lock(&parent.table);
        for (position, arg) in self.work.args().enumerate() {
            if !self.work.args().take(position).any(|other| other.buffer == arg.buffer) {
                let bytes = state.table.submitter.buffer_bytes(arg.buffer).unwrap_or(0);
                table.submitter.declare_buffer(arg.buffer, bytes)?;
            }
        }
        drop(table);
        Ok(ring)
    }

    /// Finds where a child's buffers are: with the parent, or among those that siblings made.
    fn find_places(&self, parent: &Parent, spec: &mut TaskSpec) -> Result<(), StreamError> {
        let outputs = lock(&parent.outputs);
        for (arg, place) in spec.args.iter().zip(&mut spec.places) {
            if place.buffer == FRESH {
                continue;
            }
            if let Some(output) = outputs.iter().find(|output| output.id == arg.buffer) {
                place.base = output.base;
                continue;
            }
            let mut covering = self.work.places().filter(|(of, _)| covers(of, arg));
            let Some((_, base)) = covering.next() else {
                let (task, parent) = (spec.name.clone(), self.work.name.clone());
                return Err(StreamError::NotCovered { task, parent, buffer: arg.buffer });
            };
            place.base = base;
        }
        Ok(())
    }

    /// Allocates a child's outputs. They stay at least until the parent has ended.
    fn allocate(
        &self,
        parent: &Parent,
        spec: &mut TaskSpec,
        need: u64,
    ) -> Result<Vec<Buffer>, StreamError> {
        let mut outputs = Vec::new();
        if spec.outputs == 0 {
            return Ok(outputs);
        }
        let mut state = self.shared.lock();
        self.shared.reclaim(&mut state);
        if !state.heap.fits(need) {
            let (size, in_use) = (self.shared.options.heap_bytes, state.heap.use_bytes().0);
            return Err(StreamError::Exhausted {
                task: spec.name.clone(),
                resource: "bytes of outputs",
                setting: "heap_bytes",
                size,
                in_use,
                need,
                holder: "tasks and handles; a task inside another does not wait for them",
                way_out: "allocate outside",
            });
        }
        for (arg, place) in spec.args.iter_mut().zip(&mut spec.places) {
            if place.buffer != FRESH {
                continue;
            }
            let buffer = state.make_output(self.shared, arg, place)?;
            let (id, index, base) = (buffer.id(), place.buffer, place.base);
            state.heap.hold(index);
            state.heap.set_inside(index, true);
            lock(&parent.outputs).push(ChildOutput { id, index, base });
            lock(&parent.table).submitter.declare_buffer(id, buffer.bytes())?;
            outputs.push(buffer);
        }
        Ok(outputs)
    }

    /// Waits for all children and takes their ring apart. Returns the failure of one of them, and
    /// why one was refused because the scope was cancelled.
    pub(crate) fn close(mut self) -> (Option<Arc<Failure>>, Option<Cause>) {
        self.wait_for_children();
        let Some(ring) = self.ring.take() else { return (None, self.cancelled) };
        let parent = ring.parent();
        let outputs = std::mem::take(&mut *lock(&parent.outputs));
        let mut state = self.shared.lock();
        for output in &outputs {
            state.heap.set_inside(output.index, false);
            if let Some(gone) = state.heap.let_go(output.index) {
                state.release(gone);
            }
        }
        drop(state);
        let mut table = lock(&parent.table);
        let own = self.work.args().map(|arg| arg.buffer);
        for buffer in own.chain(outputs.iter().map(|output| output.id)) {
            // A buffer may be several arguments; the first time counts.
            let _ = table.submitter.release_buffer(buffer);
        }
        drop(table);
        self.shared.children.close(ring);
        (self.failure, self.cancelled)
    }
}

/// Whether a task with argument `parent` may let a child touch `child`.
fn covers(parent: &Arg, child: &Arg) -> bool {
    parent.buffer == child.buffer
        && (child.access == Access::NoDep
            || parent.access != Access::NoDep && (parent.access.writes() || !child.access.writes()))
        && (parent.view == child.view || Region::of(&parent.view).covers(&Region::of(&child.view)))
}

impl fmt::Debug for TaskContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskContext({} `{}`)", self.work.id, self.work.name)
    }
}
