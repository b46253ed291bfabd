//! Progress of one lane, and waiting for it.

use syncline_device::Deadline;

use super::bell::{Bell, Patience};
use super::sync::{AtomicU64, Ordering};

/// What the count of started runs says when there will be no more: larger than any run's number, so
/// that it ends every wait for one.
pub const CLOSING: u64 = u64::MAX;

/// A count that only grows, in cache lines of its own (two: processors fetch them in pairs).
#[derive(Debug)]
#[repr(align(128))]
pub struct Progress {
    count: AtomicU64,
    bell: Bell,
}

impl Default for Progress {
    fn default() -> Self {
        Self::starting_at(0)
    }
}

impl Progress {
    pub fn starting_at(count: u64) -> Self {
        Self { count: AtomicU64::new(count), bell: Bell::new() }
    }

    /// The count.
    #[inline]
    pub fn get(&self) -> u64 {
        // Acquire: what was done before the count was published is seen by whoever sees the count.
        self.count.load(Ordering::Acquire)
    }

    /// Raises the count to `value` and wakes those that sleep. Only one thread may publish at a
    /// time, and another only after it has seen all that this one publishes.
    #[inline]
    pub fn publish(&self, value: u64) {
        debug_assert!(self.count.load(Ordering::Relaxed) <= value, "a count only grows");
        // P1 of the protocol.
        self.count.store(value, Ordering::Release);
        self.bell.ring();
    }

    /// As [`Progress::publish`] where several threads may, and a late one must not take back what
    /// another said.
    pub fn publish_max(&self, value: u64) {
        self.count.fetch_max(value, Ordering::AcqRel);
        self.bell.ring();
    }

    /// Waits until the count is at least `value`.
    #[inline]
    pub fn wait(&self, value: u64, patience: Patience) {
        if self.get() < value {
            self.bell.wait(patience, || self.get() >= value);
        }
    }

    /// As [`Progress::wait`], until the deadline at most. Returns `false` if it passed first.
    pub fn wait_until(&self, value: u64, patience: Patience, deadline: Deadline) -> bool {
        self.get() >= value || self.bell.wait_until(patience, deadline, || self.get() >= value)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Two threads hand a count back and forth, never spinning, so that every hand-over is a sleep
    /// and a wake-up.
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
