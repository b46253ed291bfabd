//! What the threads of a stream share: the ring, the queues, and who may take what from where.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use crossbeam_utils::CachePadded;
use syncline_deps::{BufferId, TaskId};

use super::book::{Book, Ring};
use super::capture::Capture;
use super::exclusion::Exclusion;
use super::failure::Failures;
use super::heap::Heap;
use super::index_ring::IndexRing;
use super::nested::{Nested, NestedSet};
use super::ready::{Pick, Ready, ReadyQueue};
use super::scope::ScopeState;
use super::sleep::Sleep;
use super::stats::Counters;
use super::{StreamError, StreamOptions};

/// Set in a queue of finished slots where the task failed.
pub(crate) const FAILED: u32 = 1 << 31;
/// How often a lane looks at the queues of others before its own.
const LOOK_AROUND: u32 = 32;
/// Tasks that a lane takes from the submitter at once.
const BATCH: usize = 32;

/// Everything that the threads of one stream share.
pub(crate) struct Shared {
    pub(crate) stream_id: u64,
    pub(crate) options: StreamOptions,
    pub(crate) ring: Ring,
    state: Mutex<RootState>,
    /// Ready tasks from submissions; its producer is whoever holds the submit lock.
    inbox: IndexRing,
    /// One for each worker, and the last for a thread outside that helps.
    pub(crate) lanes: Box<[Lane]>,
    host_lane: Mutex<()>,
    pub(crate) queue: ReadyQueue,
    pub(crate) exclusion: Mutex<Exclusion>,
    pub(crate) failures: Mutex<Failures>,
    /// `Failures::live_count`, to look at without the lock.
    pub(crate) failures_live: AtomicUsize,
    pub(crate) sleep: Sleep,
    pub(crate) nested: NestedSet,
    /// Buffers whose handles have been dropped since the last submission.
    dropped: Mutex<Vec<u32>>,
    any_dropped: AtomicBool,
    pub(crate) submitted: CachePadded<AtomicU64>,
    /// Tasks that ended outside the lanes: host guards.
    pub(crate) ended_outside: AtomicU64,
    /// The stream is being dropped: what has not begun does not.
    pub(crate) dropping: AtomicBool,
    stop: AtomicBool,
    pub(crate) counters: Counters,
}

/// What the submit lock guards.
pub(crate) struct RootState {
    pub(crate) book: Book,
    pub(crate) heap: Heap,
    pub(crate) guards: Vec<Guard>,
    pub(crate) capture: Option<Capture>,
    scratch: Vec<u32>,
}

/// A buffer that the host has open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) task: TaskId,
    pub(crate) thread: ThreadId,
}

/// A thread's own queues: what it made ready, and what it finished.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) ready: IndexRing,
    pub(crate) done: IndexRing,
    pub(crate) running: AtomicBool,
}

/// A task to run, and the ring that it lives in.
pub(crate) enum Job {
    Root(Pick),
    Nested(Arc<Nested>, Pick),
}

/// Where a task that becomes ready is put.
#[derive(Clone, Copy)]
pub(crate) enum Via {
    /// The caller holds the submit lock.
    Submit,
    /// The caller is the thread of this lane.
    Lane(usize),
}

impl Shared {
    pub(crate) fn new(options: StreamOptions) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let ring = Ring::new(options.ring_tasks, options.edge_pool);
        let nodes = options.edge_pool + options.ring_tasks;
        let state = RootState {
            book: Book::new(0, options.ring_tasks, &ring, nodes),
            heap: Heap::new(options.heap_bytes),
            guards: Vec::new(),
            capture: None,
            scratch: Vec::new(),
        };
        let lane = |_| Lane {
            ready: IndexRing::new(options.ring_tasks),
            done: IndexRing::new(options.ring_tasks),
            running: AtomicBool::new(false),
        };
        Self {
            stream_id: NEXT.fetch_add(1, Ordering::Relaxed),
            options,
            ring,
            state: Mutex::new(state),
            inbox: IndexRing::new(options.ring_tasks),
            lanes: (0..=options.workers).map(lane).collect(),
            host_lane: Mutex::new(()),
            queue: ReadyQueue::new(),
            exclusion: Mutex::default(),
            failures: Mutex::default(),
            failures_live: AtomicUsize::new(0),
            sleep: Sleep::default(),
            nested: NestedSet::default(),
            dropped: Mutex::default(),
            any_dropped: AtomicBool::new(false),
            submitted: CachePadded::new(AtomicU64::new(0)),
            ended_outside: AtomicU64::new(0),
            dropping: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    /// Takes the submit lock.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, RootState> {
        lock(&self.state)
    }

    /// Takes back what has finished, and buffers that nobody can name any more.
    pub(crate) fn take_back(&self, state: &mut RootState) {
        let mut scratch = std::mem::take(&mut state.scratch);
        for lane in &self.lanes {
            scratch.clear();
            lane.done.pop_into(usize::MAX, &mut scratch);
            for &entry in &scratch {
                self.take_back_slot(state, entry & !FAILED, entry & FAILED != 0);
            }
        }
        state.scratch = scratch;
        // SeqCst, as for the queues: who announced that it waits for room must not miss it.
        if self.any_dropped.load(Ordering::SeqCst) {
            self.take_back_dropped(state);
        }
    }

