//! What the threads that run a loaded plan share.
//!
//! The only file of replay with `unsafe` besides `lane.rs` and the calls that open arguments. The rule it rests
//! on: the tables below are written only by the owner of the [`LoadedPlan`](super::LoadedPlan),
//! through `&mut`, while no run is under way; lanes read them only during a run. How a run is to be
//! done is written before it begins and stays until it has ended. A run begins and ends with an
//! acquire of what the other side released.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::ThreadId;
use std::time::Instant;

use syncline_device::cpu::WorkersHandle;
use syncline_device::{Deadline, RawArg, Wake};
use syncline_plan::OpIndex;

use syncline_sync::shim::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use syncline_sync::{CachePadded, EventCount, Spin};

use super::apart::Apart;
use super::body::{Call, Outcome, TaskArgs};
use super::bridge::Bridge;
use super::error::RunError;
use super::lane::{Progress, Seat};
use super::run::OpTime;
use super::steal::Board;
use super::stop::{Names, Stop};

/// How many runs may be under way at a time: one that ends, one that begins, and some to keep lanes
/// from waiting for whoever starts runs.
pub const RUNS_MAX: u64 = 4;

/// One op, ready to be called.
pub struct Step {
    pub body: Box<Call>,
    pub args_start: u32,
    pub args_len: u32,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Step({} arguments)", self.args_len)
    }
}

/// A run of steps without internal synchronisation: waits precede the first step, and only the last
/// is awaited by another lane. A lane of a device has a batch for each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment {
    pub waits_start: u32,
    pub waits_end: u32,
    pub steps_end: u32,
    pub publishes: bool,
    /// Whether a lane of a device waits for the last one, too.
    pub announces: bool,
}

/// A wait for another lane: in run `n`, for its progress to be `n * steps - back`.
#[derive(Clone, Copy, Debug)]
pub struct LaneWait {
    pub lane: u32,
    /// How many steps the lane has.
    pub steps: u32,
    /// How far from the end of run `n`: less than `steps` for a wait within a run, more for one in
    /// the run before.
    pub back: u64,
}

impl LaneWait {
    /// Returns how many steps of the lane a wait within a run is for.
    pub fn count(&self) -> u32 {
        self.steps - self.back as u32
    }
}

/// Where a lane waits and where it says how far it is.
#[derive(Debug, Default)]
pub struct Route {
    pub segments: Box<[Segment]>,
    pub waits: Box<[LaneWait]>,
}

impl Route {
    /// Returns the steps of segment number `at`, by their places in the lane.
    pub fn steps(&self, at: usize) -> Range<u32> {
        let start = at.checked_sub(1).map_or(0, |before| self.segments[before].steps_end);
        start..self.segments[at].steps_end
    }

    /// Returns what `segment` waits for.
    #[inline]
    pub fn waits_of(&self, segment: &Segment) -> &[LaneWait] {
        &self.waits[segment.waits_start as usize..segment.waits_end as usize]
    }
}

/// The work of one lane.
#[derive(Debug)]
pub struct LaneWork {
    pub steps: Box<[Step]>,
    /// Number of the first op in the plan.
    pub first: OpIndex,
    route: UnsafeCell<Route>,
    args: UnsafeCell<Box<[RawArg]>>,
    times: Box<[UnsafeCell<OpTime>]>,
}

// SAFETY: the cells follow the rule of this module; everything else is `Sync` by itself.
unsafe impl Sync for LaneWork {}

impl LaneWork {
    pub fn new(steps: Box<[Step]>, route: Route, first: OpIndex, args: Box<[RawArg]>) -> Self {
        let times = steps.iter().map(|_| UnsafeCell::new(OpTime::default())).collect();
        let (route, args) = (UnsafeCell::new(route), UnsafeCell::new(args));
        Self { steps, first, route, args, times }
    }

    /// A lane that runs on a device: `ops` ops, which no thread calls.
    pub fn elsewhere(first: OpIndex, ops: usize) -> Self {
        let nothing = Self::new([].into(), Route::default(), first, [].into());
        let times = (0..ops).map(|_| UnsafeCell::new(OpTime::default())).collect();
        Self { times, ..nothing }
    }

    /// How many ops the lane has, wherever they run.
    pub fn ops(&self) -> usize {
        self.times.len()
    }

