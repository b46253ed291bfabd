//! Batches on their way through a lane.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Instant;

use syncline_device::{CommandTime, DeviceError, Lease, Point, TimelineOwner};

use super::Core;
use crate::semaphore::Semaphore;
use crate::step::{Step, Steps};
use crate::times;
use syncline_sync::lock;

/// A batch on its way.
pub(crate) struct Batch {
    pub(super) lane: Arc<Core>,
    pub(super) owner: Arc<TimelineOwner>,
    pub(super) semaphore: Arc<Semaphore>,
    pub(super) value: u64,
    /// Held until the end: the device may be waiting on their semaphores.
    pub(super) waits: Vec<Point>,
    /// Whether the bridge was told of the pending ones.
    pub(super) watched: bool,
    pub(super) steps: Steps,
    /// The step under way: what it uses must not go before it ends.
    pub(super) current: Option<Step>,
    /// Whether it was handed over with `State::fenced`.
    pub(super) fenced: bool,
    /// Whether it is noted when its commands run.
    pub(super) timed: bool,
    pub(super) signals: Vec<Point>,
    pub(super) task: Option<Arc<str>>,
    pub(super) leases: Vec<Lease>,
}

/// Memory for a batch.
pub(super) type Room = Box<MaybeUninit<Batch>>;

/// Drops `batch`, and returns the memory that it was in.
pub(super) fn vacate(batch: Box<Batch>) -> Room {
    let place = Box::into_raw(batch);
    // SAFETY: the address is that of a batch that was ours. It is dropped once: from here on its
    // memory counts as uninitialised.
    unsafe {
        std::ptr::drop_in_place(place);
        Box::from_raw(place.cast())
    }
}

impl Batch {
    /// The device is done with what was submitted, or lost.
    pub(crate) fn landed(self: Box<Self>, result: Result<(), DeviceError>) {
        let lane = self.lane.clone();
        if let (true, Ok(()), Some(Step::Device(recorded))) = (self.timed, &result, &self.current) {
            let mut times = lock(&lane.times);
            for (base, recorded) in recorded.iter() {
                if let Some(stamps) = &recorded.stamps {
                    stamps.read(self.value, *base, &mut times);
                }
            }
        }
        match result {
            Err(cause) => lane.fail(self, cause),
            Ok(()) if self.steps.is_empty() => lane.complete(self, false),
            Ok(()) => lane.go_on(self),
        }
    }

    /// The host is done with its step.
    pub(crate) fn host_done(self: Box<Self>, result: Result<(), DeviceError>) {
        let lane = self.lane.clone();
        match result {
            Err(cause) => lane.fail(self, cause),
            Ok(()) if self.steps.is_empty() => lane.complete(self, true),
            Ok(()) => lane.go_on(self),
        }
    }

    /// Whether its first step, or the one that is next, is the host's.
    pub(super) fn begins_on_host(&self) -> bool {
        self.steps.begin_on_host()
    }

    pub(crate) fn take_step(&mut self) -> Option<Step> {
        self.current.take()
    }

    /// Notes when a command ran that the host did, if that is wanted.
    pub(crate) fn note_time(&self, command: u32, began: Instant) {
        if self.timed {
            let time = CommandTime { value: self.value, command, began, ended: Instant::now() };
            times::note(&mut lock(&self.lane.times), time);
        }
    }

    /// Returns the id of the lane that runs the batch, if the batch uses buffers.
    pub(crate) fn lane_id(&self) -> Option<u64> {
        self.leases.first().map(Lease::lane)
    }

    pub(crate) fn task(&self) -> Option<&Arc<str>> {
        self.task.as_ref()
    }
}
