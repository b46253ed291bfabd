//! The queue between those who submit to a CPU lane and its worker.
//!
//! Submitters push under a lock; the worker takes everything at once, so that the lock is taken once for many batches
//! when there are many. A worker that finds nothing looks a little longer, then sleeps; who pushes next wakes it. Kernels
//! without arguments that follow each other are one item, a burst, to which runs are added while the worker is at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sync::{WaitWord, spins};
use crate::{DeviceError, Kernel, LaneInfo, Point, Timeline, TimelineOwner, Work};

pub(super) struct Queue {
    pub(super) info: LaneInfo,
    state: Apart<Mutex<State>>,
    /// How many pushes there were: what an idle worker looks at without the lock.
    pushes: Apart<AtomicU64>,
    closing: AtomicBool,
    /// Reaches 1 when the lane closes, for a worker that waits for somebody else's point.
    stop: Timeline,
    sleep: WaitWord,
}

/// On cache lines of its own (two: processors fetch them in pairs): a worker that looks must not take away what a
/// submitter works on.
#[repr(align(128))]
struct Apart<T>(T);

struct State {
    items: Vec<Item>,
    /// The last item, if it is a burst that more runs can be added to.
    open: Option<Arc<Burst>>,
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

    /// The last item takes no more runs.
    fn seal(&mut self) {
        if let Some(burst) = self.open.take() {
            burst.seal();
        }
    }
}

/// Small, since a queue may grow long.
pub(super) enum Job {
    Batch(Box<Work>),
    Burst(Arc<Burst>),
}

/// A kernel without arguments, waits or signals, submitted any number of times in a row.
///
/// One more run is one more count: no memory, no reference count that the worker and the submitter would take from each
/// other, and no lock for a worker that is at it.
pub(super) struct Burst {
    pub(super) kernel: Kernel,
    /// The value of its first run.
    pub(super) first: u64,
    /// How many runs there are, and whether that is all. Written under the queue's lock.
    count: Apart<AtomicU64>,
}

/// No more runs will be added.
const SEALED: u64 = 1 << 63;

impl Burst {
    fn seal(&self) {
        let count = self.count.0.load(Ordering::Relaxed);
        // Not a step of its own: the lock is held. Release: see `Queue::push_bare`.
        self.count.0.store(count | SEALED, Ordering::Release);
    }
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
        let state = State {
            items: Vec::new(),
            open: None,
            owner,
            value_last: 0,
            failed: None,
            worker_sleeps: false,
        };
        Self {
            stop: Timeline::new("stop", 0),
            info,
            state: Apart(Mutex::new(state)),
            pushes: Apart(AtomicU64::new(0)),
            closing: AtomicBool::new(false),
            sleep: WaitWord::new(),
        }
    }

    /// Adds work, and returns the point at which it will have completed.
    pub(super) fn push(&self, mut work: Box<Work>) -> Result<Point, DeviceError> {
        let mut state = self.lock_open(work.task.as_ref())?;
        self.drop_own_waits(&state, &mut work.waits)?;
        let point = state.next_point();
        state.seal();
        state.items.push(Item { job: Job::Batch(work), value: point.value() });
        self.announce(state);
        Ok(point)
    }

    /// Adds one more run of a kernel without arguments.
    pub(super) fn push_bare(&self, kernel: &Kernel) -> Result<Point, DeviceError> {
        let mut state = self.lock_open(None)?;
        let point = state.next_point();
        match &state.open {
            Some(burst) if burst.kernel.key() == kernel.key() => {
                // Release: what the submitter did before is seen by the kernel. The worker is awake: it seals a burst
                // before it leaves it.
                burst.count.0.store(point.value() - burst.first + 1, Ordering::Release);
            }
            _ => {
                state.seal();
                let burst = Arc::new(Burst {
                    kernel: kernel.clone(),
                    first: point.value(),
                    count: Apart(AtomicU64::new(1)),
                });
                state.open = Some(burst.clone());
                state.items.push(Item { job: Job::Burst(burst), value: point.value() });
                self.announce(state);
            }
        }
        Ok(point)
    }

    /// How many runs `burst` has, once there are more than `done`; `None` when there will be no more.
    pub(super) fn more_of(&self, burst: &Arc<Burst>, done: u64) -> Option<u64> {
        let count = || burst.count.0.load(Ordering::Acquire);
        let is_decided = |count: u64| count & !SEALED > done || count & SEALED != 0;
        if !is_decided(count()) {
            look(|| is_decided(count()));
        }
        if !is_decided(count()) {
            let mut state = self.lock();
            // Nobody adds to it while the lock is held, and afterwards nobody can.
            if !is_decided(count()) {
                state.seal();
            }
        }
        Some(count() & !SEALED).filter(|&count| count > done)
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

    /// Lets the worker know, whether it looks or sleeps.
    fn announce(&self, mut state: MutexGuard<'_, State>) {
        // Not a step of its own: the lock is held.
        let pushes = self.pushes.0.load(Ordering::Relaxed);
        self.pushes.0.store(pushes + 1, Ordering::Relaxed);
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

    /// Moves all batches into `items`, which is empty, waiting until there are some. `seen` is how many pushes the worker
    /// knows of.
    pub(super) fn take(&self, items: &mut Vec<Item>, seen: &mut u64) -> Taken {
        look(|| self.pushes.0.load(Ordering::Relaxed) != *seen);
        loop {
            let mut state = self.lock();
            if self.is_closing() {
                return Taken::Closed;
            }
            *seen = self.pushes.0.load(Ordering::Relaxed);
            if !state.items.is_empty() {
                std::mem::swap(items, &mut state.items);
                return Taken::Items(state.owner.clone());
            }
            // Read under the lock under which a submitter finds `worker_sleeps`: its bump comes after.
            let ticket = self.sleep.load();
            state.worker_sleeps = true;
            drop(state);
            self.sleep.wait(ticket, None);
        }
    }

    /// Refuses further work and hands over what is queued.
    pub(super) fn fail(&self, cause: &DeviceError) -> Vec<Item> {
        let mut state = self.lock();
        state.failed.get_or_insert_with(|| cause.clone());
        state.seal();
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
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pauses between two looks: a fraction of a microsecond. Each look takes a cache line from whoever submits; between
/// looks one who submits many small batches gets several of them in.
pub(super) const PAUSES: u32 = 8;

pub(super) fn pause(times: u32) {
    (0..times).for_each(|_| std::hint::spin_loop());
}

/// Looks for a few microseconds whether something has come.
fn look(mut has_come: impl FnMut() -> bool) {
    for _ in 0..spins() / PAUSES {
        pause(PAUSES);
        if has_come() {
            return;
        }
    }
}
