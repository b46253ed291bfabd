//! The queue between those who submit to a CPU lane and its worker.
//!
//! Submitters push under a lock; the worker takes everything at once, so that the lock is taken once for many batches
//! when there are many. A worker that finds nothing looks a little longer, then sleeps; who pushes next wakes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sync::{WaitWord, spins};
use crate::{DeviceError, Kernel, LaneInfo, Point, Timeline, TimelineOwner, Work};

pub(super) struct Queue {
    pub(super) info: LaneInfo,
    state: Mutex<State>,
    /// The value pushed last: what an idle worker looks at without the lock.
    pushed: AtomicU64,
    closing: AtomicBool,
    /// Reaches 1 when the lane closes, for a worker that waits for somebody else's point.
    stop: Timeline,
    sleep: WaitWord,
}

struct State {
    items: Vec<Item>,
    owner: Arc<TimelineOwner>,
    value_last: u64,
    failed: Option<DeviceError>,
    worker_sleeps: bool,
}

/// What was submitted, and the value that says it has completed.
pub(super) struct Item {
    pub(super) job: Job,
    pub(super) value: u64,
}

impl State {
    fn next_point(&mut self) -> Point {
        self.value_last += 1;
        self.owner.timeline().point(self.value_last)
    }
}

/// Small, since a queue may grow long.
pub(super) enum Job {
    Batch(Box<Work>),
    /// A kernel without arguments, waits or signals, submitted several times in a row. Repeats cost no memory, and no
    /// reference count that the worker and the submitter would take from each other.
    Repeated {
        kernel: Kernel,
        times: u64,
    },
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
            State { items: Vec::new(), owner, value_last: 0, failed: None, worker_sleeps: false };
        Self {
            stop: Timeline::new("stop", 0),
            info,
            state: Mutex::new(state),
            pushed: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            sleep: WaitWord::new(),
        }
    }

    /// Adds work, and returns the point at which it will have completed.
    pub(super) fn push(&self, mut work: Box<Work>) -> Result<Point, DeviceError> {
        let mut state = self.lock_open(work.task.as_ref())?;
        self.drop_own_waits(&state, &mut work.waits)?;
        let point = state.next_point();
        state.items.push(Item { job: Job::Batch(work), value: point.value() });
        self.announce(state);
        Ok(point)
    }

    /// Adds one more run of a kernel without arguments.
    pub(super) fn push_bare(&self, kernel: &Kernel) -> Result<Point, DeviceError> {
        let mut state = self.lock_open(None)?;
        let point = state.next_point();
        match state.items.last_mut() {
            Some(Item { job: Job::Repeated { kernel: last, times }, value })
                if last.key() == kernel.key() =>
            {
                *times += 1;
                *value = point.value();
            }
            _ => {
                let job = Job::Repeated { kernel: kernel.clone(), times: 1 };
                state.items.push(Item { job, value: point.value() });
            }
        }
        self.announce(state);
        Ok(point)
    }

    /// The state of a lane that takes work.
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

    /// Lets the worker know, whether it looks or sleeps.
    fn announce(&self, mut state: MutexGuard<'_, State>) {
        self.pushed.store(state.value_last, Ordering::Relaxed);
        let wake = std::mem::take(&mut state.worker_sleeps);
        drop(state);
        if wake {
            self.sleep.bump_and_wake();
        }
    }

    /// Batches of one lane run in order: waits for earlier ones say nothing, one for a later one could never end.
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

    /// Moves all batches into `items`, which is empty, waiting until there are some.
    pub(super) fn take(&self, items: &mut Vec<Item>) -> Taken {
        self.look_for_more();
        loop {
            let mut state = self.lock();
            if self.is_closing() {
                return Taken::Closed;
            }
            if !state.items.is_empty() {
                std::mem::swap(items, &mut state.items);
                return Taken::Items(state.owner.clone());
            }
            // Read under the lock under which a submitter finds `worker_sleeps`: its bump comes after.
            let seen = self.sleep.load();
            state.worker_sleeps = true;
            drop(state);
            self.sleep.wait(seen, None);
        }
    }

    /// Looks for a microsecond or two whether something is pushed.
    fn look_for_more(&self) {
        let before = self.pushed.load(Ordering::Relaxed);
        for _ in 0..spins() {
            if self.pushed.load(Ordering::Relaxed) != before {
                return;
            }
            std::hint::spin_loop();
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
        self.sleep.bump_and_wake();
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
