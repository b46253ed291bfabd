//! What the threads of a stream share: the ring, the queues, and who may take what from where.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
// One for the whole process, and so not for a model checker, which begins anew with every schedule.
use std::sync::atomic::AtomicU64 as Numbers;

use syncline_device::cpu::WorkersHandle;
use syncline_device::{CancelToken, Memory, Wake};
use syncline_sync::CachePadded;
use syncline_tensor::{BufferId, TaskId};

use syncline_sync::shim::thread::ThreadId;
use syncline_sync::shim::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};

use super::StreamOptions;
use super::capture::{Capture, Outlet};
use super::children::{ChildRings, Parent};
use super::heap::{Gone, Heap};
use super::index_ring::IndexRing;
use super::pick::Picker;
use super::ready::{Pick, ReadyQueue};
use super::ring::Ring;
use super::sleep::Sleep;
use super::stats::Counters;
use super::task::TaskSpec;
use super::task_table::TaskTable;
use super::work::Traits;
pub(crate) use syncline_sync::lock;

/// Set in a queue of finished slots where the task failed.
pub(crate) const FAILED: u32 = 1 << 31;

/// Everything that the threads of one stream share.
pub(crate) struct Shared {
    pub(crate) stream_id: u64,
    pub(crate) options: StreamOptions,
    pub(crate) ring: Ring,
    /// Apart from the rest: who submits writes to it all the time, and who runs tasks reads what is
    /// around it.
    state: CachePadded<Mutex<RootState>>,
    /// Ready tasks from submissions; its producer is whoever holds the submit lock.
    pub(crate) inbox: IndexRing,
    /// The workers that serve this stream beside others.
    pub(crate) workers: WorkersHandle,
    /// A seat for each worker at a time, and the last for a thread outside that helps.
    pub(crate) lanes: Box<[Lane]>,
    pub(crate) queue: ReadyQueue,
    pub(crate) sleep: Sleep,
    pub(crate) children: ChildRings,
    /// Buffers whose handles have been dropped since the last submission.
    dropped: Mutex<Vec<Forgotten>>,
    any_dropped: AtomicBool,
    pub(crate) submitted: CachePadded<AtomicU64>,
    /// Tasks that ended outside the lanes: host guards.
    pub(crate) ended_outside: AtomicU64,
    /// Cancelled when the stream is dropped: what has not begun does not.
    pub(crate) cancel: CancelToken,
    stop: AtomicBool,
    pub(crate) counters: Counters,
}

/// What the submit lock guards.
pub(crate) struct RootState {
    pub(crate) table: TaskTable,
    pub(crate) heap: Heap,
    pub(crate) guards: Vec<Guard>,
    /// By slot, the address of the scope of a task that has one.
    pub(crate) scopes: Vec<usize>,
    pub(crate) capture: Option<Capture>,
    /// Attempts to submit so far, to look at what has finished now and then.
    pub(crate) turn: u64,
    /// As [`Shared::submitted`], which others look at: reading it back would fetch its line from
    /// them.
    pub(crate) submitted: u64,
    /// Scratch: buffers that went with the task that is reclaimed.
    gone: Vec<Gone>,
    /// Memory of buffers that are gone, to be dropped under no lock.
    spent: Vec<Box<dyn Memory>>,
    /// Scratch: buffers that the task being submitted holds.
    pub(crate) held: Vec<u32>,
}

/// The submit lock. What was captured under it is written when it has been given back.
pub(crate) struct RootLock<'a> {
    state: MutexGuard<'a, RootState>,
    // Fields are dropped in this order.
    unwritten: Unwritten,
    spent: Vec<Box<dyn Memory>>,
}

/// What a capture has encoded, to be written by the user's writer under no lock.
struct Unwritten(Option<Arc<Outlet>>);

impl Drop for Unwritten {
    #[inline]
    fn drop(&mut self) {
        if let Some(outlet) = &self.0 {
            outlet.drain();
        }
    }
}

impl Drop for RootLock<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(capture) = &self.state.capture {
            self.unwritten.0 = capture.due();
        }
        if !self.state.spent.is_empty() {
            self.spent = std::mem::take(&mut self.state.spent);
        }
    }
}

impl Deref for RootLock<'_> {
    type Target = RootState;

    #[inline]
    fn deref(&self) -> &RootState {
        &self.state
    }
}

impl DerefMut for RootLock<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut RootState {
        &mut self.state
    }
}

/// A buffer of which the last handle has been dropped, and its memory.
type Forgotten = (u32, Option<Box<dyn Memory>>);

