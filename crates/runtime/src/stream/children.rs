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
use syncline_device::cpu::WorkersHandle;
use syncline_sync::ignore_poison;
use syncline_sync::shim::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering};
use syncline_tensor::{BufferId, TaskId};

use super::circle::ChildrenWait;
use super::error::Failure;
use super::failure::Record;
use super::holds;
use super::ready::{Pick, Ready, ReadyQueue};
use super::ring::Ring;
use super::run::Ending;
use super::scope::ScopeState;
use super::shared::{Shared, Via, lock};
use super::sleep::Want;
use super::slot::Slot;
use super::task_table::TaskTable;
use super::work::Work;

/// Children of one task that are unfinished at the same time, at most; with more, the parent runs
/// some first.
const CHILDREN_MAX: usize = 256;
const CHILD_EDGES_MAX: usize = 2048;

/// What a ring of children has of the task that they belong to.
pub(crate) struct Parent {
    pub(crate) table: Mutex<TaskTable>,
    /// The number of the ring in the ids of its tasks.
    pub(crate) number: u8,
    /// The scope that the children are cancelled with: that of the task outside all others.
    scope: Mutex<Option<Arc<ScopeState>>>,
    /// The id of that task.
    root: AtomicU64,
    queue: ReadyQueue,
    /// Slots of children that have ended, and whether they failed.
    done: Mutex<Vec<(u32, bool)>>,
    unfinished: AtomicU32,
    waits: AtomicBool,
    pub(crate) outputs: Mutex<Vec<ChildOutput>>,
}

/// A buffer that a child made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildOutput {
    pub(crate) id: BufferId,
    pub(crate) index: u32,
    pub(crate) base: *mut u8,
}

// SAFETY: an address and numbers; the buffer stays until the parent has ended, and who follows the
// address argues for itself.
unsafe impl Send for ChildOutput {}

/// All rings of children of a stream: those in use, and spare ones.
#[derive(Default)]
pub(crate) struct ChildRings {
    active: Mutex<Vec<Arc<Ring>>>,
    spare: Mutex<Vec<Arc<Ring>>>,
    /// Blocks that could be taken from the active ones.
    ready: AtomicUsize,
    made: AtomicUsize,
}

impl ChildRings {
    /// Returns a ring for the children of one more task, which is cancelled with `scope`.
    pub(crate) fn open(
        &self,
        ring_tasks: usize,
        scope: Option<Arc<ScopeState>>,
        root: TaskId,
    ) -> Arc<Ring> {
        let spare = lock(&self.spare).pop();
        let ring = spare.unwrap_or_else(|| {
            let made = self.made.fetch_add(1, Ordering::Relaxed);
            Arc::new(Ring::of_children((made % 255) as u8 + 1, ring_tasks.min(CHILDREN_MAX)))
        });
        let parent = ring.parent();
        *lock(&parent.scope) = scope;
        // Relaxed: the lock of the active ones publishes it.
        parent.root.store(root.to_bits(), Ordering::Relaxed);
        lock(&self.active).push(ring.clone());
        ring
    }

    /// Keeps a ring in which nothing is left for another task.
    pub(crate) fn close(&self, ring: Arc<Ring>) {
        lock(&self.active).retain(|other| !Arc::ptr_eq(other, &ring));
        *lock(&ring.parent().scope) = None;
        lock(&self.spare).push(ring);
    }

    /// Takes a ready child from any of the active rings.
    pub(crate) fn pick(&self) -> Option<(Arc<Ring>, Pick)> {
        if self.ready() == 0 {
            return None;
        }
        let active = lock(&self.active);
        // The youngest first: it is the deepest, and others wait for it.
        active.iter().rev().find_map(|ring| Some((ring.clone(), ring.parent().pick(self)?)))
    }

    /// Returns how many blocks could be taken.
    pub(crate) fn ready(&self) -> usize {
        self.ready.load(Ordering::SeqCst)
    }
}

impl Ring {
    fn of_children(number: u8, tasks: usize) -> Self {
        let mut ring = Self::new(tasks, CHILD_EDGES_MAX);
        let table = TaskTable::new(number, tasks, &ring, CHILD_EDGES_MAX + tasks);
        ring.parent = Some(Parent {
            table: Mutex::new(table),
            number,
            scope: Mutex::default(),
            root: AtomicU64::new(0),
            // Gangs among children bring their own threads.
            queue: ReadyQueue::new(WorkersHandle::none()),
            done: Mutex::default(),
            unfinished: AtomicU32::new(0),
            waits: AtomicBool::new(false),
            outputs: Mutex::default(),
        });
        ring
    }

