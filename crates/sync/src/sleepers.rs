//! Threads that take work, and park while there is none.

use std::time::Instant;

use crate::shim::{AtomicU32, Mutex, Ordering};
use crate::{CachePadded, EventCount, lock};

/// Threads that are parked until each is handed a permit, or all are alarmed.
///
/// A thread without work announces itself, checks once more whether there is some, and then parks
/// or leaves. A thread that brings work stores it, passes a full barrier, and asks
/// [`Sleepers::any`]: one of the two sees the other (`event_count/README.md`).
#[derive(Debug, Default)]
pub struct Sleepers {
    /// Threads that have announced themselves, and that no permit is meant for yet.
    idle: CachePadded<AtomicU32>,
    permits: Mutex<u32>,
    parked: EventCount,
}

impl Sleepers {
    /// Returns `true` if a thread has announced itself.
    #[inline]
    pub fn any(&self) -> bool {
        self.idle.load(Ordering::SeqCst) != 0
    }

    /// Returns how many threads have announced themselves.
    #[inline]
    pub fn count(&self) -> u32 {
        // Relaxed: a hint, or ordered by the caller's barrier.
        self.idle.load(Ordering::Relaxed)
    }

    /// Announces the calling thread, which then checks whether there is work, and goes on with
    /// [`Sleepers::leave`] or [`Sleepers::park`].
    pub fn announce(&self) {
        let _permits = lock(&self.permits);
        self.idle.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes the calling thread off. Returns `true` if it took a permit with it.
    pub fn leave(&self) -> bool {
        let mut permits = lock(&self.permits);
        let has_permit = *permits > 0;
        match has_permit {
            true => *permits -= 1,
            false => _ = self.idle.fetch_sub(1, Ordering::SeqCst),
        }
        has_permit
    }

    /// Parks the calling thread, which has announced itself, until it is handed a permit,
    /// `is_alarmed`, or `deadline` has passed, and takes it off. Returns `true` if it was handed a
    /// permit.
    pub fn park(&self, deadline: Option<Instant>, is_alarmed: impl Fn() -> bool) -> bool {
        loop {
            // Before the check: an event in between keeps this thread awake.
            let epoch = self.parked.epoch();
            let permits = *lock(&self.permits);
            let is_late = || deadline.is_some_and(|at| at <= Instant::now());
            if permits > 0 || is_alarmed() || is_late() {
                return self.leave();
            }
            self.parked.park(epoch, deadline);
        }
    }

    /// Hands permits to up to `count` threads. Returns how many.
    #[cold]
    pub fn wake(&self, count: u32) -> u32 {
        let mut permits = lock(&self.permits);
        let count = count.min(self.idle.load(Ordering::Relaxed));
        self.idle.fetch_sub(count, Ordering::SeqCst);
        *permits += count;
        drop(permits);
        if count > 0 {
            self.parked.wake(count);
        }
        count
    }

    /// Has all threads check their alarms.
    #[cold]
    pub fn alarm(&self) {
        self.parked.wake_all();
    }
}
