//! Lanes: in-order streams of work on one device.

mod core;
mod gate;
mod open;
mod spares;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use syncline_sync::lock;

pub(crate) use core::host_timeline;
pub use core::{LaneCore, fail_signals};
pub(crate) use gate::gate;
pub use open::OpenLanes;
pub use spares::Spares;

use crate::submit::{self, Ordered};
use crate::{Batch, Deadline, DeviceError, DeviceSpec, Point, Timeline, Work};

/// An in-order stream of work on one device, with one timeline.
///
/// # Order
/// Batches of one lane run one after the other in the order in which they were submitted, each
/// after its waits; the commands of a batch run in order too. When a batch has completed, its
/// leases on buffers are released, then the points in its `signals` are signalled, then the lane's
/// own timeline moves to the batch's value. Between lanes there is no order but by waits.
///
/// # Failure
/// When a command fails, or a wait does, the lane fails: that batch and everything behind it never
/// runs, their timelines fail with the cause, and further work is refused until [`Lane::recover`].
///
/// # Submitting to several lanes
/// A batch may wait for points that a batch submitted later will signal. Whoever submits several
/// batches that wait for each other in this way does it under one [`SubmissionGuard`] over all
/// lanes concerned: otherwise two such groups, queued in crossed order, wait for each other for
/// ever.
///
/// # Safety
/// The order above is kept to the letter: memory is read, written and given back by it.
/// [`Lane::info`] is always the same, and names the device whose memory the lane works on;
/// [`Lane::can_access`] is true only of devices whose memory its commands may touch.
pub unsafe trait Lane: Send + Sync + fmt::Debug {
    /// What the lane is.
    fn info(&self) -> &LaneInfo;

    /// The timeline that its batches signal; another one after [`Lane::recover`].
    fn timeline(&self) -> Timeline;

    /// The point of the batch submitted last.
    fn last(&self) -> Point;

    /// Whether commands of this lane can touch memory of `device`. Copies from and to memory of CPU
    /// devices always work.
    fn can_access(&self, device: DeviceSpec) -> bool;

    /// Puts checked work into the queue and returns the point at which it will have completed. What
    /// callers use is `submit`, which checks, leases and orders first. Waits for earlier batches of
    /// this lane are implied; one for a later batch is refused with
    /// [`DeviceError::WaitsForItself`].
    ///
    /// The caller holds locks of buffers. So nothing in here calls user code, nor drops what may
    /// hold any: commands that the lane does not keep, and all that it refuses, stay in `work`.
    ///
    /// # Safety
    /// `work` comes from a check against this lane, and no work that conflicts with it (touches the
    /// same bytes, one of the two writing) runs at the same time: every such work is ordered by
    /// waits or by this lane.
    unsafe fn enqueue(&self, work: &mut Work) -> Result<Point, DeviceError>;

    /// Makes a failed lane usable again, with a fresh timeline; points of the old one stay failed.
    /// Does nothing to a lane that has not failed.
    fn recover(&self);

    /// Stops the lane after the command that is running, if any; what has not begun fails with
    /// [`DeviceError::Closed`].
    fn close(&self);

    /// Makes room for `batches` batches at a time, each of one recording with at most `waits` waits
    /// and `buffers` buffers. On lanes of Vulkan and OpenCL, submitting them with `submit_claimed`
    /// allocates nothing.
    fn reserve(&self, batches: usize, waits: usize, buffers: usize) {
        self.info().spares.reserve(batches, waits, buffers);
    }

    /// From here on notes when commands run, or no longer does. Returns whether the lane notes it,
    /// which not every device can.
    fn note_times(&self, on: bool) -> bool {
        let _ = on;
        false
    }

    /// When commands of batches that have completed ran on the device, as far as that was noted and
    /// not taken before.
    fn take_times(&self) -> Vec<CommandTime> {
        Vec::new()
    }
}

/// When one command ran on its device, in the host's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandTime {
    /// The value of its batch on the lane's timeline.
    pub value: u64,
    /// Its number in the batch, where those of a recording count one by one.
    pub command: u32,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
}

