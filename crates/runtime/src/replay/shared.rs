//! What the threads of a loaded plan share.
//!
//! The only file of replay with `unsafe` besides the calls that open arguments. The rule it rests on: the tables below
//! are written only by the owner of the [`LoadedPlan`](super::LoadedPlan), through `&mut`, while no run is under way;
//! lanes read them only during a run. A run begins and ends with an acquire of what the other side released.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use syncline_device::{Deadline, RawArg};
use syncline_plan::{OpIndex, Wait};

use super::body::{Outcome, TaskArgs, TaskBody};
use super::error::RunError;
use super::lane::{Patience, Progress};
use super::run::{Names, OpTime};

/// One op, ready to be called.
#[derive(Debug)]
pub struct Step {
    pub body: TaskBody,
    pub args_start: u32,
    pub args_len: u32,
}

/// Steps with waits before the first one only, and somebody waiting for the last one only.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub waits_start: u32,
    pub waits_end: u32,
    pub steps_end: u32,
    pub publishes: bool,
}

/// The work of one lane.
#[derive(Debug)]
pub struct LaneWork {
    pub steps: Box<[Step]>,
    pub segments: Box<[Segment]>,
    pub waits: Box<[Wait]>,
    /// Number of the first op in the plan.
    pub first: OpIndex,
    args: UnsafeCell<Box<[RawArg]>>,
    times: UnsafeCell<Box<[OpTime]>>,
}

// SAFETY: the two cells follow the rule of this module; everything else is `Sync` by itself.
unsafe impl Sync for LaneWork {}

impl LaneWork {
    pub fn new(
        steps: Box<[Step]>,
        segments: Box<[Segment]>,
        waits: Box<[Wait]>,
        first: OpIndex,
        args: Box<[RawArg]>,
    ) -> Self {
        let times = vec![OpTime::default(); steps.len()].into();
        Self {
            steps,
            segments,
            waits,
            first,
            args: UnsafeCell::new(args),
            times: UnsafeCell::new(times),
        }
    }

    /// The arguments of all steps.
    ///
    /// # Safety
    /// During a run, or with no run under way and nobody in [`LaneWork::args_mut`].
    #[inline]
    pub unsafe fn args(&self) -> &[RawArg] {
        // SAFETY: by the rule of this module nobody writes them now.
        unsafe { &*self.args.get() }
    }

    /// The arguments, to bind them.
    ///
    /// # Safety
    /// With no run under way, and by the one owner of the loaded plan.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn args_mut(&self) -> &mut [RawArg] {
        // SAFETY: by the rule of this module nobody else touches them now.
        unsafe { &mut *self.args.get() }
    }

    /// Where the lane notes its times.
    ///
    /// # Safety
    /// By the lane's own thread during a run, or by the owner with no run under way.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn times_mut(&self) -> &mut [OpTime] {
        // SAFETY: by the rule of this module nobody else touches them now.
        unsafe { &mut *self.times.get() }
    }

    /// Calls step number `at`.
    ///
    /// # Safety
    /// During a run, when everything that the step waits for has been done.
    #[inline(always)]
    pub unsafe fn call(&self, step: &Step, args: &[RawArg]) -> Outcome {
        let range = step.args_start as usize..(step.args_start + step.args_len) as usize;
        // SAFETY: the plan is proven: whatever conflicts with this op is ordered before or after it, and what is before
        // has been done; memory bound to the plan is claimed for the whole run, arenas belong to it; views lie inside
        // their memories, and all of it is initialised.
        step.body.call(unsafe { TaskArgs::new(&args[range]) })
    }
}

/// How a run is to be done.
#[derive(Clone, Copy, Debug)]
pub struct RunMode {
    /// Number of the run, from one.
    pub number: u64,
    pub deadline: Deadline,
    pub is_timed: bool,
    /// When a timed run began.
    pub began: Instant,
}

/// Everything that the lanes of one loaded plan share.
#[derive(Debug)]
pub struct Shared {
    pub lanes: Box<[LaneWork]>,
    pub progress: Box<[Progress]>,
    pub patience: Patience,
    /// Raised to the number of a run when it begins.
    pub started: Progress,
    pub stop: AtomicU32,
    pub is_closing: AtomicBool,
    pub failure: Mutex<Option<RunError>>,
    /// Whether a body was left out, or did not come to its end.
    pub skipped: AtomicBool,
    pub names: Names,
    mode: UnsafeCell<RunMode>,
}

// SAFETY: `mode` follows the rule of this module; everything else is `Sync` by itself.
unsafe impl Sync for Shared {}

impl Shared {
    pub fn new(lanes: Box<[LaneWork]>, patience: Patience, names: Names, now: Instant) -> Self {
        let progress = lanes.iter().map(|_| Progress::default()).collect();
        let mode = RunMode { number: 0, deadline: Deadline::NEVER, is_timed: false, began: now };
        Self {
            lanes,
            progress,
            patience,
            started: Progress::default(),
            stop: AtomicU32::new(0),
            is_closing: AtomicBool::new(false),
            failure: Mutex::new(None),
            skipped: AtomicBool::new(false),
            names,
            mode: UnsafeCell::new(mode),
        }
    }

    /// How the run is to be done.
    ///
    /// # Safety
    /// During a run, or by the owner with none under way.
    #[inline]
    pub unsafe fn mode(&self) -> RunMode {
        // SAFETY: by the rule of this module nobody writes it now.
        unsafe { *self.mode.get() }
    }

    /// Says how the next run is to be done.
    ///
    /// # Safety
    /// With no run under way, by the one owner of the loaded plan.
    pub unsafe fn set_mode(&self, mode: RunMode) {
        // SAFETY: by the rule of this module nobody reads it now.
        unsafe { *self.mode.get() = mode }
    }

    /// Whether the run is to end early.
    #[inline(always)]
    pub fn is_stopped(&self) -> bool {
        // Relaxed: a lane that waited has acquired what the other lane had seen; one that did not wait may run on.
        self.stop.load(Ordering::Relaxed) != 0
    }

    /// The place of a range of steps in a slice.
    pub fn range(start: u32, end: u32) -> Range<usize> {
        start as usize..end as usize
    }
}
