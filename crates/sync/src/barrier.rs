//! Memory barriers: one in two halves of unequal cost, and one that an exchange has paid for.
//!
//! A thread that publishes a value and then checks whether another one parks must not have the two
//! exchanged. A full barrier would make it wait until the other processor has given up the cache
//! line, longer than many task bodies take. A thread that parks has time: it asks the system to
//! put the barrier into every running thread of the process instead.

use crate::shim::{Ordering, fence};

#[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
pub use of_system::{heavy, light, prepare};

#[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
mod of_system {
    use std::sync::Once;
    use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};
    use std::thread::Builder;

    use rustix::thread::{MembarrierCommand, membarrier};

    /// The process is not registered, or the system has no such barrier: both halves are full.
    const FULL: u8 = 0;
    /// [`heavy`] asks the system.
    const ASKED: u8 = 1;
    /// And therefore [`light`] may be light.
    const HALVES: u8 = 2;

    static STAGE: AtomicU8 = AtomicU8::new(FULL);

    /// Registers the process with the system, on a thread of its own: registering takes
    /// milliseconds.
    pub fn prepare() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // Without the thread, or on a system that refuses, both halves stay full.
            let _ = Builder::new().name("syncline-barrier".to_owned()).spawn(|| {
                let ask = |command| membarrier(command).is_ok();
                if ask(MembarrierCommand::RegisterPrivateExpedited) {
                    STAGE.store(ASKED, Ordering::SeqCst);
                    if ask(MembarrierCommand::PrivateExpedited) {
                        STAGE.store(HALVES, Ordering::SeqCst);
                    }
                }
            });
        });
    }

    /// Orders earlier stores before later loads, as seen by a thread that calls [`heavy`].
    #[inline(always)]
    pub fn light() {
        match STAGE.load(Ordering::Acquire) {
            HALVES => compiler_fence(Ordering::SeqCst),
            _ => fence(Ordering::SeqCst),
        }
    }

    /// The other half of [`light`], after a sequentially consistent store.
    ///
    /// A thread that finds the stage full here has stored before the stage was raised, and one
    /// that finds halves in [`light`] loads after it was raised: it sees the store without any
    /// barrier.
    pub fn heavy() {
        fence(Ordering::SeqCst);
        if STAGE.load(Ordering::SeqCst) >= ASKED {
            // It worked once, so that it does not fail.
            let _ = membarrier(MembarrierCommand::PrivateExpedited);
        }
    }
}

/// Does nothing: both halves are full.
#[cfg(not(all(target_os = "linux", not(any(loom, shuttle)))))]
pub fn prepare() {}

/// Orders earlier stores before later loads.
#[cfg(not(all(target_os = "linux", not(any(loom, shuttle)))))]
pub fn light() {
    fence(Ordering::SeqCst);
}

/// Orders earlier stores before later loads.
#[cfg(not(all(target_os = "linux", not(any(loom, shuttle)))))]
pub fn heavy() {
    fence(Ordering::SeqCst);
}

/// A full fence, by a thread whose last atomic operation was a sequentially consistent exchange (or
/// another that reads and writes).
///
/// On x86-64 that instruction is one already; a second one would cost as much again.
#[inline]
pub fn fence_after_exchange() {
    if cfg!(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))) {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
