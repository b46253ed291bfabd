//! The queue of a CPU lane, and what it stands at.
//!
//! A lane is data: batches in order, and a stage. Submitters push under a lock; a lane with batches
//! is *ready*, and a worker takes it from the device's list, runs a share of its batches, and puts
//! it back. A batch that waits for a point is kept with a watch on that point, which makes the lane
//! ready again; meanwhile no thread runs it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{ThreadId, current};

use syncline_sync::shim::{Mutex, MutexGuard};
use syncline_sync::{CachePadded, EventCount, lock};

use super::ready::ReadyLanes;
use crate::lane::{LaneCore, host_timeline};
use crate::{DeviceError, LaneInfo, Point, PointStatus, TimelineOwner, Wake, Watch, Work};

pub(super) struct Queue {
    pub(super) info: LaneInfo,
    ready: Arc<ReadyLanes>,
    state: CachePadded<Mutex<State>>,
    /// Set when the lane closes, for the thread that runs it.
    is_closing: AtomicBool,
    /// Moves when a thread leaves a lane that closes.
    left: EventCount,
    /// Makes the lane ready when a point is reached that it waits for.
    waker: Arc<LaneWaker>,
}

struct State {
    core: LaneCore<Item>,
    stage: Stage,
    /// Batches that a worker took and has not begun.
    taken: VecDeque<Item>,
    waits: Option<Waiting>,
    /// A point was reached while the lane was running, perhaps the one that it is about to wait
    /// for.
    was_woken: bool,
}

/// Who has a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No thread: there is nothing to do, or a watch will tell.
    Idle,
    /// The list of ready lanes.
    Ready,
    /// A thread.
    Running(ThreadId),
    /// No thread any more.
    Closed,
}

/// What was submitted, and the value that says it has completed. Small, since a queue may grow
/// long.
pub(super) struct Item {
    pub(super) work: Box<Work>,
    pub(super) value: u64,
}

/// A batch that waits, and for what.
pub(super) struct Waiting {
    pub(super) item: Item,
    /// How many of its points were reached.
    pub(super) reached: usize,
    /// Makes the lane ready again.
    pub(super) _watch: Watch,
}

/// The batches that a thread runs which has taken a lane.
pub(super) struct Taken {
    pub(super) items: VecDeque<Item>,
    pub(super) waiting: Option<Waiting>,
    /// The timeline on which they complete.
    pub(super) owner: Arc<TimelineOwner>,
}

/// Makes a lane ready when a point may have been reached.
struct LaneWaker(Weak<Queue>);

impl Wake for LaneWaker {
    fn wake(&self) {
        if let Some(queue) = self.0.upgrade() {
            queue.wake();
        }
    }
}

impl Queue {
    pub(super) fn new(info: LaneInfo, ready: &Arc<ReadyLanes>) -> Arc<Self> {
        let core = LaneCore::new(&info.name, host_timeline(&info.name));
        let (taken, waits) = (VecDeque::new(), None);
        let state = State { core, stage: Stage::Idle, taken, waits, was_woken: false };
        Arc::new_cyclic(|own| Self {
            info,
            ready: ready.clone(),
            state: CachePadded::new(Mutex::new(state)),
            is_closing: AtomicBool::new(false),
            left: EventCount::new(),
            waker: Arc::new(LaneWaker(own.clone())),
        })
    }

    /// Adds work, and returns the point at which it will have completed. Leaves refused work.
    pub(super) fn push(self: &Arc<Self>, work: &mut Work) -> Result<Point, DeviceError> {
        let mut taken = Box::<Work>::default();
        let mut state = self.lock();
        let point = state.core.admit(&mut work.waits, work.task.as_ref())?;
        std::mem::swap(&mut *taken, work);
        state.core.pending.push_back(Item { work: taken, value: point.value() });
        // A batch that waits holds up what is behind it.
        if state.stage == Stage::Idle && state.waits.is_none() {
            self.make_ready(state);
        }
        Ok(point)
    }

