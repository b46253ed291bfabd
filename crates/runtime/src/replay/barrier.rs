//! A memory barrier in two halves: next to nothing for those that pass often, a system call for
//! those that pass rarely.
//!
//! A lane that publishes its progress and then looks whether anybody sleeps must not have the two
//! exchanged. A full barrier would make it wait until the other core has given up the cache line,
//! longer than many a body takes. Whoever goes to sleep has time: it asks the system to put the
//! barrier into every running thread of the process instead.

#[cfg(not(any(loom, shuttle)))]
pub use of_system::{heavy, light, prepare};

#[cfg(not(any(loom, shuttle)))]
mod of_system {
    use std::sync::Once;
    use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};
    use std::thread::Builder;

    use rustix::thread::{MembarrierCommand, membarrier};

    /// The process is not known to the system, or the system has no such barrier: both halves are
    /// whole.
    const WHOLE: u8 = 0;
    /// Who calls [`heavy`] asks the system.
    const ASKED: u8 = 1;
    /// And therefore [`light`] may be light.
    const HALVES: u8 = 2;

    static STAGE: AtomicU8 = AtomicU8::new(WHOLE);

    /// Makes the process known to the system. That takes it milliseconds, so that nobody waits for
    /// it.
    pub fn prepare() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // Without the thread, or on a system that refuses, both halves stay whole.
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

    /// Orders what was stored before against what is loaded afterwards, as seen by whoever calls
    /// [`heavy`].
    #[inline(always)]
    pub fn light() {
        match STAGE.load(Ordering::Acquire) {
            HALVES => compiler_fence(Ordering::SeqCst),
            _ => fence(Ordering::SeqCst),
        }
    }

    /// The other half of [`light`], after a sequentially consistent store.
    ///
    /// Whoever finds the barrier whole here has stored before the stage was raised, and who finds
    /// it in halves there looks after it was raised: that one sees the store without any barrier.
    pub fn heavy() {
        fence(Ordering::SeqCst);
        if STAGE.load(Ordering::SeqCst) >= ASKED {
            // Once it worked it does not fail; and a sleeper looks again by itself after a while.
            let _ = membarrier(MembarrierCommand::PrivateExpedited);
        }
    }
}

/// There is nothing to prepare in a model.
#[cfg(any(loom, shuttle))]
pub fn prepare() {}

/// `loom` knows fences; to it both halves are whole.
#[cfg(loom)]
pub fn light() {
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}

#[cfg(loom)]
pub fn heavy() {
    light();
}

/// To `shuttle` all memory is sequentially consistent.
#[cfg(shuttle)]
pub fn light() {}

#[cfg(shuttle)]
pub fn heavy() {}
