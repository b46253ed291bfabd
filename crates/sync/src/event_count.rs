//! Event counts: threads park until something may have changed.

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::shim::{AtomicU32, Ordering};
use crate::{Spin, barrier, blocking};

/// A count that moves with every event, and on which threads park.
///
/// A thread that waits reads the count, announces that it may park, checks its condition, and parks
/// unless the count has moved. A thread that changes something wakes the threads that announced
/// themselves. `README.md` beside `event_count.rs` has the steps, and the proof that no wake-up is
/// lost.
///
/// Announcing takes one of three forms:
/// - [`EventCount::wait_until`] counts its callers, and [`EventCount::notify`] wakes them if there
///   are any;
/// - the caller has its own: a flag under a lock that the waking thread takes too, or a bit in the
///   word that it changes; it calls [`EventCount::park`], and [`EventCount::wake_all`] where the
///   announcement was found;
/// - none: [`EventCount::wake_all`] after every change.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use syncline_sync::{EventCount, Spin};
///
/// let (done, changed) = (AtomicU64::new(0), EventCount::new());
/// std::thread::scope(|threads| {
///     threads.spawn(|| {
///         done.store(1, Ordering::Release);
///         changed.notify();
///     });
///     changed.wait_until(Spin::NONE, None, || done.load(Ordering::Acquire) == 1);
/// });
/// ```
///
/// With [`AcrossProcesses`] it is eight bytes that may lie in memory shared between processes;
/// all-zero bytes are an event count on which nothing has happened. A process that is killed while
/// it parks stays counted, which costs others a needless system call at each event.
#[repr(C)]
pub struct EventCount<S: Sharing = OneProcess> {
    epoch: AtomicU32,
    /// Threads that have announced themselves here, or are parked.
    waiters: AtomicU32,
    #[cfg(any(loom, shuttle, not(target_os = "linux")))]
    condition: (crate::shim::Mutex<()>, crate::shim::Condvar),
    sharing: PhantomData<S>,
}

/// Who may park on an event count: [`OneProcess`] or [`AcrossProcesses`].
pub trait Sharing: sealed::Sealed {}

/// Threads of one process.
#[derive(Clone, Copy, Debug)]
pub enum OneProcess {}

/// Threads of any process that has the event count in its memory.
#[cfg(any(target_os = "linux", loom, shuttle))]
#[derive(Clone, Copy, Debug)]
pub enum AcrossProcesses {}

mod sealed {
    #[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
    use rustix::thread::futex::Flags;

    pub trait Sealed {
        /// The system finds parked threads by page rather than by address if this is empty.
        #[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
        const FLAGS: Flags;
    }

    impl Sealed for super::OneProcess {
        #[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
        const FLAGS: Flags = Flags::PRIVATE;
    }

    #[cfg(any(target_os = "linux", loom, shuttle))]
    impl Sealed for super::AcrossProcesses {
        #[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
        const FLAGS: Flags = Flags::empty();
    }
}

impl Sharing for OneProcess {}
#[cfg(any(target_os = "linux", loom, shuttle))]
impl Sharing for AcrossProcesses {}

/// [`EventCount::wait_until`] checks again after this time even if it is not woken: a bound on what
/// a fault of a kernel could cost.
const PARK_MAX: Duration = Duration::from_millis(100);

impl<S: Sharing> EventCount<S> {
    /// An event count on which no thread is parked.
    pub fn new() -> Self {
        Self {
            epoch: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            #[cfg(any(loom, shuttle, not(target_os = "linux")))]
            condition: Default::default(),
            sharing: PhantomData,
        }
    }

    /// Returns the count (W1). Read it before announcing and checking.
    #[inline]
    pub fn epoch(&self) -> u32 {
        // Acquire: a thread that sees the count moved sees the change, too.
        self.epoch.load(Ordering::Acquire)
    }

    /// Parks while the count is `epoch` (W4), until `deadline` at the latest. May return early.
    pub fn park(&self, epoch: u32, deadline: Option<Instant>) {
        let _blocks = blocking::section();
        self.waiters.fetch_add(1, Ordering::SeqCst);
        barrier::fence_after_exchange();
        self.park_counted(epoch, deadline);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Moves the count (N3) and wakes all threads that are parked (N4).
    #[inline]
    pub fn wake_all(&self) {
        self.wake(i32::MAX as u32);
    }

    /// Moves the count (N3) and wakes up to `count` threads that are parked (N4). Threads that
    /// have read the count and are not parked yet return from [`EventCount::park`] at once.
    #[inline]
    pub fn wake(&self, count: u32) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        // README, "Not counted yet".
        barrier::fence_after_exchange();
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.unpark(count);
        }
    }

    #[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
    #[cold]
    fn unpark(&self, count: u32) {
        // Fails for an address that is not mapped only.
        let _ = rustix::thread::futex::wake(&self.epoch, S::FLAGS, count);
    }

    /// Parks while the count is `epoch`: one step with respect to `unpark`.
    #[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
    fn park_counted(&self, epoch: u32, deadline: Option<Instant>) {
        let left = deadline.map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            rustix::thread::Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX / 4),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        // Moved already, interrupted, timed out: in every case the caller checks again.
        let _ = rustix::thread::futex::wait(&self.epoch, S::FLAGS, epoch, left.as_ref());
    }

    #[cfg(any(loom, shuttle, not(target_os = "linux")))]
    fn unpark(&self, _count: u32) {
        let _guard = crate::lock(&self.condition.0);
        self.condition.1.notify_all();
    }

    /// As the futex does it. There is no time in a model, so that a lost wake-up shows as a thread
    /// that is parked for ever.
    #[cfg(any(loom, shuttle, not(target_os = "linux")))]
    fn park_counted(&self, epoch: u32, deadline: Option<Instant>) {
        let guard = crate::lock(&self.condition.0);
        if self.epoch.load(Ordering::Relaxed) != epoch {
            return;
        }
        match deadline.filter(|_| !cfg!(any(loom, shuttle))) {
            None => drop(self.condition.1.wait(guard)),
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                drop(self.condition.1.wait_timeout(guard, left));
            }
        }
    }
}

/// Announcing by the event count itself, within one process: the barrier has two halves.
impl EventCount {
    /// Wakes the threads in [`EventCount::wait_until`], if there are any. Call it after the change
    /// that they wait for.
    #[inline]
    pub fn notify(&self) {
        // N2. The light half, since the other one is in `wait_until`.
        barrier::light();
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.notify_waiters();
        }
    }

    #[cold]
    fn notify_waiters(&self) {
        self.wake_all();
    }

    /// Waits until `condition` holds. Returns `false` if `deadline` passed first.
    #[cold]
    pub fn wait_until(
        &self,
        spin: Spin,
        deadline: Option<Instant>,
        mut condition: impl FnMut() -> bool,
    ) -> bool {
        if spin.until(&mut condition) {
            return true;
        }
        loop {
            let now = Instant::now();
            if deadline.is_some_and(|at| at <= now) {
                return false;
            }
            let _blocks = blocking::section();
            let longest = now + PARK_MAX;
            // W1 to W4, and the check again.
            let epoch = self.epoch();
            self.waiters.fetch_add(1, Ordering::SeqCst);
            barrier::heavy();
            let holds = condition();
            if !holds {
                self.park_counted(epoch, Some(deadline.map_or(longest, |at| at.min(longest))));
            }
            self.waiters.fetch_sub(1, Ordering::SeqCst);
            if holds || condition() {
                return true;
            }
        }
    }
}

impl<S: Sharing> Default for EventCount<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Sharing> fmt::Debug for EventCount<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventCount")
    }
}
