//! Locks that outlive a panic of a thread that held them.

use std::sync::{LockResult, PoisonError};

/// Locks `mutex`, even if a thread panicked while it held the lock.
///
/// For data that every holder leaves consistent at each point that can panic. User code, which may
/// panic anywhere, runs under no lock.
#[inline]
pub fn lock<M: Lock + ?Sized>(mutex: &M) -> M::Guard<'_> {
    ignore_poison(mutex.lock_or_poisoned())
}

/// A mutex: that of `std`, and that of a model checker where one is in use.
pub trait Lock {
    /// Holds the lock until it is dropped.
    type Guard<'a>
    where
        Self: 'a;

    /// Locks, and says whether a thread panicked while it held the lock.
    fn lock_or_poisoned(&self) -> LockResult<Self::Guard<'_>>;
}

impl<T: ?Sized> Lock for std::sync::Mutex<T> {
    type Guard<'a>
        = std::sync::MutexGuard<'a, T>
    where
        T: 'a;

    #[inline]
    fn lock_or_poisoned(&self) -> LockResult<Self::Guard<'_>> {
        self.lock()
    }
}

/// A mutex behind something that points to it.
macro_rules! behind {
    ($pointer:ty) => {
        impl<M: Lock> Lock for $pointer {
            type Guard<'a>
                = M::Guard<'a>
            where
                M: 'a;

            #[inline]
            fn lock_or_poisoned(&self) -> LockResult<Self::Guard<'_>> {
                (**self).lock_or_poisoned()
            }
        }
    };
}

behind!(crate::CachePadded<M>);
behind!(std::sync::Arc<M>);

#[cfg(any(loom, shuttle))]
impl<T: ?Sized> Lock for crate::shim::Mutex<T> {
    type Guard<'a>
        = crate::shim::MutexGuard<'a, T>
    where
        T: 'a;

    fn lock_or_poisoned(&self) -> LockResult<Self::Guard<'_>> {
        self.lock()
    }
}

/// Returns what a lock guards, even if a thread panicked while it held the lock: for `get_mut`,
/// `into_inner` and waits on a condition variable. See [`lock`].
#[inline]
pub fn ignore_poison<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::shim::Mutex;

    #[test]
    fn a_lock_outlives_a_panic() {
        let mut mutex = Mutex::new(0);
        let panicking = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            *lock(&mutex) = 1;
            let _guard = lock(&mutex);
            std::panic::panic_any("expected");
        }));
        assert!(panicking.is_err() && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 1);
        assert_eq!(*ignore_poison(mutex.get_mut()), 1);
    }
}
