//! Tasks inside a task: a ring of their own, that lives as long as their parent runs.
//!
//! A child may touch only what is an argument of its parent or was made by a sibling. So the
//! parent's place in the order protects all of them, and only siblings have to be ordered among
//! themselves. The parent ends when they have.
//!
//! A parent that waits runs children of its own and nothing else. Children depend on siblings
//! alone, so there is always one that can run, or one that runs on another thread; by induction
//! over the depth that ends.

use std::sync::Arc;

use syncline_device::Deadline;
use syncline_tensor::{BufferId, TaskId};

use syncline_sync::shim::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering};

use super::book::{Book, Ring};
use super::circle::ChildrenWait;
use super::error::Failure;
use super::exclusion::Exclusion;
use super::failure::{Failures, Record};
use super::holds;
use super::ready::{Pick, Ready, ReadyQueue};
use super::run::{Ending, Home};
use super::scope::ScopeState;
use super::shared::{Shared, lock};
use super::sleep::Want;
use super::slot::Slot;
use super::work::{Traits, Work};
use syncline_sync::ignore_poison;

/// Children of one task that are unfinished at the same time, at most; with more, the parent runs
/// some first.
const NESTED_TASKS: usize = 256;
const NESTED_EDGES: usize = 2048;

/// The children of one running task.
pub(crate) struct Nested {
    pub(crate) ring: Ring,
    pub(crate) book: Mutex<Book>,
    pub(crate) number: u8,
    /// The scope that the children are cancelled with: that of the task outside all others.
    scope: Mutex<Option<Arc<ScopeState>>>,
    /// The id of that task.
    root: AtomicU64,
    queue: ReadyQueue,
    exclusion: Mutex<Exclusion>,
    done: Mutex<Vec<(u32, bool)>>,
    failures: Mutex<Failures>,
    unfinished: AtomicU32,
    parent_waits: AtomicBool,
    pub(crate) outputs: Mutex<Vec<NestedOutput>>,
}

/// A buffer that a child made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NestedOutput {
    pub(crate) id: BufferId,
    pub(crate) index: u32,
    pub(crate) base: *mut u8,
}

// SAFETY: an address and numbers; the buffer stays until the parent has ended, and who follows the
// address argues for itself.
unsafe impl Send for NestedOutput {}

/// All rings of children of a stream: those in use, and spare ones.
#[derive(Default)]
pub(crate) struct NestedSet {
    active: Mutex<Vec<Arc<Nested>>>,
    spare: Mutex<Vec<Arc<Nested>>>,
    /// Blocks that could be taken from the active ones.
    ready: AtomicUsize,
    made: AtomicUsize,
}

impl NestedSet {
    /// A ring for the children of one more task, which is cancelled with `scope`.
    pub(crate) fn open(
        &self,
        ring_tasks: usize,
        scope: Option<Arc<ScopeState>>,
        root: TaskId,
    ) -> Arc<Nested> {
        let spare = lock(&self.spare).pop();
        let nested = spare.unwrap_or_else(|| {
            let made = self.made.fetch_add(1, Ordering::Relaxed);
            Arc::new(Nested::new((made % 255) as u8 + 1, ring_tasks.min(NESTED_TASKS)))
        });
        *lock(&nested.scope) = scope;
        // Relaxed: the lock of the active ones publishes it.
        nested.root.store(root.to_bits(), Ordering::Relaxed);
        lock(&self.active).push(nested.clone());
        nested
    }

    /// Takes back a ring in which nothing is left.
    pub(crate) fn close(&self, nested: Arc<Nested>) {
        lock(&self.active).retain(|other| !Arc::ptr_eq(other, &nested));
        *lock(&nested.scope) = None;
        lock(&self.spare).push(nested);
    }

    /// Something to run from any of the active ones.
    pub(crate) fn pick(&self) -> Option<(Arc<Nested>, Pick)> {
        if self.ready() == 0 {
            return None;
        }
        let active = lock(&self.active);
        // The youngest first: it is the deepest, and others wait for it.
        active.iter().rev().find_map(|nested| Some((nested.clone(), nested.pick(self)?)))
    }

    /// Blocks that could be taken.
    pub(crate) fn ready(&self) -> usize {
        self.ready.load(Ordering::SeqCst)
    }
}

