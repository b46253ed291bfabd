//! The primitives that the timeline is made of, replaceable by those of a model checker.
//!
//! With `--cfg loom` everything here comes from `loom`, so that the protocol in
//! `timeline/README.md` is explored over all interleavings instead of being hoped to hold.

use std::time::Instant;

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};
#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

/// Locks, whether or not a thread panicked while it held the lock: what is guarded here is always
/// consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A word that threads sleep on until it changes: a futex where there is one.
pub struct WaitWord {
    word: AtomicU32,
    #[cfg(any(loom, not(target_os = "linux")))]
    sleepers: (Mutex<()>, Condvar),
}

#[cfg(loom)]
use loom::sync::Condvar;
#[cfg(all(not(loom), not(target_os = "linux")))]
use std::sync::Condvar;

impl WaitWord {
    /// Creates a word that nobody sleeps on.
    #[expect(clippy::new_without_default, reason = "moves to a crate of its own")]
    pub fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            #[cfg(any(loom, not(target_os = "linux")))]
            sleepers: (Mutex::new(()), Condvar::new()),
        }
    }

    /// What the word holds; `Acquire` pairs with [`WaitWord::bump`].
    pub fn load(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    /// Changes the word and wakes everyone who sleeps on it.
    pub fn bump_and_wake(&self) {
        self.word.fetch_add(1, Ordering::Release);
        self.wake();
    }

    #[cfg(all(not(loom), target_os = "linux"))]
    fn wake(&self) {
        use rustix::thread::futex::{Flags, wake};
        // Waking cannot fail for an address that is mapped.
        let _ = wake(&self.word, Flags::PRIVATE, i32::MAX as u32);
    }

    /// Sleeps while the word holds `seen`, until `deadline` at the latest; may return early.
    #[cfg(all(not(loom), target_os = "linux"))]
    pub fn wait(&self, seen: u32, deadline: Option<Instant>) {
        use rustix::thread::{
            Timespec,
            futex::{Flags, wait},
        };
        let timeout = deadline.map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX / 4),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        // Every error (changed already, interrupted, timed out) means the same: look again.
        let _ = wait(&self.word, Flags::PRIVATE, seen, timeout.as_ref());
    }

    #[cfg(any(loom, not(target_os = "linux")))]
    fn wake(&self) {
        let _guard = lock(&self.sleepers.0);
        self.sleepers.1.notify_all();
    }

    /// As the futex does it: the check and falling asleep are one step with respect to waking.
    #[cfg(loom)]
    pub fn wait(&self, seen: u32, _deadline: Option<Instant>) {
        let guard = lock(&self.sleepers.0);
        if self.word.load(Ordering::Relaxed) == seen {
            drop(self.sleepers.1.wait(guard));
        }
    }

    /// Sleeps while the word holds `seen`, until `deadline` at the latest; may return early.
    #[cfg(all(not(loom), not(target_os = "linux")))]
    pub fn wait(&self, seen: u32, deadline: Option<Instant>) {
        let guard = lock(&self.sleepers.0);
        if self.word.load(Ordering::Relaxed) != seen {
            return;
        }
        match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
            None => drop(self.sleepers.1.wait(guard)),
            Some(left) => drop(self.sleepers.1.wait_timeout(guard, left)),
        }
    }
}

/// How often to look before sleeping: a microsecond or two, and never on a machine with one
/// processor, where what is awaited cannot happen while we look.
#[cfg(not(loom))]
pub(crate) fn spins() -> u32 {
    use std::sync::OnceLock;
    static SPINS: OnceLock<u32> = OnceLock::new();
    *SPINS.get_or_init(|| match std::thread::available_parallelism() {
        Ok(count) if count.get() > 1 => 60,
        _ => 0,
    })
}

#[cfg(loom)]
pub(crate) fn spins() -> u32 {
    0
}