    /// Where the lane waits.
    ///
    /// # Safety
    /// During a run, or with no run under way and by the owner.
    #[inline]
    pub unsafe fn route(&self) -> &Route {
        // SAFETY: by the rule of this module nobody writes it now.
        unsafe { &*self.route.get() }
    }

    /// Makes the lane wait elsewhere from the next run on.
    ///
    /// # Safety
    /// With no run under way, and by the one owner of the loaded plan.
    pub unsafe fn set_route(&self, route: Route) {
        // SAFETY: by the rule of this module nobody else touches it now.
        unsafe { *self.route.get() = route };
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

    /// When step number `at` ran in the last timed run.
    ///
    /// # Safety
    /// With no run under way, and by the owner.
    pub unsafe fn time(&self, at: usize) -> OpTime {
        // SAFETY: by the rule of this module nobody writes it now.
        unsafe { *self.times[at].get() }
    }

    /// Notes when step number `at` ran.
    ///
    /// # Safety
    /// During a run, by the thread that called the step in that run; for a lane that runs on a
    /// device, by the owner.
    pub unsafe fn set_time(&self, at: usize, time: OpTime) {
        // SAFETY: a step is called by one thread in a run, and successive runs are ordered for it;
        // the owner reads times only between runs.
        unsafe { *self.times[at].get() = time };
    }

    /// Calls a step.
    ///
    /// # Safety
    /// During a run, when everything that the step waits for has been done.
    #[inline(always)]
    pub unsafe fn call(&self, step: &Step, args: &[RawArg]) -> Outcome {
        let range = step.args_start as usize..(step.args_start + step.args_len) as usize;
        // SAFETY: the plan is proven: whatever conflicts with this op is ordered before or after
        // it, and what is before has been done; memory bound to the plan is claimed for the whole
        // run, arenas belong to it; views lie inside their memories, and all of it is initialised.
        (step.body)(unsafe { TaskArgs::new(&args[range]) })
    }
}

/// How a run is to be done.
#[derive(Clone, Copy, Debug)]
pub struct RunMode {
    /// Number of the run, from one.
    pub number: u64,
    pub deadline: Deadline,
    pub is_timed: bool,
    /// The thread that holds the buffers of the run.
    pub binder: ThreadId,
    /// When a timed run began.
    pub began: Instant,
}

/// A run that is under way.
#[derive(Debug)]
struct RunSlot {
    mode: UnsafeCell<RunMode>,
    /// Number of the last run in this slot that left out a body, or in which one did not come to
    /// its end.
    skipped: AtomicU64,
}

/// Everything that the lanes of one loaded plan share.
#[derive(Debug)]
pub struct Shared {
    own: Weak<Self>,
    pub lanes: Box<[LaneWork]>,
    pub progress: Box<[Progress]>,
    pub seats: Box<[Seat]>,
    /// By lane, who runs it beside threads that wait for the plan: number of a device's workers, or
    /// `None` for a lane that has nothing to do here.
    pub crew_of: Box<[Option<usize>]>,
    pub crews: Box<[WorkersHandle]>,
    /// Lanes that have something to do and that nobody has, and threads that are parked.
    pub unattended: CachePadded<AtomicU32>,
    /// Threads that wait for the plan and are parked at `news`.
    pub waiters: CachePadded<AtomicU32>,
    /// Those among them that run lanes meanwhile.
    pub helpers: CachePadded<AtomicU32>,
    pub news: EventCount,
    pub spin: Spin,
    pub apart: Apart,
    /// Raised to the number of a run when it begins.
    pub started: Progress,
    pub stop: Stop,
    pub names: Names,
    /// Between lanes that are threads and lanes of devices.
    pub bridge: Bridge,
    /// There once idle lanes have taken others' ops.
    board: OnceLock<Board>,
    /// By op: the lane that ran it in the last timed run.
    pub ran_on: Box<[AtomicU16]>,
    slots: [RunSlot; RUNS_MAX as usize],
}

// SAFETY: the slots follow the rule of this module; everything else is `Sync` by itself.
unsafe impl Sync for Shared {}

impl Shared {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        own: Weak<Self>,
        lanes: Box<[LaneWork]>,
        (crews, crew_of): (Box<[WorkersHandle]>, Box<[Option<usize>]>),
        own_lane: usize,
        bridge: Bridge,
        spin: Spin,
        apart: Apart,
        names: Names,
        now: Instant,
    ) -> Self {
        let (deadline, binder) = (Deadline::NEVER, std::thread::current().id());
        let mode = RunMode { number: 0, deadline, is_timed: false, binder, began: now };
        let unattended = (crew_of.iter().enumerate())
            .filter(|(lane, crew)| crew.is_some() && *lane != own_lane)
            .count();
        let slot = || RunSlot { mode: UnsafeCell::new(mode), skipped: AtomicU64::new(0) };
        let planned = lanes.iter().enumerate();
        let ran_on = planned.flat_map(|(at, lane)| (0..lane.ops()).map(move |_| at as u16));
        Self {
            own,
            progress: lanes.iter().map(|_| Progress::default()).collect(),
            seats: (0..lanes.len()).map(|lane| Seat::new(lane == own_lane)).collect(),
            unattended: CachePadded::new(AtomicU32::new(unattended as u32)),
            waiters: CachePadded::default(),
            helpers: CachePadded::default(),
            news: EventCount::new(),
            crew_of,
            crews,
            spin,
            apart,
            started: Progress::default(),
            stop: Stop::new(),
            names,
            bridge,
            board: OnceLock::new(),
            ran_on: ran_on.map(AtomicU16::new).collect(),
            slots: std::array::from_fn(|_| slot()),
            lanes,
        }
    }

