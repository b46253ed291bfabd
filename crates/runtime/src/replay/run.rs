//! Runs: what each lane does, how a run begins and ends.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use syncline_device::Deadline;
use syncline_plan::{CostModel, ExecutionPlan, OpIndex, OpKind};

use super::bind::Claims;
use super::body::Outcome;
use super::error::RunError;
use super::load::LoadedPlan;
use super::shared::{LaneWork, RunMode, Segment, Shared};

/// Why a run stops early; what `Shared::stop` holds.
pub(super) const STOP_FAILED: u32 = 1;
pub(super) const STOP_CANCELLED: u32 = 2;
pub(super) const STOP_DEADLINE: u32 = 3;

/// When an op ran, in nanoseconds from the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpTime {
    /// When its body was called.
    pub start_ns: u64,
    /// When its body returned.
    pub end_ns: u64,
}

/// Stops the run of a loaded plan from any thread.
///
/// Bodies that have begun come to their ends, others do not begin. Between runs it does nothing.
#[derive(Clone, Debug)]
pub struct Canceller(pub(super) Arc<Shared>);

impl Canceller {
    /// Stops the run that is under way, if there is one.
    pub fn cancel(&self) {
        stop(&self.0, STOP_CANCELLED);
    }
}

/// The first reason counts.
fn stop(shared: &Shared, why: u32) -> bool {
    shared.stop.compare_exchange(0, why, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// A loaded plan with memory bound to it, to be run any number of times.
///
/// While it lives, the host and other work keep off what the plan writes.
#[derive(Debug)]
pub struct BoundPlan<'a> {
    pub(super) plan: &'a mut LoadedPlan,
    pub(super) _claims: Claims<'a>,
}

impl BoundPlan<'_> {
    /// Runs the plan once and returns when all of it is done.
    pub fn run(&mut self) -> Result<(), RunError> {
        self.run_until(Deadline::NEVER)
    }

    /// As [`BoundPlan::run`]; no body begins after `deadline`.
    pub fn run_until(&mut self, deadline: Deadline) -> Result<(), RunError> {
        self.plan.run_bound(deadline, false)
    }

    /// As [`BoundPlan::run`], and notes when each op ran; see [`LoadedPlan::times`].
    pub fn run_timed(&mut self) -> Result<(), RunError> {
        self.plan.run_bound(Deadline::NEVER, true)
    }

    /// Adds what the last timed run took to `costs`, for the next plan to be better.
    pub fn observe(&mut self, costs: &mut CostModel) {
        self.plan.observe(costs);
    }
}

impl LoadedPlan {
    fn run_bound(&mut self, deadline: Deadline, is_timed: bool) -> Result<(), RunError> {
        let shared = &*self.shared;
        // Release: whoever sees the run begin sees no stop of the one before.
        shared.stop.store(0, Ordering::Release);
        shared.skipped.store(false, Ordering::Release);
        // SAFETY: `&mut self` and the wait at the end of each run: none is under way.
        let number = unsafe { shared.mode() }.number + 1;
        // Reading the clock costs as much as several bodies.
        let began = if is_timed { Instant::now() } else { self.loaded_at };
        let mode = RunMode { number, deadline, is_timed, began };
        // SAFETY: as above.
        unsafe { shared.set_mode(mode) };
        if self.threads.is_empty() {
            run_lane(shared, self.own_lane, mode);
        } else {
            shared.started.publish(number);
            run_lane(shared, self.own_lane, mode);
            for (lane, progress) in shared.progress.iter().enumerate() {
                progress.wait(number * shared.lanes[lane].steps.len() as u64, shared.patience);
            }
        }
        match shared.stop.load(Ordering::Acquire) {
            0 => Ok(()),
            STOP_CANCELLED => self.ended_early(RunError::Cancelled),
            STOP_DEADLINE => self.ended_early(RunError::DeadlinePassed),
            _ => {
                let mut failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
                Err(failure.take().expect("a lane that fails says why before it stops the run"))
            }
        }
    }

    /// A stop that came after the last body began has stopped nothing.
    #[cold]
    fn ended_early(&self, error: RunError) -> Result<(), RunError> {
        let skipped = self.shared.skipped.load(Ordering::Acquire);
        if skipped { Err(error) } else { Ok(()) }
    }

    /// When each op ran in the last timed run; zero before there was one. By number of op.
    pub fn times(&mut self) -> Vec<OpTime> {
        let lanes = self.shared.lanes.iter();
        // SAFETY: `&mut self`: no run is under way, and this is the owner.
        lanes.flat_map(|lane| unsafe { lane.times_mut() }.to_vec()).collect()
    }

