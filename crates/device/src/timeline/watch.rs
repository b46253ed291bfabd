//! Being told of a change instead of parking until it comes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use syncline_sync::lock;
use syncline_sync::shim::MutexGuard;

use super::Timeline;
use crate::{Point, PointStatus, drop_guarded};

/// Code to call when a timeline changes or a token is cancelled.
pub trait Wake: Send + Sync {
    /// Called by the thread that signals or fails a timeline, or cancels a token. It should return
    /// soon, since that thread waits for it. A panic ends there; other wakers are called all the
    /// same.
    ///
    /// A call that is under way when a [`Watch`] is dropped may end after that.
    fn wake(&self);
}

/// A point that is watched until this is dropped: see [`Point::watch`].
pub struct Watch {
    point: Point,
    id: u64,
}

impl Point {
    /// Has `waker` called when this point may have been decided, without a thread that sleeps until
    /// then.
    ///
    /// The call comes after a [`Watch::look`] that found the point pending, at the next change of
    /// its timeline; the waker then checks again. Backends use it to hold back work until the
    /// timeline of another backend has moved.
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
        let id = self.timeline().add(waker);
        Watch { point: self.clone(), id }
    }

    /// Where the point stands; if it is pending, the next change of its timeline wakes all who
    /// watch it.
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
        // The entry is on the list before the timeline is armed, so that whoever finds it armed
        // finds the entry too.
        self.point.arm()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.point.timeline().forget(self.id);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({:?})", self.point)
    }
}

/// A waker on the list of a timeline.
pub(super) struct Registration {
    /// Taken off by this, so that a waker that was registered twice stays once.
    id: u64,
    pub(super) waker: Arc<dyn Wake>,
}

/// The wakers to call, each once, taken off the list so that they are called under no lock. Up to
/// eight different ones need no memory.
#[derive(Default)]
pub(super) struct Wakers {
    few: [Option<Arc<dyn Wake>>; 8],
    many: Vec<Arc<dyn Wake>>,
}

impl Wakers {
    pub(super) fn add(&mut self, waker: &Arc<dyn Wake>) {
        if self.iter().any(|other| Arc::ptr_eq(other, waker)) {
            return;
        }
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(waker.clone()),
            None => self.many.push(waker.clone()),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Wake>> {
        self.few.iter().flatten().chain(&self.many)
    }
}

impl Timeline {
    pub(super) fn watchers(&self) -> MutexGuard<'_, Vec<Registration>> {
        lock(&self.0.watchers)
    }

    /// Puts `waker` on the list. Returns the identity by which it is taken off.
    pub(super) fn add(&self, waker: Arc<dyn Wake>) -> u64 {
        // Not from the shim: identity takes no part in the protocol that is model-checked.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.watchers().push(Registration { id, waker });
        id
    }

    /// Takes the waker registered as `id` off the list.
    pub(super) fn forget(&self, id: u64) {
        let mut watchers = self.watchers();
        let at = watchers.iter().position(|registered| registered.id == id);
        let gone = at.map(|at| watchers.swap_remove(at));
        drop(watchers);
        // Under no lock: a waker is user code.
        drop_guarded(gone);
    }
}