/// A thread outside, and the task that stands for the buffer that it has open, or waits for.
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
    /// Locked by the thread whose lane it is.
    pub(crate) picker: Mutex<Picker>,
}

/// A task to run, and the ring that it lives in.
pub(crate) enum Job {
    Root(Pick),
    Child(Arc<Ring>, Pick),
}

/// Where a task that becomes ready is put.
#[derive(Clone, Copy)]
pub(crate) enum Via<'a> {
    /// The caller holds the submit lock.
    Submit,
    /// The caller is the thread of this lane.
    Lane(usize),
    /// The task is a child.
    Parent(&'a Parent),
}

impl Shared {
    pub(crate) fn new(options: StreamOptions, workers: WorkersHandle) -> Self {
        static NEXT: Numbers = Numbers::new(1);
        let ring = Ring::new(options.ring_tasks, options.edge_pool);
        let nodes = options.edge_pool + options.ring_tasks;
        let state = RootState {
            table: TaskTable::new(0, options.ring_tasks, &ring, nodes),
            heap: Heap::new(options.heap_bytes),
            guards: Vec::new(),
            scopes: Vec::new(),
            capture: None,
            turn: 0,
            submitted: 0,
            gone: Vec::new(),
            spent: Vec::new(),
            held: Vec::new(),
        };
        let lane = |_| Lane {
            ready: IndexRing::new(options.ring_tasks),
            done: IndexRing::new(options.ring_tasks),
            running: AtomicBool::new(false),
            picker: Mutex::default(),
        };
        Self {
            stream_id: NEXT.fetch_add(1, Ordering::Relaxed),
            options,
            ring,
            state: CachePadded::new(Mutex::new(state)),
            inbox: IndexRing::new(options.ring_tasks),
            lanes: (0..=options.workers).map(lane).collect(),
            queue: ReadyQueue::new(workers.clone()),
            sleep: Sleep::new(workers.clone(), options.workers),
            workers,
            children: ChildRings::default(),
            dropped: Mutex::default(),
            any_dropped: AtomicBool::new(false),
            submitted: CachePadded::new(AtomicU64::new(0)),
            ended_outside: AtomicU64::new(0),
            cancel: CancelToken::new(),
            stop: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    /// Takes the submit lock.
    #[inline]
    pub(crate) fn lock(&self) -> RootLock<'_> {
        RootLock { state: lock(&self.state), unwritten: Unwritten(None), spent: Vec::new() }
    }

    /// Polls at what the submit lock guards. Nothing is written that was captured before, so that
    /// no user code runs here.
    pub(crate) fn look_at_state<T>(&self, look: impl FnOnce(&RootState) -> T) -> T {
        look(&lock(&self.state))
    }

    /// Reclaims what has finished, and buffers that nobody can name any more.
    pub(crate) fn reclaim(&self, state: &mut RootState) {
        for lane in &self.lanes {
            lane.done.drain(|entry| {
                self.reclaim_slot(state, entry & !FAILED, entry & FAILED != 0);
            });
        }
        // SeqCst, as for the queues: who announced that it waits for room must not miss it.
        if self.any_dropped.load(Ordering::SeqCst) {
            self.reclaim_dropped(state);
        }
    }

    /// Reclaims the slot of one finished task.
    #[inline]
    pub(crate) fn reclaim_slot(&self, state: &mut RootState, slot: u32, failed: bool) {
        let RootState { table, heap, gone, .. } = state;
        table.reclaim(&self.ring, slot, !failed, |buffer| gone.extend(heap.let_go(buffer)));
        while let Some(gone) = state.gone.pop() {
            state.release(gone);
        }
    }

    #[cold]
    fn reclaim_dropped(&self, state: &mut RootState) {
        self.any_dropped.store(false, Ordering::SeqCst);
        for (index, memory) in std::mem::take(&mut *lock(&self.dropped)) {
            if let Some(gone) = state.heap.drop_handle(index, memory) {
                state.release(gone);
            }
        }
    }

    /// The last handle of a buffer has been dropped.
    pub(crate) fn drop_handle(&self, index: u32, memory: Option<Box<dyn Memory>>) {
        lock(&self.dropped).push((index, memory));
        self.any_dropped.store(true, Ordering::SeqCst);
        self.sleep.room_made();
    }

    /// Queues a task that has become ready.
    ///
    /// Where it must exclude others and cannot yet, it is put aside instead.
    #[inline]
    pub(crate) fn enqueue(&self, ring: &Ring, slot: u32, via: Via<'_>) {
        let traits = ring.slot(slot).traits();
        if traits == Traits::default() {
            self.enqueue_plain(ring, slot, via);
        } else {
            self.enqueue_special(ring, slot, via, traits);
        }
    }

    #[inline]
    fn enqueue_plain(&self, ring: &Ring, slot: u32, via: Via<'_>) {
        match via {
            Via::Submit => self.inbox.push_guarded(slot),
            Via::Lane(lane) => self.lanes[lane].ready.push(slot),
            Via::Parent(parent) => parent.push(&self.children, ring.ready_of(slot)),
        }
    }

    #[inline(never)]
    fn enqueue_special(&self, ring: &Ring, slot: u32, via: Via<'_>, traits: Traits) {
        if traits.has(Traits::HOST) {
            match ring.slot(slot).grant() {
                true => self.sleep.alarm(),
                false => self.enqueue_owned(ring, slot, via),
            }
        } else if !traits.has(Traits::EXCLUSIVE) || ring.exclude(slot) {
            self.enqueue_owned(ring, slot, via);
        }
    }

    /// As [`Shared::enqueue`], for a task that excludes whom it must.
    #[inline]
    pub(crate) fn enqueue_owned(&self, ring: &Ring, slot: u32, via: Via<'_>) {
        let is_queued = ring.slot(slot).traits().has(Traits::QUEUED);
        if !is_queued || matches!(via, Via::Parent(_)) {
            return self.enqueue_plain(ring, slot, via);
        }
        let ready = ring.ready_of(slot);
        self.queue.push(ready);
        self.sleep.work_arrived();
        if ready.blocks > 1 {
            self.sleep.wake(ready.blocks - 1);
        }
    }

    /// Whether there is anything to run, in any queue. To be believed by a sleeper that has
    /// announced itself.
    pub(crate) fn has_work(&self) -> bool {
        self.inbox.len() > 0
            || self.queue.len() > 0
            || self.children.ready() > 0
            || self.lanes.iter().any(|lane| lane.ready.len() > 0)
    }

    /// Whether all that could be run now is what was submitted lately.
    pub(crate) fn has_only_submitted(&self) -> bool {
        self.inbox.len() > 0
            && self.queue.len() == 0
            && self.children.ready() == 0
            && self.lanes.iter().all(|lane| lane.ready.len() == 0)
    }

    /// Tasks that are ready, about.
    pub(crate) fn ready_count(&self) -> usize {
        let lanes: usize = self.lanes.iter().map(|lane| lane.ready.len()).sum();
        self.inbox.len() + self.queue.len() + self.children.ready() + lanes
    }

    /// Tasks that have ended.
    pub(crate) fn ended(&self) -> u64 {
        let lanes: u64 = self.lanes.iter().map(|lane| lane.done.pushed()).sum();
        lanes + self.ended_outside.load(Ordering::SeqCst)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.sleep.alarm();
    }

    /// Returns `true` if the stream was stopped and all of its tasks have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst) && {
            let mut state = self.lock();
            self.reclaim(&mut state);
            state.table.tasks().now == 0
        }
    }
}

