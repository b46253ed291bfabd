//! The queue between those who submit to a CPU lane and its worker.
//!
//! Submitters push under a lock; the worker takes everything at once, so that the lock is taken
//! once for many batches when there are many. A worker that finds nothing spins for a while, then
//! parks; the next push wakes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use syncline_sync::{CachePadded, EventCount, Spin, lock};

use crate::{DeviceError, LaneInfo, Point, Timeline, TimelineOwner, Work};

pub(super) struct Queue {
    pub(super) info: LaneInfo,
    state: CachePadded<Mutex<State>>,
    /// How many pushes there were: what an idle worker checks without the lock.
    pushes: CachePadded<AtomicU64>,
    closing: AtomicBool,
    /// Reaches 1 when the lane closes, for a worker that waits for somebody else's point.
    stop: Timeline,
    pushed: EventCount,
}

struct State {
    items: Vec<Item>,
    owner: Arc<TimelineOwner>,
    value_last: u64,
    failed: Option<DeviceError>,
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
        let owner = Arc::new(Timeline::owned(&info.name, 0, None));
        let state =
            State { items: Vec::new(), owner, value_last: 0, failed: None, worker_parks: false };
        Self {
            stop: Timeline::new("stop", 0),
            info,
            state: CachePadded::new(Mutex::new(state)),
            pushes: CachePadded::new(AtomicU64::new(0)),
            closing: AtomicBool::new(false),
            pushed: EventCount::new(),
        }
    }

    /// Adds work, and returns the point at which it will have completed.
    pub(super) fn push(&self, mut work: Box<Work>) -> Result<Point, DeviceError> {
        let mut state = self.lock_open(work.task.as_ref())?;
        self.drop_own_waits(&state, &mut work.waits)?;
        state.value_last += 1;
        let point = state.owner.timeline().point(state.value_last);
        state.items.push(Item { work, value: point.value() });
        self.announce(state);
        Ok(point)
    }

    /// The state of a lane that takes work.
    #[inline]
    fn lock_open(&self, task: Option<&Arc<str>>) -> Result<MutexGuard<'_, State>, DeviceError> {
        let state = self.lock();
        if self.is_closing() {
            return Err(DeviceError::Closed { lane: self.info.name.clone() });
        }
        if let Some(cause) = &state.failed {
            return Err(cause.inherited(&self.info.name, task));
        }
        Ok(state)
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

    /// Batches of one lane run in order: waits for earlier ones say nothing, one for a later one
    /// could never end.
    fn drop_own_waits(&self, state: &State, waits: &mut Vec<Point>) -> Result<(), DeviceError> {
        let own = state.owner.timeline().id();
        let latest =
            waits.iter().filter(|wait| wait.timeline().id() == own).map(Point::value).max();
        match latest {
            None => Ok(()),
            Some(value) if value > state.value_last => Err(DeviceError::WaitsForItself {
                lane: self.info.name.clone(),
                current: state.value_last,
                value,
            }),
            Some(_) => {
                waits.retain(|wait| wait.timeline().id() != own);
                Ok(())
            }
        }
    }

    /// Moves all batches into `items`, which is empty, waiting until there are some. `seen` is how
    /// many pushes the worker knows of.
    pub(super) fn take(&self, items: &mut Vec<Item>, seen: &mut u64) -> Taken {
        Spin::queue().until(|| self.pushes.load(Ordering::Relaxed) != *seen);
        loop {
            let mut state = self.lock();
            if self.is_closing() {
                return Taken::Closed;
            }
            *seen = self.pushes.load(Ordering::Relaxed);
            if !state.items.is_empty() {
                std::mem::swap(items, &mut state.items);
                return Taken::Items(state.owner.clone());
            }
            // W1, then W2: the announcement is a flag under the lock (README of event counts).
            let epoch = self.pushed.epoch();
            state.worker_parks = true;
            drop(state);
            self.pushed.park(epoch, None);
        }
    }

    /// Refuses further work and hands over what is queued.
    pub(super) fn fail(&self, cause: &DeviceError) -> Vec<Item> {
        let mut state = self.lock();
        state.failed.get_or_insert_with(|| cause.clone());
        std::mem::take(&mut state.items)
    }

    /// Takes work again after a failure, on a fresh timeline.
    pub(super) fn recover(&self) {
        let mut state = self.lock();
        if state.failed.take().is_some() {
            state.owner = Arc::new(Timeline::owned(&self.info.name, 0, None));
            state.value_last = 0;
        }
    }

    /// Refuses further work, and ends whatever the worker waits for.
    pub(super) fn close(&self) {
        let state = self.lock();
        if self.closing.swap(true, Ordering::Relaxed) {
            return;
        }
        drop(state);
        // Fails only if it was signalled before, which happens once.
        let _ = self.stop.signal(1);
        self.pushed.wake_all();
    }

    /// What is left when the lane closes, and the timeline it will never reach.
    pub(super) fn take_rest(&self) -> (Vec<Item>, Arc<TimelineOwner>) {
        let mut state = self.lock();
        (std::mem::take(&mut state.items), state.owner.clone())
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) -> &Timeline {
        &self.stop
    }

    pub(super) fn last(&self) -> Point {
        let state = self.lock();
        state.owner.timeline().point(state.value_last)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