impl Nested {
    fn new(number: u8, tasks: usize) -> Self {
        let ring = Ring::new(tasks, NESTED_EDGES);
        let book = Book::new(number, tasks, &ring, NESTED_EDGES + tasks);
        Self {
            ring,
            book: Mutex::new(book),
            number,
            scope: Mutex::default(),
            root: AtomicU64::new(0),
            queue: ReadyQueue::new(),
            exclusion: Mutex::default(),
            done: Mutex::default(),
            failures: Mutex::default(),
            unfinished: AtomicU32::new(0),
            parent_waits: AtomicBool::new(false),
            outputs: Mutex::default(),
        }
    }

    fn pick(&self, set: &NestedSet) -> Option<Pick> {
        let pick = self.queue.pop(i32::MIN)?;
        set.ready.fetch_sub(1, Ordering::SeqCst);
        Some(pick)
    }

    /// The scope that the children are cancelled with.
    pub(crate) fn scope(&self) -> Option<Arc<ScopeState>> {
        lock(&self.scope).clone()
    }

    /// The task outside all others that the children belong to.
    pub(crate) fn root(&self) -> TaskId {
        TaskId::from_bits(self.root.load(Ordering::Relaxed))
    }

    /// One more child.
    pub(crate) fn child_entered(&self) {
        self.unfinished.fetch_add(1, Ordering::SeqCst);
    }

    /// Children that have not ended.
    pub(crate) fn unfinished(&self) -> u32 {
        self.unfinished.load(Ordering::SeqCst)
    }

    /// Queues a child that has become ready.
    pub(crate) fn enqueue(&self, slot: u32, set: &NestedSet) {
        let place = &self.ring.slots[slot as usize];
        if place.traits().has(Traits::EXCLUSIVE) {
            // SAFETY: this thread counted the task down to ready: it is the owner.
            let work = unsafe { place.work() };
            if !lock(&self.exclusion).acquire(slot, work.args()) {
                return;
            }
        }
        self.enqueue_owned(slot, set);
    }

    fn enqueue_owned(&self, slot: u32, set: &NestedSet) {
        let place = &self.ring.slots[slot as usize];
        // SAFETY: as in `enqueue`.
        let work = unsafe { place.work() };
        // A gang brings its own threads and is started once.
        let blocks = if place.traits().has(Traits::GANG) { 1 } else { work.blocks };
        let priority = work.priority;
        set.ready.fetch_add(blocks as usize, Ordering::SeqCst);
        self.queue.push(Ready { slot, priority, blocks, gang: false });
    }

    /// Whether one more child fits: one child's own edges may exceed the pool, as for the root's
    /// ring.
    pub(crate) fn has_room(&self, book: &Book) -> bool {
        book.has_slot() && book.edges().now < NESTED_EDGES
    }

    /// Takes back the slots of children that have ended.
    pub(crate) fn take_back(&self, book: &mut Book) {
        for (slot, failed) in std::mem::take(&mut *lock(&self.done)) {
            book.take_back(&self.ring, slot, !failed, |_| ());
        }
    }

    /// The failure that goes back to `origin`.
    pub(crate) fn failure_of(&self, origin: TaskId) -> Arc<Failure> {
        lock(&self.failures).of_origin(origin)
    }

    /// The origin of the failure that siblings which depend on `task` inherit.
    pub(crate) fn origin_of(&self, task: TaskId) -> Option<TaskId> {
        lock(&self.failures).live(task).map(|record| record.origin)
    }

    /// The oldest failure of a child; forgets all of them. When no child is left.
    pub(crate) fn report(&self) -> Option<Arc<Failure>> {
        let mut book = lock(&self.book);
        let report = lock(&self.failures).report(|task| _ = book.submitter.retire(task));
        report.map(|(_, failure)| failure)
    }
}

impl Shared {
    /// Waits for all children of `nested`, running them.
    pub(crate) fn wait_children(self: &Arc<Self>, lane: Option<usize>, nested: &Arc<Nested>) {
        while nested.unfinished() > 0 {
            if let Some(pick) = nested.pick(&self.nested) {
                self.run_in(lane, Home::Nested(nested), pick);
                continue;
            }
            nested.parent_waits.store(true, Ordering::SeqCst);
            let ticket = self.sleep.prepare(Want::Task, false);
            if nested.unfinished() == 0 || nested.queue.len() > 0 {
                self.sleep.cancel(ticket);
            } else {
                let shared = self.clone();
                let wait = ChildrenWait { shared, root: nested.root() };
                let _blocked = holds::block_anyway(Arc::new(wait));
                self.sleep.commit(ticket, Deadline::NEVER);
            }
            nested.parent_waits.store(false, Ordering::SeqCst);
        }
    }

