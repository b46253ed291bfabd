//! Being told of a change instead of sleeping until it comes.

use std::fmt;
use std::sync::Arc;

use super::Timeline;
use crate::sync::{MutexGuard, lock};
use crate::{Point, PointStatus};

/// Somebody to be told when a timeline changes.
pub trait Wake: Send + Sync {
    /// Called by whoever signals or fails a timeline, on their thread and under a lock of the timeline: it returns at
    /// once, and leaves timelines alone.
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
        self.timeline().watchers().push(entry.clone());
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

impl Timeline {
    pub(super) fn watchers(&self) -> MutexGuard<'_, Vec<Arc<dyn Wake>>> {
        lock(&self.0.watchers)
    }

    /// Takes `watcher` off the list.
    pub(super) fn forget<W: Wake>(&self, watcher: &W) {
        let gone: *const W = watcher;
        self.watchers().retain(|other| !std::ptr::addr_eq(Arc::as_ptr(other), gone));
    }
}