    /// Takes back the slot of one finished task.
    #[inline]
    pub(crate) fn take_back_slot(&self, state: &mut RootState, slot: u32, failed: bool) {
        // SAFETY: the slot was found among the finished ones (or the caller has just finished it), so that the holder
        // of the submit lock owns it.
        let work = unsafe { self.ring.slots[slot as usize].work_mut() };
        work.scope = None;
        for place in &work.spec.places {
            if let Some(gone) = state.heap.let_go(place.buffer) {
                state.release(gone);
            }
        }
        state.book.take_back(&self.ring, slot, !failed);
    }

    #[cold]
    fn take_back_dropped(&self, state: &mut RootState) {
        self.any_dropped.store(false, Ordering::SeqCst);
        for index in std::mem::take(&mut *lock(&self.dropped)) {
            if let Some(gone) = state.heap.drop_handle(index) {
                state.release(gone);
            }
        }
    }

    /// The last handle of a buffer has been dropped.
    pub(crate) fn drop_handle(&self, index: u32) {
        lock(&self.dropped).push(index);
        self.any_dropped.store(true, Ordering::SeqCst);
        self.sleep.room_made();
    }

    /// Queues a task that has become ready.
    ///
    /// Where it must exclude others and cannot yet, it is put aside instead.
    #[inline]
    pub(crate) fn enqueue(&self, slot: u32, via: Via) {
        // SAFETY: the task has just become ready, and it was this thread that counted it down: it is the owner.
        let spec = &unsafe { self.ring.slots[slot as usize].work() }.spec;
        if spec.host {
            if !self.ring.slots[slot as usize].grant() {
                self.enqueue_owned(slot, via);
                return;
            }
            self.sleep.alarm();
            return;
        }
        if spec.exclusive && !lock(&self.exclusion).acquire(slot, &spec.args) {
            return;
        }
        self.enqueue_owned(slot, via);
    }

    /// As [`Shared::enqueue`], for a task that excludes whom it must.
    #[inline]
    pub(crate) fn enqueue_owned(&self, slot: u32, via: Via) {
        // SAFETY: as in `enqueue`.
        let spec = &unsafe { self.ring.slots[slot as usize].work() }.spec;
        if spec.is_plain() {
            match via {
                Via::Submit => self.inbox.push(slot),
                Via::Lane(lane) => self.lanes[lane].ready.push(slot),
            }
            return;
        }
        let (priority, blocks, gang) = (spec.priority, spec.blocks, spec.gang);
        self.queue.push(Ready { slot, priority, blocks, gang });
        self.sleep.work_arrived();
        if blocks > 1 {
            self.sleep.wake(blocks - 1);
        }
    }

    /// What the thread of `lane` should run next; `turn` is its own count of how often it asked.
    #[inline]
    pub(crate) fn pick(&self, lane: usize, turn: &mut u32, batch: &mut Vec<u32>) -> Option<Job> {
        *turn = turn.wrapping_add(1);
        if turn.is_multiple_of(LOOK_AROUND)
            && let Some(job) = self.pick_elsewhere(lane, *turn)
        {
            return Some(job);
        }
        if self.queue.top() > 0
            && let Some(pick) = self.queue.pop(1)
        {
            return Some(self.picked(pick));
        }
        if let Some(slot) = self.lanes[lane].ready.pop() {
            return Some(Job::Root(Pick { slot, block: 0 }));
        }
        self.pick_inbox(lane, batch).or_else(|| self.pick_rest(lane))
    }

    /// A share of what was submitted lately: one to run, the others to the lane's own queue.
    fn pick_inbox(&self, lane: usize, batch: &mut Vec<u32>) -> Option<Job> {
        let share = self.inbox.len() / self.lanes.len() + 1;
        batch.clear();
        self.inbox.pop_into(share.min(BATCH), batch);
        let (&slot, rest) = batch.split_first()?;
        for &slot in rest {
            self.lanes[lane].ready.push(slot);
        }
        if !rest.is_empty() {
            self.sleep.work_arrived();
        }
        Some(Job::Root(Pick { slot, block: 0 }))
    }

    /// The shared queue, the tasks inside tasks, and the queues of other lanes; last, what has a low priority.
    fn pick_rest(&self, lane: usize) -> Option<Job> {
        if let Some(pick) = self.queue.pop(0) {
            return Some(self.picked(pick));
        }
        if let Some((nested, pick)) = self.nested.pick() {
            return Some(Job::Nested(nested, pick));
        }
        for other in (lane + 1..self.lanes.len()).chain(0..lane) {
            if let Some(slot) = self.lanes[other].ready.pop() {
                return Some(Job::Root(Pick { slot, block: 0 }));
            }
        }
        self.queue.pop(i32::MIN).map(|pick| self.picked(pick))
    }