    /// What wakes the lanes that wait for a device.
    pub fn waker(&self) -> Option<Arc<dyn Wake>> {
        self.own.upgrade().map(|own| own as Arc<dyn Wake>)
    }

    /// The board, if idle lanes take others' ops.
    #[inline]
    pub fn board(&self) -> Option<&Board> {
        self.board.get()
    }

    /// Makes idle lanes take others' ops from the next run on, when no run is under way.
    pub fn set_board(&self, board: Board) {
        self.board.set(board).expect("it is set once");
    }

    fn slot(&self, number: u64) -> &RunSlot {
        &self.slots[(number % RUNS_MAX) as usize]
    }

    /// How run `number` is to be done.
    ///
    /// # Safety
    /// While that run is under way.
    #[inline]
    pub unsafe fn mode(&self, number: u64) -> RunMode {
        // SAFETY: by the rule of this module it is not written before the run has ended.
        unsafe { *self.slot(number).mode.get() }
    }

    /// Says how a run is to be done.
    ///
    /// # Safety
    /// Before it begins, by the one owner of the loaded plan, when the run [`RUNS_MAX`] before has
    /// ended.
    pub unsafe fn set_mode(&self, mode: RunMode) {
        // SAFETY: by the rule of this module nobody reads it: the run that did has ended.
        unsafe { *self.slot(mode.number).mode.get() = mode }
    }

    /// Notes that run `number` left out a body, or that one did not come to its end.
    #[cold]
    pub fn skip(&self, number: u64) {
        self.slot(number).skipped.store(number, Ordering::Release);
    }

    /// Whether run `number`, which has ended, left out a body.
    pub fn has_skipped(&self, number: u64) -> bool {
        self.slot(number).skipped.load(Ordering::Acquire) == number
    }

    /// Whether run `number` has ended on all lanes.
    pub fn has_ended(&self, number: u64) -> bool {
        match self.board() {
            Some(board) => board.has_ended(number),
            None => (self.progress.iter().zip(&self.lanes))
                .all(|(progress, lane)| progress.get() >= number * lane.steps.len() as u64),
        }
    }

    /// Waits until run `number` has ended on all lanes.
    #[inline]
    pub fn wait_for_end(&self, number: u64) {
        self.wait_for_end_until(number, Deadline::NEVER);
    }

    /// As [`Shared::wait_for_end`], until the deadline at most. Returns
    /// `false` if it passed first.
    #[inline]
    pub fn wait_for_end_until(&self, number: u64, deadline: Deadline) -> bool {
        self.has_ended(number) || self.attend(false, deadline, || self.has_ended(number))
    }

    /// What run `number`, which has ended, came to.
    #[inline]
    pub fn outcome(&self, number: u64) -> Result<(), RunError> {
        self.stop.outcome(number, || self.has_skipped(number))
    }
}
