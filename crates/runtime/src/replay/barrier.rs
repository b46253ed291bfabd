//! A memory barrier in two halves: next to nothing for those that pass often, a system call for those that pass rarely.
//!
//! A lane that publishes its progress and then looks whether anybody sleeps must not have the two exchanged. A full barrier
//! would make it wait until the other core has given up the cache line, longer than many a body takes. Whoever goes to
//! sleep has time: it asks the system to put the barrier into every running thread of the process instead.

#[cfg(not(any(loom, shuttle)))]
pub use of_system::{heavy, light};

#[cfg(not(any(loom, shuttle)))]
mod of_system {
    use std::sync::OnceLock;
    use std::sync::atomic::{Ordering, compiler_fence, fence};

    use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

    /// Whether the system puts barriers into other threads; asked once.
    fn is_available() -> bool {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        *AVAILABLE.get_or_init(|| {
            let query = membarrier_query();
            query.contains_command(MembarrierCommand::PrivateExpedited)
                && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
                && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        })
    }

    /// Orders what was stored before against what is loaded afterwards, as seen by whoever calls [`heavy`].
    #[inline(always)]
    pub fn light() {
        match is_available() {
            true => compiler_fence(Ordering::SeqCst),
            false => fence(Ordering::SeqCst),
        }
    }

    /// The other half of [`light`].
    pub fn heavy() {
        // Once it worked it does not fail; if it did, this thread's own barrier would be all there is, and a sleeper looks
        // again by itself after a while.
        if is_available() && membarrier(MembarrierCommand::PrivateExpedited).is_ok() {
            return;
        }
        fence(Ordering::SeqCst);
    }
}

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
