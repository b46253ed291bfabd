//! Where CPU lanes and lanes of devices wait for each other.
//!
//! A device lane signals a timeline of its own, and a CPU lane that waits for it watches that. A
//! CPU lane that a device waits for has a timeline here, which it signals where it is awaited; a
//! lane that ends early fails it, so that what waits for it on a device never begins. No third
//! thread stands between the two.

use std::cell::UnsafeCell;

use syncline_device::{DeviceError, Point, Timeline};

/// The points by which the lanes of the two kinds know each other.
///
/// The rule of `shared` holds: points and timelines are written only by the owner of the loaded
/// plan, while no lane runs, and read by lanes only during a run.
#[derive(Debug)]
pub struct Bridge {
    /// By lane of the plan.
    sides: Box<[Side]>,
    meeting: UnsafeCell<Meeting>,
}

// SAFETY: `meeting` follows the rule above; the rest never changes.
unsafe impl Sync for Bridge {}

/// What a lane is to the other side.
#[derive(Clone, Debug)]
pub enum Side {
    /// Runs on the host.
    Cpu {
        /// How many ops it has: what its timeline grows by with each run.
        ops: u64,
        /// Whether a device waits for it.
        announces: bool,
    },
    /// Runs on a device; here is which count of ops each of its batches ends at.
    Device {
        /// Sorted.
        ends: Box<[u32]>,
    },
}

/// What changes from run to run, by lane of the plan.
#[derive(Debug, Default)]
pub struct Meeting {
    /// Of CPU lanes that a device waits for.
    timelines: Vec<Option<Timeline>>,
    /// Of device lanes: a point for each batch that was submitted.
    points: Vec<Vec<Point>>,
}

impl Bridge {
    pub fn new(sides: Box<[Side]>) -> Self {
        let meeting =
            Meeting { timelines: vec![None; sides.len()], points: vec![Vec::new(); sides.len()] };
        Self { sides, meeting: UnsafeCell::new(meeting) }
    }

    /// Whether `lane` is one of a device.
    #[inline]
    pub fn is_device(&self, lane: usize) -> bool {
        matches!(self.sides[lane], Side::Device { .. })
    }

    /// Points and timelines, to write them.
    ///
    /// # Safety
    /// By the one owner of the loaded plan, while no lane of the plan runs.
    #[allow(clippy::mut_from_ref)]
    unsafe fn meeting_mut(&self) -> &mut Meeting {
        // SAFETY: by the rule of this module nobody else touches it now.
        unsafe { &mut *self.meeting.get() }
    }

    /// # Safety
    /// During a run, or by the owner while no lane runs.
    unsafe fn meeting(&self) -> &Meeting {
        // SAFETY: by the rule of this module nobody writes it now.
        unsafe { &*self.meeting.get() }
    }

    /// Forgets the points of the run before, and replaces timelines that have failed. `number` is
    /// that of the run to come, from one.
    ///
    /// # Safety
    /// By the one owner of the loaded plan, while no lane of the plan runs.
    pub unsafe fn begin(&self, number: u64) {
        // SAFETY: the caller's promise.
        let meeting = unsafe { self.meeting_mut() };
        meeting.points.iter_mut().for_each(Vec::clear);
        for (lane, (side, timeline)) in self.sides.iter().zip(&mut meeting.timelines).enumerate() {
            let Side::Cpu { ops, announces: true } = side else { continue };
            let works = timeline.as_ref().is_some_and(|timeline| timeline.failure().is_none());
            if !works {
                let label = format!("plan's lane {lane}");
                *timeline = Some(Timeline::new(&label, (number - 1) * ops));
            }
        }
    }

    /// Adds the point of the batch of `lane` that was submitted next.
    ///
    /// # Safety
    /// By the one owner of the loaded plan, while no lane of the plan runs.
    pub unsafe fn submitted(&self, lane: usize, point: Point) {
        // SAFETY: the caller's promise.
        unsafe { self.meeting_mut() }.points[lane].push(point);
    }

    /// The point at which `count` ops of `lane` are done in run `number`; `None` if the lane is a
    /// device's and the batch was never submitted.
    ///
    /// # Safety
    /// During a run, or by the owner while no lane runs.
    pub unsafe fn point(&self, lane: usize, count: u32, number: u64) -> Option<Point> {
        // SAFETY: the caller's promise.
        let meeting = unsafe { self.meeting() };
        match &self.sides[lane] {
            Side::Device { ends } => {
                let batch = ends.binary_search(&count).expect("who is awaited ends a batch");
                meeting.points[lane].get(batch).cloned()
            }
            Side::Cpu { ops, .. } => {
                let timeline = meeting.timelines[lane].as_ref();
                let timeline = timeline.expect("who is awaited by a device announces");
                Some(timeline.point((number - 1) * ops + u64::from(count)))
            }
        }
    }

    /// The points of the batches of `lane` that were submitted.
    ///
    /// # Safety
    /// During a run, or by the owner while no lane runs.
    pub unsafe fn points(&self, lane: usize) -> &[Point] {
        // SAFETY: the caller's promise.
        &unsafe { self.meeting() }.points[lane]
    }

    /// Lets devices know that CPU lane `lane` has come to `value`, counted over all runs.
    ///
    /// # Safety
    /// During a run, by the thread that runs the lane.
    pub unsafe fn announce(&self, lane: usize, value: u64) {
        // SAFETY: the caller's promise.
        if let Some(timeline) = &unsafe { self.meeting() }.timelines[lane] {
            // An error means that the lane gave up before: nobody waits for it any more.
            let _ = timeline.signal(value);
        }
    }

    /// CPU lane `lane` goes no further in this run: what waits for it on a device must not begin.
    ///
    /// # Safety
    /// During a run, by the thread that runs the lane.
    pub unsafe fn give_up(&self, lane: usize) {
        // SAFETY: the caller's promise.
        if let Some(timeline) = &unsafe { self.meeting() }.timelines[lane] {
            let reason = "the run of the plan was stopped".into();
            // Nobody but the plan signals or fails it, so there is nothing to refuse.
            let _ = timeline.fail(DeviceError::Cancelled { reason });
        }
    }
}
