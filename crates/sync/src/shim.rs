//! Atomics, locks and threads: of `std`, or of a model checker.
//!
//! With `--cfg loom` or `--cfg shuttle` everything here comes from that crate, which explores all
//! interleavings of small models, or random ones of whole runs.

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard,
        atomic::{
            AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
        },
    },
    thread, thread_local,
};
#[cfg(shuttle)]
pub use shuttle::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard,
        atomic::{
            AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
        },
    },
    thread, thread_local,
};
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard,
        atomic::{
            AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
        },
    },
    thread, thread_local,
};
