//! Bells: a count to sleep on, across threads and processes alike.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

/// A count that waiters sleep on until it moves.
///
/// All-zero memory is a bell that has never rung. It may lie in memory shared between processes:
/// the futex flags are empty, so that the kernel goes by the page and not by the address.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Bell {
    count: AtomicU32,
    sleepers: AtomicU32,
}

impl Bell {
    /// The count now.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Moves the count and wakes whoever sleeps on it.
    pub fn ring(&self) {
        // SeqCst on both sides: either this load sees the sleeper, or the sleeper's wait, which the
        // kernel begins by comparing the count, sees the count moved. Neither can miss the other.
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Waking cannot fail on a mapped word; an error would only cost a slice of sleep.
            let _ = futex::wake(&self.count, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Sleeps until the count differs from `seen`, for `timeout` at most.
    ///
    /// May return early. A process killed here leaves the sleeper counted, which costs the ringers
    /// a needless system call and nothing else.
    pub fn sleep(&self, seen: u32, timeout: Duration) {
        // A moment of spinning catches what is already under way; longer would take the processor
        // from the very peer that is waited for, where PEs outnumber cores.
        for _ in 0..64 {
            if self.count() != seen {
                return;
            }
            std::hint::spin_loop();
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let timeout = rustix::thread::Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // Interrupted, timed out, count already moved: in every case the caller looks again.
        let _ = futex::wait(&self.count, futex::Flags::empty(), seen, Some(&timeout));
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
