//! Progress of one lane, and waiting for it. `README.md` beside this file has the argument.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::futex;

/// How often a waiter looks before it goes to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Looks with a pause instruction between them.
    pub spins: u32,
    /// Then looks with the time slice given away between them.
    pub yields: u32,
}

impl Patience {
    /// For `lanes` lanes: with a core for each, what is waited for comes soon, and waking takes longer than looking.
    /// With fewer cores, looking takes the core from the one that is waited for.
    pub fn for_lanes(lanes: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if lanes <= cores {
            Self { spins: 2_000, yields: 20 }
        } else {
            Self { spins: 20, yields: 4 }
        }
    }
}

/// A count that only grows, in cache lines of its own (two: processors fetch them in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Progress {
    count: AtomicU64,
    sleepers: AtomicU32,
    wake: AtomicU32,
}

impl Progress {
    /// A sleeper looks again after this time even if nobody wakes it: a bound on what a kernel's hiccup could cost.
    const NAP: Duration = Duration::from_millis(100);

    /// The count.
    #[inline]
    pub fn get(&self) -> u64 {
        // Acquire: what was done before the count was published is seen by whoever sees the count.
        self.count.load(Ordering::Acquire)
    }

    /// Raises the count to `value` and wakes those that sleep.
    #[inline]
    pub fn publish(&self, value: u64) {
        // P1 and P2 of the protocol.
        self.count.store(value, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        self.wake.fetch_add(1, Ordering::SeqCst);
        // An error would mean a bad address or flag, neither of which can be; and sleepers look again by themselves.
        let _ = futex::wake(&self.wake, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    /// Waits until the count is at least `value`.
    #[inline]
    pub fn wait(&self, value: u64, patience: Patience) {
        if self.get() < value {
            self.wait_long(value, patience);
        }
    }

    #[cold]
    fn wait_long(&self, value: u64, patience: Patience) {
        for _ in 0..patience.spins {
            std::hint::spin_loop();
            if self.get() >= value {
                return;
            }
        }
        for _ in 0..patience.yields {
            std::thread::yield_now();
            if self.get() >= value {
                return;
            }
        }
        self.sleep_until(value);
    }

    fn sleep_until(&self, value: u64) {
        while !self.nap(value, Self::NAP) {}
    }

    /// Sleeps until the count may have changed, `longest` at most; whether it is at least `value`.
    fn nap(&self, value: u64, longest: Duration) -> bool {
        let longest = rustix::time::Timespec {
            tv_sec: longest.as_secs() as _,
            tv_nsec: longest.subsec_nanos() as _,
        };
        // S1 to S4 of the protocol.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let ticket = self.wake.load(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) < value {
            // Woken, timed out, interrupted, or the ticket was old: in every case, look again.
            let _ = futex::wait(&self.wake, futex::Flags::PRIVATE, ticket, Some(&longest));
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        self.get() >= value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Two threads hand a count back and forth, never spinning, so that every hand-over is a sleep and a wake-up.
    #[test]
    fn no_wake_up_is_lost() {
        let patience = Patience { spins: 0, yields: 0 };
        let sides = Arc::new([Progress::default(), Progress::default()]);
        let other = Arc::clone(&sides);
        let rounds = 2_000;
        let thread = std::thread::spawn(move || {
            for round in 1..=rounds {
                other[0].wait(round, patience);
                other[1].publish(round);
            }
        });
        for round in 1..=rounds {
            sides[0].publish(round);
            sides[1].wait(round, patience);
        }
        thread.join().unwrap();
    }
}