    /// A child has ended: tells its siblings, and its parent where that waits.
    pub(crate) fn end_nested(&self, nested: &Arc<Nested>, number: u32, ending: Ending) {
        let slot = &nested.ring.slots[number as usize];
        // SAFETY: this thread ran the task and owns the slot until it is closed and given back
        // below.
        let work = unsafe { slot.work() };
        if slot.traits().has(Traits::EXCLUSIVE) {
            for next in lock(&nested.exclusion).release(number) {
                nested.enqueue_owned(next, &self.nested);
            }
        }
        let failed = ending.is_err();
        let origin = ending.err().map(|record| {
            let origin = record.origin;
            lock(&nested.failures).record(work.id, record, false);
            origin
        });
        for successor in slot.fanout.close().successors(&nested.ring.nodes) {
            let next = &nested.ring.slots[successor as usize];
            if let Some(origin) = origin {
                next.inherit(origin);
            }
            if next.count_down(1) {
                nested.enqueue(successor, &self.nested);
            }
        }
        lock(&nested.done).push((number, failed));
        let was = nested.unfinished.fetch_sub(1, Ordering::SeqCst);
        if nested.parent_waits.load(Ordering::SeqCst) && (was == 1 || nested.queue.len() > 0) {
            self.sleep.alarm();
        }
        if nested.queue.len() > 0 {
            self.sleep.work_arrived();
        }
    }

    /// Runs all blocks of a child's gang at the same time, on threads of its own.
    ///
    /// The workers may all be parents that wait for gangs of their own; with own threads none waits
    /// for another.
    pub(crate) fn run_nested_gang(self: &Arc<Self>, nested: &Arc<Nested>, number: u32) {
        let slot = &nested.ring.slots[number as usize];
        // SAFETY: this thread took the slot from a ready queue; the threads below share it and end
        // before it is closed.
        let work = unsafe { slot.work() };
        let ending = match self.reason_to_skip(Home::Nested(nested), slot, work) {
            Some(record) => Err(record),
            None => self.run_on_own_threads(nested, slot),
        };
        // SAFETY: the threads have ended: this one is the owner.
        let work = unsafe { slot.work_mut() };
        let body = std::mem::replace(&mut work.body, super::body::Body::Empty);
        syncline_device::drop_guarded(body);
        self.end_nested(nested, number, ending);
    }

    fn run_on_own_threads(self: &Arc<Self>, nested: &Arc<Nested>, slot: &Slot) -> Ending {
        // SAFETY: the caller owns the slot, and shares it with the threads of the gang only.
        let work @ &Work { id, blocks, .. } = unsafe { slot.work() };
        // Nobody begins before all are there: a block could wait for one that never comes.
        let gate = std::sync::RwLock::new(false);
        let mut open = ignore_poison(gate.write());
        std::thread::scope(|threads| {
            let mut others = Vec::new();
            for block in 1..blocks {
                let gate = &gate;
                let run = move || {
                    if !*ignore_poison(gate.read()) {
                        return Ok(());
                    }
                    holds::swap_task((self.stream_id, nested.root().to_bits()));
                    // SAFETY: this thread runs one of the blocks.
                    let work = unsafe { slot.work() };
                    self.run_shared(&work.body, work, block, blocks)
                };
                match std::thread::Builder::new().spawn_scoped(threads, run) {
                    Ok(thread) => others.push(thread),
                    Err(error) => {
                        drop(open);
                        let cause = super::Cause::Failed(format!("no thread: {error}").into());
                        let failure = Failure { task: id, name: work.name.clone(), cause };
                        return Err(Record { origin: id, failure: Arc::new(failure) });
                    }
                }
            }
            *open = true;
            drop(open);
            let mut ending = self.run_shared(&work.body, work, 0, blocks);
            for other in others {
                let theirs = other.join().expect("bodies' panics are caught");
                ending = ending.and(theirs);
            }
            ending
        })
    }
}
