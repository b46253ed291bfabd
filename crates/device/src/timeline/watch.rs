//! Being told of a change instead of sleeping until it comes.

use std::fmt;
use std::sync::Arc;

use super::Timeline;
use crate::sync::{MutexGuard, lock};
use crate::{Point, PointStatus};

/// Code to call when a timeline changes or a token is cancelled.
pub trait Wake: Send + Sync {
    /// Called by the thread that signals or fails a timeline, or cancels a token. It should return soon,
    /// since that thread waits for it. A panic ends there; other wakers are called all the same.
    ///
    /// A call that is under way when a [`Watch`] is dropped may end after that.
    fn wake(&self);
}

/// A point that is watched until this is dropped: see [`Point::watch`].
pub struct Watch {
    point: Point,
    entry: Arc<Entry>,
}

/// One for each watch, so that dropping a watch takes just that one off the list.
struct Entry(Arc<dyn Wake>);

impl Wake for Entry {
    fn wake(&self) {
        self.0.wake();
    }
}

impl Point {
    /// Has `waker` called when this point may have been decided, without a thread that sleeps until then.
    ///
    /// The call comes after a [`Watch::look`] that found the point pending, at the next change of its timeline; who is
    /// called looks again. Backends use it to hold back work until a timeline of somebody else has moved.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use syncline_device::{PointStatus, Timeline, Wake};
    ///
    /// #[derive(Default)]
    /// struct Calls(AtomicU32);
    /// impl Wake for Calls {
    ///     fn wake(&self) {
    ///         self.0.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// }
    ///
    /// let (timeline, calls) = (Timeline::new("example", 0), Arc::new(Calls::default()));
    /// let watch = timeline.point(1).watch(calls.clone());
    /// assert_eq!(watch.look(), PointStatus::Pending);
    /// timeline.signal(1)?;
    /// assert_eq!((calls.0.load(Ordering::Relaxed), watch.look()), (1, PointStatus::Reached));
    /// # Ok::<(), syncline_device::DeviceError>(())
    /// ```
    pub fn watch(&self, waker: Arc<dyn Wake>) -> Watch {
        let entry = Arc::new(Entry(waker));
        self.timeline().add(entry.clone());
        Watch { point: self.clone(), entry }
    }

    /// Where the point stands; if it is pending, the next change of its timeline wakes all who watch it.
    pub(crate) fn arm(&self) -> PointStatus {
        self.timeline().arm(self.value())
    }
}

impl Watch {
    /// The point.
    pub const fn point(&self) -> &Point {
        &self.point
    }

    /// Where the point stands; if it is pending, the next change of its timeline calls the waker.
    pub fn look(&self) -> PointStatus {
        // The entry is on the list before the timeline is armed, so that whoever finds it armed finds the entry too.
        self.point.arm()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.point.timeline().forget(&*self.entry);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({:?})", self.point)
    }
}

/// The wakers of a timeline. Calling them holds a reference, so that they are called under no lock.
pub(super) type Watchers = Arc<Vec<Arc<dyn Wake>>>;

impl Timeline {
    pub(super) fn watchers(&self) -> MutexGuard<'_, Watchers> {
        lock(&self.0.watchers)
    }

    /// Puts `watcher` on the list.
    pub(super) fn add(&self, watcher: Arc<dyn Wake>) {
        Arc::make_mut(&mut *self.watchers()).push(watcher);
    }

    /// Takes `watcher` off the list. The caller has a reference to it: nothing is dropped under the lock.
    pub(super) fn forget<W: Wake>(&self, watcher: &W) {
        let gone: *const W = watcher;
        let mut watchers = self.watchers();
        Arc::make_mut(&mut *watchers).retain(|other| !std::ptr::addr_eq(Arc::as_ptr(other), gone));
    }
}
