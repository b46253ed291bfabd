//! The primitives that a stream is made of, replaceable by those of a model checker.
//!
//! With `--cfg loom` the atomics of slots and queues come from `loom`, so that `fanout.rs` and
//! `index_ring.rs` are explored over all interleavings. With `--cfg shuttle` everything that
//! threads meet at comes from `shuttle`, so that whole streams run over random ones.

pub(crate) use std::sync::atomic::Ordering;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread, thread_local,
};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicI32, AtomicUsize},
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

/// A full fence, by a thread whose last atomic operation was a sequentially consistent exchange (or
/// another that reads and writes).
///
/// On x86-64 that instruction is one already; a second one would cost as much again.
#[inline]
pub(crate) fn fence_after_exchange() {
    if cfg!(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))) {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// Locks, whether or not a thread panicked while it held the lock: nothing here is left half-done
/// by a panic, which can come from user code only, and that runs without locks.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