impl dyn Lane + '_ {
    /// Submits a batch after all conflicting work that was submitted before, on whatever lane.
    ///
    /// Conflicts are found by buffer and by the exact bytes touched, so that from safe code no two
    /// batches race. Whoever knows the dependencies already saves the look-ups with
    /// `submit_unordered`.
    ///
    /// # Errors
    /// Before anything runs: bytes outside a buffer, a buffer that is mapped, on another device or
    /// without memory to be had, a kernel without an implementation here, a lane that has failed or
    /// is closed.
    pub fn submit(&self, batch: Batch) -> Result<Point, DeviceError> {
        // SAFETY: `Ordered::Yes` adds a wait for every conflicting batch submitted before.
        unsafe { submit::submit(self, batch, Ordered::Yes) }
    }

    /// Submits a batch that waits for nothing but its own waits.
    ///
    /// # Errors
    /// As `submit`.
    ///
    /// # Safety
    /// Every conflicting batch submitted before is ordered before this one, by waits or by being on
    /// the same lane.
    pub unsafe fn submit_unordered(&self, batch: Batch) -> Result<Point, DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { submit::submit(self, batch, Ordered::ByCaller) }
    }

    /// Submits a batch over buffers that the caller has claimed: neither looks for conflicting work
    /// nor leaves a note for later work to find.
    ///
    /// # Errors
    /// As `submit`, except that buffers may be claimed.
    ///
    /// # Safety
    /// Until the batch has ended, every buffer that it touches is claimed by the caller
    /// ([`Buffer::claim`], for writing where the batch writes) or known to nobody else; and all
    /// conflicting work of the caller's own is ordered, by waits or by being on the same lane.
    ///
    /// [`Buffer::claim`]: crate::Buffer::claim
    pub unsafe fn submit_claimed(&self, batch: Batch) -> Result<Point, DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { submit::submit_claimed(self, batch) }
    }

    /// Waits for everything that was submitted before.
    pub fn synchronize(&self, deadline: Deadline) -> Result<(), DeviceError> {
        self.last().wait(deadline)
    }
}

/// What a lane is for. Any lane runs any command; kinds say where to put it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum LaneKind {
    Compute,
    Copy,
    Pack,
    Send,
    Unpack,
}

/// What a lane is, as plain data.
#[derive(Debug)]
pub struct LaneInfo {
    /// What it is called in errors and traces, such as `cpu:0 compute 1`.
    pub name: Arc<str>,
    /// What it is for.
    pub kind: LaneKind,
    /// The device whose lane it is.
    pub device: DeviceSpec,
    /// Vectors for batches to come.
    pub spares: Spares,
    /// Identity, by which guards are taken in one order.
    id: u64,
    order: Mutex<()>,
}

impl LaneInfo {
    /// A description of a new lane.
    pub fn new(name: String, kind: LaneKind, device: DeviceSpec) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let spares = Spares::default();
        Self { name: name.into(), kind, device, spares, id, order: Mutex::new(()) }
    }

    /// Identity: no two lanes of a process have the same, ever.
    pub fn id(&self) -> u64 {
        self.id
    }
}

/// The right to submit to several lanes as one step with respect to all others who hold such a
/// guard.
///
/// Groups submitted under guards are queued in the same order on every lane that they share, so
/// that they cannot wait for each other crosswise. Locks are taken in the order of the lanes'
/// identities: guards never block each other for ever, whatever lanes they name. A thread that
/// holds a guard must not take another.
#[derive(Debug)]
pub struct SubmissionGuard<'a>(#[allow(dead_code)] Vec<MutexGuard<'a, ()>>);

impl<'a> SubmissionGuard<'a> {
    /// Waits until no other guard names any of `lanes`.
    pub fn lock(lanes: impl IntoIterator<Item = &'a dyn Lane>) -> Self {
        let mut infos: Vec<&LaneInfo> = lanes.into_iter().map(|lane| lane.info()).collect();
        infos.sort_by_key(|info| info.id);
        infos.dedup_by_key(|info| info.id);
        let lock = |info: &'a LaneInfo| lock(&info.order);
        Self(infos.into_iter().map(lock).collect())
    }

    /// Calls `submit` while no other guard names any of `lanes`, which come by ascending identity,
    /// each once. Allocates nothing.
    pub fn during<R>(lanes: &mut dyn Iterator<Item = &dyn Lane>, submit: impl FnOnce() -> R) -> R {
        Self::behind(None, lanes, submit)
    }

    fn behind<R>(
        before: Option<u64>,
        lanes: &mut dyn Iterator<Item = &dyn Lane>,
        submit: impl FnOnce() -> R,
    ) -> R {
        let Some(lane) = lanes.next() else { return submit() };
        let info = lane.info();
        assert!(before < Some(info.id), "lane {} is not in order", info.id);
        let _held = lock(&info.order);
        Self::behind(Some(info.id), lanes, submit)
    }
}
