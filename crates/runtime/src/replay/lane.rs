//! Progress of one lane, and waiting for it.

use syncline_device::Deadline;
use syncline_sync::shim::{AtomicU64, Ordering};
use syncline_sync::{CachePadded, EventCount, Spin};

/// What the count of started runs says when there will be no more: larger than any run's number, so
/// that it ends every wait for one.
pub const CLOSING: u64 = u64::MAX;

/// A count that only grows, and the threads that wait for it.
#[derive(Debug)]
pub struct Progress(CachePadded<Count>);

#[derive(Debug)]
struct Count {
    count: AtomicU64,
    changed: EventCount,
}

impl Default for Progress {
    fn default() -> Self {
        Self::starting_at(0)
    }
}

impl Progress {
    pub fn starting_at(count: u64) -> Self {
        Self(CachePadded::new(Count { count: AtomicU64::new(count), changed: EventCount::new() }))
    }

    /// The count.
    #[inline]
    pub fn get(&self) -> u64 {
        // Acquire: what was done before the count was published is seen by whoever sees the count.
        self.0.count.load(Ordering::Acquire)
    }

    /// Raises the count to `value` and wakes the threads that wait for it. Only one thread may
    /// publish at a time, and another only after it has seen all that this one publishes.
    #[inline]
    pub fn publish(&self, value: u64) {
        debug_assert!(self.0.count.load(Ordering::Relaxed) <= value, "a count only grows");
        // Before the event (N1).
        self.0.count.store(value, Ordering::Release);
        self.0.changed.notify();
    }

    /// As [`Progress::publish`] where several threads may, and a late one must not take back what
    /// another said.
    pub fn publish_max(&self, value: u64) {
        self.0.count.fetch_max(value, Ordering::AcqRel);
        self.0.changed.notify();
    }

    /// Waits until the count is at least `value`.
    #[inline]
    pub fn wait(&self, value: u64, spin: Spin) {
        if self.get() < value {
            self.0.changed.wait_until(spin, None, || self.get() >= value);
        }
    }

    /// As [`Progress::wait`], until the deadline at most. Returns `false` if it passed first.
    pub fn wait_until(&self, value: u64, spin: Spin, deadline: Deadline) -> bool {
        self.get() >= value
            || self.0.changed.wait_until(spin, deadline.instant(), || self.get() >= value)
    }
}
