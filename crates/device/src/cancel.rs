//! Asking for work to stop: one token for streams, plans, devices and refits.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use syncline_sync::lock;

use crate::{Wake, drop_guarded, guarded};

/// A request to stop, shared between the code that asks and the work that should stop.
///
/// Clones are the same token. A cancelled token stays cancelled. Work checks the token between
/// steps, so a request takes effect within the step that is running.
///
/// ```
/// use syncline_device::CancelToken;
///
/// let all = CancelToken::new();
/// let part = all.child();
/// part.cancel();
/// assert!(part.is_cancelled() && !all.is_cancelled());
/// all.cancel();
/// assert!(all.child().is_cancelled());
/// ```
#[derive(Clone, Default)]
pub struct CancelToken(Arc<State>);

#[derive(Default)]
struct State {
    cancelled: AtomicBool,
    watchers: Mutex<Vec<Weak<dyn Wake>>>,
    /// Keeps the chain of weak registrations from an ancestor to this token.
    _parent: Option<CancelToken>,
}

impl CancelToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a token that is cancelled with this one, or earlier by itself.
    pub fn child(&self) -> Self {
        let child = Self(Arc::new(State { _parent: Some(self.clone()), ..State::default() }));
        self.register(Arc::downgrade(&child.0) as Weak<dyn Wake>);
        child
    }

    /// Requests the stop. Calls the registered wakers once, on this thread and under no lock.
    pub fn cancel(&self) {
        self.0.wake();
    }

    /// Returns `true` if a stop was requested.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Has `waker` called when the token is cancelled, at once if it is already.
    ///
    /// The token holds the waker weakly: dropping the last `Arc` of it ends the registration. A
    /// waker that is registered already is not registered again.
    pub fn watch<W: Wake + 'static>(&self, waker: &Arc<W>) {
        self.register(Arc::downgrade(waker) as Weak<dyn Wake>);
    }

    fn register(&self, waker: Weak<dyn Wake>) {
        let mut watchers = self.0.watchers();
        // `State::wake` sets the flag before it takes the list, so either this sees the flag, or
        // `State::wake` finds the entry.
        if !self.is_cancelled() {
            if watchers.iter().any(|watcher| watcher.ptr_eq(&waker)) {
                return;
            }
            if watchers.len() == watchers.capacity() {
                watchers.retain(|watcher| watcher.strong_count() > 0);
            }
            watchers.push(waker);
            return;
        }
        drop(watchers);
        call(&waker);
    }
}

impl State {
    fn watchers(&self) -> MutexGuard<'_, Vec<Weak<dyn Wake>>> {
        lock(&self.watchers)
    }
}

/// A child token is told of its parent's cancellation like any other waker.
impl Wake for State {
    fn wake(&self) {
        self.cancelled.store(true, Ordering::Release);
        let watchers = std::mem::take(&mut *self.watchers());
        watchers.iter().for_each(call);
    }
}

/// Calls a waker that still exists. A waker that panics does not keep others from being called.
fn call(waker: &Weak<dyn Wake>) {
    if let Some(waker) = waker.upgrade() {
        // The panic hook has reported a panic.
        let _ = guarded(|| waker.wake());
        drop_guarded(waker);
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CancelToken({})", self.is_cancelled())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[derive(Default)]
    struct Calls(AtomicU32);

    impl Wake for Calls {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Panics;

    impl Wake for Panics {
        fn wake(&self) {
            panic!("a waker that panics")
        }
    }

    #[test]
    fn wakers_are_called_once_also_behind_one_that_panics() {
        let (token, calls, panics) =
            (CancelToken::new(), Arc::new(Calls::default()), Arc::new(Panics));
        token.watch(&panics);
        token.watch(&calls);
        token.cancel();
        token.cancel();
        assert_eq!(calls.0.load(Ordering::Relaxed), 1);
        token.watch(&calls);
        assert_eq!(calls.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_waker_that_watches_again_is_kept_and_called_once() {
        let (token, calls, other) =
            (CancelToken::new(), Arc::new(Calls::default()), Arc::new(Calls::default()));
        for _ in 0..1000 {
            token.watch(&calls);
            token.watch(&other);
        }
        assert_eq!(token.0.watchers().len(), 2);
        token.cancel();
        assert_eq!([calls, other].map(|calls| calls.0.load(Ordering::Relaxed)), [1; 2]);
    }

    #[test]
    fn grandchildren_are_cancelled_and_dropped_children_are_forgotten() {
        let token = CancelToken::new();
        for _ in 0..1000 {
            drop(token.child());
        }
        assert!(token.0.watchers().capacity() < 16);
        let child = token.child();
        let grandchild = child.child();
        drop(child);
        token.cancel();
        // The child in between is gone, and the grandchild still learns of it.
        assert!(grandchild.is_cancelled());
    }
}
