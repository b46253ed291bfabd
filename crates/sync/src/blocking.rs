//! Threads that block while they run work of a pool.
//!
//! A pool of threads that runs other people's code stands still once every thread of it is blocked
//! there, perhaps by waits for work that the pool has yet to run. So a thread that parks in the
//! middle of a piece of work tells its pool, which may put another thread in its place. Every
//! [`EventCount`](crate::EventCount) does; code that blocks in another way calls [`section`].

use std::sync::Arc;

#[cfg(not(loom))]
use std::cell::{Cell, RefCell};

#[cfg(not(loom))]
use crate::shim::thread_local;

/// A pool of threads, as its threads tell it that they block.
pub trait Standins: Send + Sync {
    /// A thread that runs a piece of work is about to block.
    fn thread_blocks(&self);

    /// It goes on.
    fn thread_goes_on(&self);
}

#[cfg(not(loom))]
thread_local! {
    // Model checkers know no `const` blocks here.
    #[allow(clippy::missing_const_for_thread_local)]
    static POOL: RefCell<Option<Arc<dyn Standins>>> = RefCell::new(None);
    #[allow(clippy::missing_const_for_thread_local)]
    static WORKS: Cell<bool> = Cell::new(false);
}

/// Makes the calling thread one of `pool`.
#[cfg(not(loom))]
pub fn join_pool(pool: Arc<dyn Standins>) {
    POOL.with(|own| *own.borrow_mut() = Some(pool));
}

/// Notes that the calling thread runs a piece of work of its pool until the result is dropped.
#[cfg(not(loom))]
#[must_use]
pub fn work() -> Working {
    WORKS.with(|works| works.set(true));
    Working(())
}

/// See [`work`].
#[derive(Debug)]
pub struct Working(());

#[cfg(not(loom))]
impl Drop for Working {
    fn drop(&mut self) {
        WORKS.with(|works| works.set(false));
    }
}

/// A section of code that may block for long, until this is dropped.
#[must_use]
pub struct Section(Option<Arc<dyn Standins>>);

impl std::fmt::Debug for Section {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Section({})", self.0.is_some())
    }
}

/// Tells the calling thread's pool that what follows may block: another thread takes its place if
/// no other is left. Does nothing outside of a pool's work, and within another section.
///
/// ```
/// use syncline_sync::blocking;
///
/// let (sender, receiver) = std::sync::mpsc::channel();
/// sender.send(1).unwrap();
/// let section = blocking::section();
/// assert_eq!(receiver.recv(), Ok(1));
/// drop(section);
/// ```
#[cfg(not(loom))]
pub fn section() -> Section {
    // A thread that ends may park when its variables are gone.
    if !WORKS.try_with(|works| works.replace(false)).unwrap_or(false) {
        return Section(None);
    }
    let pool = POOL.with(|own| own.borrow().clone());
    if let Some(pool) = &pool {
        pool.thread_blocks();
    }
    Section(pool)
}

#[cfg(not(loom))]
impl Drop for Section {
    fn drop(&mut self) {
        if let Some(pool) = &self.0 {
            pool.thread_goes_on();
            WORKS.with(|works| works.set(true));
        }
    }
}

/// Models of `loom` have no pools.
#[cfg(loom)]
pub fn join_pool(_pool: Arc<dyn Standins>) {}

/// See above.
#[cfg(loom)]
pub fn work() -> Working {
    Working(())
}

/// See above.
#[cfg(loom)]
pub fn section() -> Section {
    Section(None)
}