    fn make_ready(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        state.stage = Stage::Ready;
        drop(state);
        self.ready.push(self.clone());
    }

    fn wake(self: &Arc<Self>) {
        let mut state = self.lock();
        match state.stage {
            Stage::Idle if state.waits.is_some() => self.make_ready(state),
            Stage::Running(_) => state.was_woken = true,
            _ => {}
        }
    }

    /// Takes the lane from the list of ready lanes, for the calling thread. Returns `None`
    /// if it was closed meanwhile.
    pub(super) fn take(&self) -> Option<Taken> {
        let mut state = self.lock();
        if state.stage != Stage::Ready {
            return None;
        }
        state.stage = Stage::Running(current().id());
        Some(Self::take_rest(&mut state))
    }

    fn take_rest(state: &mut State) -> Taken {
        let mut items = std::mem::take(&mut state.taken);
        if items.is_empty() {
            std::mem::swap(&mut items, &mut state.core.pending);
        } else {
            items.append(&mut state.core.pending);
        }
        state.was_woken = false;
        Taken { items, waiting: state.waits.take(), owner: state.core.owner().clone() }
    }

    /// Leaves a lane that has `items` left, or nothing. Returns the rest if the lane was closed:
    /// the caller, which still has the lane, gives that up.
    pub(super) fn leave(self: &Arc<Self>, items: VecDeque<Item>) -> Option<Taken> {
        let mut state = self.lock();
        state.taken = items;
        if state.core.is_closing() {
            return Some(Self::take_rest(&mut state));
        }
        if state.taken.is_empty() && state.core.pending.is_empty() {
            state.stage = Stage::Idle;
        } else {
            self.make_ready(state);
        }
        None
    }

    /// Leaves a lane that waits, with `items` behind that; returns both if the point was reached or
    /// the lane closed meanwhile, so that the caller goes on.
    pub(super) fn leave_waiting(
        &self,
        waiting: Waiting,
        items: VecDeque<Item>,
    ) -> Result<(), (Waiting, VecDeque<Item>)> {
        let mut state = self.lock();
        if std::mem::take(&mut state.was_woken) || state.core.is_closing() {
            return Err((waiting, items));
        }
        state.taken = items;
        state.waits = Some(waiting);
        state.stage = Stage::Idle;
        Ok(())
    }

    /// Notes that the calling thread has given up all batches of the closed lane.
    pub(super) fn end(&self) {
        self.lock().stage = Stage::Closed;
        self.left.wake_all();
    }

    /// Watches `point`. Returns `None` if it is decided.
    pub(super) fn watch(&self, point: &Point) -> Option<Watch> {
        let watch = point.watch(self.waker.clone());
        (watch.look() == PointStatus::Pending).then_some(watch)
    }

    /// Refuses further work and hands over the queued batches.
    pub(super) fn fail(&self, cause: &DeviceError) -> VecDeque<Item> {
        self.lock().core.poison(cause)
    }

    /// Takes work again after a failure, on a fresh timeline.
    pub(super) fn recover(&self) {
        self.lock().core.recover(|name| Ok(host_timeline(name)));
    }

    /// Refuses further work. Returns what was queued, if no thread runs the lane: the caller gives
    /// it up and calls [`Queue::end`].
    pub(super) fn close(&self) -> Option<Taken> {
        let mut state = self.lock();
        if !state.core.close() {
            return None;
        }
        self.is_closing.store(true, Ordering::Release);
        if let Stage::Running(_) = state.stage {
            return None;
        }
        state.stage = Stage::Running(current().id());
        Some(Self::take_rest(&mut state))
    }

    /// Waits until no other thread runs the lane, which was closed.
    pub(super) fn join(&self) {
        loop {
            let epoch = self.left.epoch();
            match self.lock().stage {
                Stage::Running(thread) if thread != current().id() => {}
                _ => return,
            }
            self.left.park(epoch, None);
        }
    }

    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    pub(super) fn last(&self) -> Point {
        self.lock().core.last()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