    /// Keeps a lane that always has work of its own from starving the rest.
    #[cold]
    fn pick_elsewhere(&self, lane: usize, turn: u32) -> Option<Job> {
        if turn.is_multiple_of(2 * LOOK_AROUND)
            && let Some(pick) = self.queue.pop_oldest()
        {
            return Some(self.picked(pick));
        }
        if let Some(slot) = self.inbox.pop() {
            return Some(Job::Root(Pick { slot, block: 0 }));
        }
        self.pick_rest(lane)
    }

    /// A gang that has begun to form calls the threads that it needs.
    fn picked(&self, pick: Pick) -> Job {
        if self.queue.top() == i32::MAX {
            self.sleep.wake(self.queue.gang_needs());
        }
        Job::Root(pick)
    }

    /// Whether there is anything to run, in any queue. To be believed by a sleeper that has announced itself.
    pub(crate) fn has_work(&self) -> bool {
        self.inbox.len() > 0
            || self.queue.len() > 0
            || self.nested.ready() > 0
            || self.lanes.iter().any(|lane| lane.ready.len() > 0)
    }

    /// Tasks that are ready, about.
    pub(crate) fn ready_count(&self) -> usize {
        let lanes: usize = self.lanes.iter().map(|lane| lane.ready.len()).sum();
        self.inbox.len() + self.queue.len() + self.nested.ready() + lanes
    }

    /// Tasks that have ended.
    pub(crate) fn ended(&self) -> u64 {
        let lanes: u64 = self.lanes.iter().map(|lane| lane.done.pushed()).sum();
        lanes + self.ended_outside.load(Ordering::SeqCst)
    }

    /// The number of the lane for a thread outside that helps, if no other has it.
    pub(crate) fn host_lane(&self) -> Option<(usize, MutexGuard<'_, ()>)> {
        let guard = match self.host_lane.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        Some((self.lanes.len() - 1, guard))
    }

    /// Whether a task of `scope` waits for a host guard of this thread.
    pub(crate) fn holds_up_scope(&self, state: &RootState, scope: &Arc<ScopeState>) -> bool {
        if state.guards.is_empty() {
            return false;
        }
        let behind = state.behind_own_guards(&self.ring);
        let guards = |task| state.guards.iter().any(|guard| guard.task == task);
        state.book.live().any(|(task, slot)| {
            // SAFETY: a task behind an open guard is not ready: the holder of the submit lock owns it.
            let of = || unsafe { self.ring.slots[slot as usize].work() }.scope.as_ref();
            behind[slot as usize] && !guards(task) && of().is_some_and(|of| Arc::ptr_eq(of, scope))
        })
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.sleep.alarm();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// The origin of the failure that dependants of `task`, which has ended, inherit.
    #[inline]
    pub(crate) fn origin_of(&self, task: TaskId) -> Option<TaskId> {
        if self.failures_live.load(Ordering::Acquire) == 0 {
            return None;
        }
        lock(&self.failures).live(task).map(|record| record.origin)
    }
}

impl RootState {
    /// Discovery forgets a buffer that has gone.
    pub(crate) fn release(&mut self, buffer: BufferId) {
        let released = self.book.submitter.release_buffer(buffer);
        debug_assert!(released.is_ok(), "{buffer} is released once");
        if let Some(capture) = &mut self.capture {
            capture.release(buffer);
        }
    }

    /// Discovery learns of a buffer.
    pub(crate) fn declare(&mut self, bytes: u64) -> BufferId {
        let buffer = self.book.submitter.create_buffer(bytes);
        if let Some(capture) = &mut self.capture {
            capture.buffer(buffer, bytes);
        }
        buffer
    }

    /// Refuses to wait for what this thread itself holds up.
    pub(crate) fn refuse_own_guards(
        &self,
        what: &'static str,
        waits_for: impl FnOnce() -> String,
    ) -> Result<(), StreamError> {
        let thread = std::thread::current().id();
        match self.guards.iter().any(|guard| guard.thread == thread) {
            true => Err(StreamError::WaitsForOwnGuard { what, waits_for: waits_for() }),
            false => Ok(()),
        }
    }

    /// The slots that cannot go on before this thread drops its guards: they and all that waits for them.
    pub(crate) fn behind_own_guards(&self, ring: &Ring) -> Vec<bool> {
        let thread = std::thread::current().id();
        let mut behind = vec![false; ring.slots.len()];
        let own = self.guards.iter().filter(|guard| guard.thread == thread);
        let mut left: Vec<u32> = own.filter_map(|guard| self.book.find(guard.task)).collect();
        while let Some(slot) = left.pop() {
            if !std::mem::replace(&mut behind[slot as usize], true) {
                // Nothing behind an open guard can finish, so that the lists stand still under the submit lock.
                left.extend(ring.slots[slot as usize].fanout.peek().successors(&ring.nodes));
            }
        }
        behind
    }
}

/// Locks, whether or not a thread panicked while it held the lock: nothing here is left half-done by a panic, which
/// can come from user code only, and that runs without locks.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