/// A cancelled scope wakes those who wait for it.
impl Wake for Shared {
    fn wake(&self) {
        self.sleep.alarm();
    }
}

impl RootState {
    /// Holds the buffers of a task, in `held` for the table. Arguments in a row that share a buffer
    /// hold it once.
    #[inline]
    pub(crate) fn hold_buffers(&mut self, spec: &TaskSpec) {
        self.held.clear();
        for place in &spec.places {
            if self.held.last() != Some(&place.buffer) {
                self.held.push(place.buffer);
                self.heap.hold(place.buffer);
            }
        }
    }

    /// Discovery forgets a buffer that has gone.
    pub(crate) fn release(&mut self, Gone { id: buffer, memory }: Gone) {
        self.spent.extend(memory);
        let released = self.table.submitter.release_buffer(buffer);
        debug_assert!(released.is_ok(), "{buffer} is released once");
        if let Some(capture) = &mut self.capture {
            capture.release(buffer);
        }
    }

    /// Discovery learns of a buffer.
    pub(crate) fn declare(&mut self, buffer: BufferId, bytes: u64) {
        let declared = self.table.submitter.declare_buffer(buffer, bytes);
        debug_assert!(declared.is_ok(), "{buffer} is declared once");
        if let Some(capture) = &mut self.capture {
            capture.buffer(buffer, bytes);
        }
    }
}