    /// Adds what the last timed run took to `costs`.
    pub fn observe(&mut self, costs: &mut CostModel) {
        let times = self.times();
        let plan = Arc::clone(&self.plan);
        for (op, time) in plan.ops().iter().zip(times) {
            if let OpKind::Task(task) = op.kind
                && time.end_ns > 0
            {
                let info = plan.task(task);
                let device = &plan.machine().devices()[plan.device_of(task).index()].name;
                let bytes = info.args().map(|arg| arg.view.bytes()).fold(0, u64::saturating_add);
                costs.observe(info.kernel(), device, bytes, time.end_ns - time.start_ns);
            }
        }
    }
}

/// Runs one lane to its end, whatever happens.
pub(super) fn run_lane(shared: &Shared, lane: usize, mode: RunMode) {
    let work = &shared.lanes[lane];
    let count = work.steps.len() as u64;
    let at = Cell::new(0);
    let outcome = catch_unwind(AssertUnwindSafe(|| match mode.is_timed {
        false => execute::<false>(shared, lane, mode, &at),
        true => execute::<true>(shared, lane, mode, &at),
    }));
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(cause)) => fail(shared, work, at.get(), Failure::Error(cause.0)),
        Err(panic) => {
            fail(shared, work, at.get(), Failure::Panic(panic_text(&*panic)));
            // What was thrown may panic again when dropped, and then the lane's end would never be published.
            std::mem::forget(panic);
        }
    }
    shared.progress[lane].publish(mode.number * count);
}

fn execute<const TIMED: bool>(
    shared: &Shared,
    lane: usize,
    mode: RunMode,
    at: &Cell<usize>,
) -> Outcome {
    let work = &shared.lanes[lane];
    let base = (mode.number - 1) * work.steps.len() as u64;
    // SAFETY: this is the lane's thread during a run.
    let args = unsafe { work.args() };
    let mut start = 0;
    for segment in &work.segments {
        wait_for(shared, work, segment, mode);
        if mode.deadline.has_passed() {
            stop(shared, STOP_DEADLINE);
        }
        let end = segment.steps_end as usize;
        for (place, step) in (start..end).zip(&work.steps[start..end]) {
            if shared.is_stopped() {
                shared.skipped.store(true, Ordering::Release);
                return Ok(());
            }
            at.set(place);
            if TIMED {
                let start_ns = mode.began.elapsed().as_nanos() as u64;
                // SAFETY: during a run, after the segment's waits and the steps before.
                unsafe { work.call(step, args)? };
                let end_ns = mode.began.elapsed().as_nanos() as u64;
                // SAFETY: this is the lane's own thread during a run.
                unsafe { work.times_mut()[place] = OpTime { start_ns, end_ns } };
            } else {
                // SAFETY: during a run, after the segment's waits and the steps before.
                unsafe { work.call(step, args)? };
            }
        }
        if segment.publishes {
            shared.progress[lane].publish(base + end as u64);
        }
        start = end;
    }
    Ok(())
}

#[inline]
fn wait_for(shared: &Shared, work: &LaneWork, segment: &Segment, mode: RunMode) {
    for wait in &work.waits[Shared::range(segment.waits_start, segment.waits_end)] {
        let lane = wait.lane.index();
        let base = (mode.number - 1) * shared.lanes[lane].steps.len() as u64;
        shared.progress[lane].wait(base + u64::from(wait.count), shared.patience);
    }
}

enum Failure {
    Error(String),
    Panic(String),
}

#[cold]
fn fail(shared: &Shared, work: &LaneWork, at: usize, failure: Failure) {
    let op = OpIndex(work.first.0 + at as u32);
    let error = shared.names.error(op, failure_parts(failure));
    let mut first = shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
    // Said before the run is stopped, so that the reason is there when the stop is seen. A later failure of another
    // lane, or a failure after a cancel, is not the reason of the stop.
    if shared.stop.load(Ordering::SeqCst) == 0 {
        *first = Some(error);
        if !stop(shared, STOP_FAILED) {
            *first = None;
        }
    }
    shared.skipped.store(true, Ordering::Release);
}

fn failure_parts(failure: Failure) -> (bool, String) {
    match failure {
        Failure::Error(cause) => (false, cause),
        Failure::Panic(cause) => (true, cause),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(|text| &**text));
    text.unwrap_or("a panic without a message").to_owned()
}

/// What an op is called in errors.
#[derive(Debug)]
pub(super) struct Names(pub(super) Arc<ExecutionPlan>);

impl Names {
    fn error(&self, op: OpIndex, (panicked, cause): (bool, String)) -> RunError {
        let (task, index) = match self.0.ops()[op.index()].kind {
            OpKind::Task(task) => (self.0.task(task).name().to_owned(), task),
            OpKind::Copy(copy) => (format!("copy {copy}"), syncline_plan::TaskIndex(u32::MAX)),
        };
        match panicked {
            true => RunError::Panicked { task, index, cause },
            false => RunError::Failed { task, index, cause },
        }
    }
}