    /// Returns the parent of a ring of children.
    pub(crate) fn parent(&self) -> &Parent {
        self.parent.as_ref().expect("a ring of children has a parent")
    }
}

impl Parent {
    fn pick(&self, rings: &ChildRings) -> Option<Pick> {
        let pick = self.queue.pop(i32::MIN)?;
        rings.ready.fetch_sub(1, Ordering::SeqCst);
        Some(pick)
    }

    /// Returns the scope that the children are cancelled with.
    pub(crate) fn scope(&self) -> Option<Arc<ScopeState>> {
        lock(&self.scope).clone()
    }

    /// Returns the task outside all others that the children belong to.
    pub(crate) fn root(&self) -> TaskId {
        TaskId::from_bits(self.root.load(Ordering::Relaxed))
    }

    /// Counts one more child.
    pub(crate) fn child_entered(&self) {
        self.unfinished.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns how many children have not ended.
    pub(crate) fn unfinished(&self) -> u32 {
        self.unfinished.load(Ordering::SeqCst)
    }

    /// Queues a child that is ready and excludes all that it must. A gang brings its own threads
    /// and is started once.
    pub(crate) fn push(&self, rings: &ChildRings, ready: Ready) {
        let blocks = if ready.gang { 1 } else { ready.blocks };
        rings.ready.fetch_add(blocks as usize, Ordering::SeqCst);
        self.queue.push(Ready { blocks, gang: false, ..ready });
    }

    /// Returns `true` if one more child fits: one child's own edges may exceed the pool, as for
    /// the ring of the stream.
    pub(crate) fn has_room(&self, table: &TaskTable) -> bool {
        table.has_slot() && table.edges().now < CHILD_EDGES_MAX
    }

    /// Reclaims the slots of children that have ended.
    pub(crate) fn reclaim(&self, ring: &Ring, table: &mut TaskTable) {
        for (slot, failed) in std::mem::take(&mut *lock(&self.done)) {
            table.reclaim(ring, slot, !failed, |_| ());
        }
    }
}

impl Shared {
    /// Waits for all children in `ring`, running them.
    pub(crate) fn wait_children(self: &Arc<Self>, lane: Option<usize>, ring: &Ring) {
        let parent = ring.parent();
        while parent.unfinished() > 0 {
            if let Some(pick) = parent.pick(&self.children) {
                self.run_in(lane, ring, pick);
                continue;
            }
            parent.waits.store(true, Ordering::SeqCst);
            let ticket = self.sleep.prepare(Want::Task, false);
            if parent.unfinished() == 0 || parent.queue.len() > 0 {
                self.sleep.cancel(ticket);
            } else {
                let shared = self.clone();
                let wait = ChildrenWait { shared, root: parent.root() };
                let _blocked = holds::block_anyway(Arc::new(wait));
                self.sleep.commit(ticket, Deadline::NEVER);
            }
            parent.waits.store(false, Ordering::SeqCst);
        }
    }

    /// Ends a child, and tells its parent where that waits.
    pub(crate) fn end_child(&self, ring: &Ring, parent: &Parent, number: u32, ending: Ending) {
        let failed = ending.is_err();
        self.finish(ring, number, ending, Via::Parent(parent));
        lock(&parent.done).push((number, failed));
        let was = parent.unfinished.fetch_sub(1, Ordering::SeqCst);
        if parent.waits.load(Ordering::SeqCst) && (was == 1 || parent.queue.len() > 0) {
            self.sleep.alarm();
        }
        if parent.queue.len() > 0 {
            self.sleep.work_arrived();
        }
    }

    /// Runs all blocks of a child's gang at the same time, on threads of its own.
    ///
    /// The workers may all be parents that wait for gangs of their own; with own threads none waits
    /// for another.
    pub(crate) fn run_child_gang(self: &Arc<Self>, ring: &Ring, parent: &Parent, number: u32) {
        let slot = ring.slot(number);
        // SAFETY: this thread took the slot from a ready queue; the threads below share it and end
        // before it is closed.
        let work = unsafe { slot.work() };
        let ending = match self.reason_to_skip(ring, slot, work) {
            Some(record) => Err(record),
            None => self.run_on_own_threads(parent, slot),
        };
        // SAFETY: the threads have ended: this one is the owner.
        let work = unsafe { slot.work_mut() };
        let body = std::mem::replace(&mut work.body, super::body::Body::Empty);
        syncline_device::drop_guarded(body);
        self.end_child(ring, parent, number, ending);
    }

    fn run_on_own_threads(self: &Arc<Self>, parent: &Parent, slot: &Slot) -> Ending {
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
                    holds::swap_task((self.stream_id, parent.root().to_bits()));
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
