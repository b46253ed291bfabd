//! The queue between threads that submit to a CPU lane and its worker.
//!
//! Submitters push under a lock; the worker takes everything at once, so that the lock is taken
//! once for many batches when there are many. A worker that finds nothing spins for a while, then
//! parks; the next push wakes it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use syncline_sync::{CachePadded, EventCount, Spin, lock};

use crate::lane::{LaneCore, host_timeline};
use crate::{DeviceError, LaneInfo, Point, Timeline, TimelineOwner, Work};

pub(super) struct Queue {
    pub(super) info: LaneInfo,
    state: CachePadded<Mutex<State>>,
    /// How many pushes there were: what an idle worker checks without the lock.
    pushes: CachePadded<AtomicU64>,
    /// Reaches 1 when the lane closes, for a worker that waits for another lane's point.
    stop: Timeline,
    pushed: EventCount,
}

struct State {
    core: LaneCore<Item>,
    worker_parks: bool,
}

/// What was submitted, and the value that says it has completed. Small, since a queue may grow
/// long.
pub(super) struct Item {
    pub(super) work: Box<Work>,
    pub(super) value: u64,
}

/// What the worker found.
pub(super) enum Taken {
    /// Batches, in the list that it passed, and the timeline on which they complete.
    Items(Arc<TimelineOwner>),
    /// The lane closes.
    Closed,
}

impl Queue {
    pub(super) fn new(info: LaneInfo) -> Self {
        let core = LaneCore::new(&info.name, host_timeline(&info.name));
        Self {
            stop: Timeline::new("stop", 0),
            info,
            state: CachePadded::new(Mutex::new(State { core, worker_parks: false })),
            pushes: CachePadded::new(AtomicU64::new(0)),
            pushed: EventCount::new(),
        }
    }

    /// Adds work, and returns the point at which it will have completed. Leaves refused work.
    pub(super) fn push(&self, work: &mut Work) -> Result<Point, DeviceError> {
        let mut taken = Box::<Work>::default();
        let mut state = self.lock();
        let point = state.core.admit(&mut work.waits, work.task.as_ref())?;
        std::mem::swap(&mut *taken, work);
        state.core.pending.push_back(Item { work: taken, value: point.value() });
        self.announce(state);
        Ok(point)
    }

    /// Lets the worker know, whether it spins or is parked.
    fn announce(&self, mut state: MutexGuard<'_, State>) {
        // Not a step of its own: the lock is held.
        let pushes = self.pushes.load(Ordering::Relaxed);
        self.pushes.store(pushes + 1, Ordering::Relaxed);
        let wake = std::mem::take(&mut state.worker_parks);
        drop(state);
        if wake {
            self.pushed.wake_all();
        }
    }

    /// Moves all batches into `items`, which is empty, waiting until there are some. `seen` is how
    /// many pushes the worker knows of.
    pub(super) fn take(&self, items: &mut VecDeque<Item>, seen: &mut u64) -> Taken {
        Spin::queue().until(|| self.pushes.load(Ordering::Relaxed) != *seen);
        loop {
            let mut state = self.lock();
            if state.core.is_closing() {
                return Taken::Closed;
            }
            *seen = self.pushes.load(Ordering::Relaxed);
            if !state.core.pending.is_empty() {
                std::mem::swap(items, &mut state.core.pending);
                return Taken::Items(state.core.owner().clone());
            }
            // W1, then W2: the announcement is a flag under the lock (README of event counts).
            let epoch = self.pushed.epoch();
            state.worker_parks = true;
            drop(state);
            self.pushed.park(epoch, None);
        }
    }

    /// Refuses further work and hands over what is queued.
    pub(super) fn fail(&self, cause: &DeviceError) -> VecDeque<Item> {
        self.lock().core.poison(cause)
    }

    /// Takes work again after a failure, on a fresh timeline.
    pub(super) fn recover(&self) {
        self.lock().core.recover(|name| Ok(host_timeline(name)));
    }

    /// Refuses further work, and ends the worker's waits.
    pub(super) fn close(&self) {
        if !self.lock().core.close() {
            return;
        }
        // Fails only if it was signalled before, which happens once.
        let _ = self.stop.signal(1);
        self.pushed.wake_all();
    }

    /// What is left when the lane closes, and the timeline it will never reach.
    pub(super) fn take_rest(&self) -> (VecDeque<Item>, Arc<TimelineOwner>) {
        let mut state = self.lock();
        (std::mem::take(&mut state.core.pending), state.core.owner().clone())
    }

    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        self.stop.has_reached(1)
    }

    pub(super) fn stop(&self) -> &Timeline {
        &self.stop
    }

    pub(super) fn last(&self) -> Point {
        self.lock().core.last()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
