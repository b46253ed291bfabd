//! The primitives that replay is made of, replaceable by those of a model checker.
//!
//! With `--cfg loom` or `--cfg shuttle` everything here comes from there, so that the protocols in
//! `README.md` are explored over all interleavings (small models) or over random ones (whole plans)
//! instead of being hoped to hold.

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering},
    },
    thread,
};
#[cfg(shuttle)]
pub use shuttle::{
    hint::spin_loop,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering},
    },
    thread,
};
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    hint::spin_loop,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering},
    },
    thread,
};

use std::time::Duration;

/// Locks, whether or not a thread panicked while it held the lock: what is guarded here is always
/// consistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A word that threads sleep on until it changes.
#[derive(Debug)]
pub struct WaitWord {
    word: AtomicU32,
    #[cfg(any(loom, shuttle))]
    sleepers: (Mutex<()>, Condvar),
}

#[cfg(loom)]
use loom::sync::Condvar;
#[cfg(shuttle)]
use shuttle::sync::Condvar;

impl WaitWord {
    pub fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            #[cfg(any(loom, shuttle))]
            sleepers: (Mutex::new(()), Condvar::new()),
        }
    }

    pub fn load(&self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

    /// Changes the word and wakes everyone who sleeps on it.
    pub fn bump_and_wake(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        #[cfg(not(any(loom, shuttle)))]
        {
            use rustix::thread::futex;
            // An error would mean a bad address or flag, neither of which can be; and sleepers look
            // again by themselves.
            let _ = futex::wake(&self.word, futex::Flags::PRIVATE, i32::MAX as u32);
        }
        #[cfg(any(loom, shuttle))]
        {
            let _guard = lock(&self.sleepers.0);
            self.sleepers.1.notify_all();
        }
    }

    /// Sleeps while the word holds `seen`, `longest` at most; may return early.
    #[cfg(not(any(loom, shuttle)))]
    pub fn sleep(&self, seen: u32, longest: Duration) {
        use rustix::thread::futex;
        let longest = rustix::time::Timespec {
            tv_sec: longest.as_secs() as _,
            tv_nsec: longest.subsec_nanos() as _,
        };
        // Woken, timed out, interrupted, or the ticket was old: in every case, look again.
        let _ = futex::wait(&self.word, futex::Flags::PRIVATE, seen, Some(&longest));
    }

    /// As the futex does it: the check and falling asleep are one step with respect to waking.
    /// There is no time in a model, so that a wake-up that is lost shows as a thread that sleeps
    /// for ever.
    #[cfg(any(loom, shuttle))]
    pub fn sleep(&self, seen: u32, _longest: Duration) {
        let guard = lock(&self.sleepers.0);
        if self.word.load(Ordering::SeqCst) == seen {
            drop(self.sleepers.1.wait(guard));
        }
    }
}
