//! What a lane does in a run: its ops in order, or whatever is ready.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use syncline_device::blocked::act_for;
use syncline_device::{Deadline, DeviceError};
use syncline_plan::OpIndex;

use super::body::Outcome;
use super::lane::Progress;
use super::shared::{LaneWait, LaneWork, RunMode, Shared};
use super::steal::Board;
use super::stop::{Failure, Stop, Why};

/// When an op ran, in nanoseconds from the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpTime {
    /// When its body was called.
    pub start_ns: u64,
    /// When its body returned.
    pub end_ns: u64,
}

/// Takes part in run `number` as `lane`; `started` says which runs have begun. With `board`, lanes
/// steal in it.
#[inline]
pub fn take_part(
    shared: &Shared,
    board: Option<&Board>,
    lane: usize,
    number: u64,
    started: &Progress,
) {
    match board {
        Some(board) => board.work(shared, lane, number, started),
        // The run ends without lanes that have nothing to do.
        None if shared.lanes[lane].steps.is_empty() => {}
        // SAFETY: the run has begun, and does not end before this lane has.
        None => run_lane(shared, lane, unsafe { shared.mode(number) }),
    }
}

/// Runs one lane in its order to its end, whatever happens.
pub fn run_lane(shared: &Shared, lane: usize, mode: RunMode) {
    let work = &shared.lanes[lane];
    let count = work.steps.len() as u64;
    let at = Cell::new(0);
    let _acts = act_for(mode.binder);
    let outcome = catch_unwind(AssertUnwindSafe(|| match (mode.is_timed, mode.is_limited()) {
        (false, false) => execute::<false, false>(shared, lane, mode, &at),
        (false, true) => execute::<false, true>(shared, lane, mode, &at),
        (true, false) => execute::<true, false>(shared, lane, mode, &at),
        (true, true) => execute::<true, true>(shared, lane, mode, &at),
    }));
    if let Some(failure) = failure_of(outcome) {
        fail(shared, OpIndex(work.first.0 + at.get() as u32), mode.number, failure);
    }
    if shared.stop.is_below(Stop::limit(mode.number)) {
        // SAFETY: this is the lane's thread during a run.
        unsafe { shared.bridge.give_up(lane) };
    }
    // The last thing that this thread does in the run.
    shared.progress[lane].publish(mode.number * count);
}

/// Runs the ops of a lane in order. Without `LIMITED` the run has no deadline, and what a deadline
/// costs each op is not compiled.
fn execute<const TIMED: bool, const LIMITED: bool>(
    shared: &Shared,
    lane: usize,
    mode: RunMode,
    at: &Cell<usize>,
) -> Outcome {
    let work = &shared.lanes[lane];
    let base = (mode.number - 1) * work.steps.len() as u64;
    // SAFETY: during a run.
    let (route, args) = unsafe { (work.route(), work.args()) };
    let mut start = 0;
    for segment in &route.segments {
        for wait in route.waits_of(segment) {
            if shared.bridge.is_device(wait.lane as usize) {
                wait_for_device(shared, wait, mode);
                continue;
            }
            // Nothing is below zero in the first run, which has none before it.
            let value = (mode.number * u64::from(wait.steps)).saturating_sub(wait.back);
            shared.progress[wait.lane as usize].wait(value, shared.spin);
        }
        let end = segment.steps_end as usize;
        for (place, step) in (start..end).zip(&work.steps[start..end]) {
            if mode.must_stop_if::<LIMITED>(&shared.stop) {
                shared.skip(mode.number);
                return Ok(());
            }
            at.set(place);
            let start_ns = if TIMED { mode.elapsed_ns() } else { 0 };
            // SAFETY: during a run, after the segment's waits and the steps before.
            unsafe { work.call(step, args)? };
            if TIMED {
                let time = OpTime { start_ns, end_ns: mode.elapsed_ns() };
                // SAFETY: this thread called the step.
                unsafe { work.set_time(place, time) };
            }
        }
        if segment.announces {
            // SAFETY: this is the lane's thread during a run.
            unsafe { shared.bridge.announce(lane, base + end as u64) };
        }
        // The end of the lane is published by `run_lane`, when nothing else is left to do: whoever
        // sees it may begin the next run, on another thread.
        if segment.publishes && end < work.steps.len() {
            shared.progress[lane].publish(base + end as u64);
        }
        start = end;
    }
    Ok(())
}

/// Waits for a lane of a device; where it fails or is late, the run is stopped.
#[cold]
fn wait_for_device(shared: &Shared, wait: &LaneWait, mode: RunMode) {
    // Runs of plans with lanes on devices do not overlap: the wait is for this run.
    // SAFETY: during a run.
    let waited =
        unsafe { shared.bridge.wait(wait.lane as usize, wait.count(), mode.number, mode.deadline) };
    let why = match waited {
        Ok(()) => return,
        Err(DeviceError::DeadlinePassed { .. }) => Why::Deadline,
        // What failed is found out at the end of the run, when all lanes have come to rest.
        Err(_) => Why::Failed,
    };
    shared.stop.lower(mode.number, why);
}

impl RunMode {
    /// Returns `true` if no more bodies may begin in the run: it was stopped, or its deadline has
    /// passed. Everything that begins a body asks this first.
    #[inline]
    pub fn must_stop(&self, stop: &Stop) -> bool {
        self.must_stop_if::<true>(stop)
    }

    /// As [`RunMode::must_stop`]; without `LIMITED`, for a run that has no deadline.
    #[inline(always)]
    fn must_stop_if<const LIMITED: bool>(&self, stop: &Stop) -> bool {
        if LIMITED && self.deadline.has_passed() {
            stop.lower(self.number, Why::Deadline);
        }
        stop.is_below(Stop::limit(self.number))
    }

    /// Returns `true` if the run has a deadline.
    fn is_limited(&self) -> bool {
        self.deadline != Deadline::NEVER
    }

    pub fn elapsed_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

/// Calls step `place` of `work`, whichever lane's thread this is.
///
/// # Safety
/// During run `mode.number`, when all that the step must come after has been done, once.
pub unsafe fn call_alone(work: &LaneWork, place: usize, mode: &RunMode) -> Option<Failure> {
    let start_ns = if mode.is_timed { mode.elapsed_ns() } else { 0 };
    let _acts = act_for(mode.binder);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: as this function's.
        unsafe { work.call(&work.steps[place], work.args()) }
    }));
    if mode.is_timed {
        let time = OpTime { start_ns, end_ns: mode.elapsed_ns() };
        // SAFETY: this thread called the step.
        unsafe { work.set_time(place, time) };
    }
    failure_of(outcome)
}

fn failure_of(outcome: Result<Outcome, Box<dyn Any + Send>>) -> Option<Failure> {
    match outcome {
        Ok(Ok(())) => None,
        Ok(Err(cause)) => Some(Failure::Error(cause.0)),
        Err(panic) => {
            let failure = Failure::Panic(panic_text(&*panic));
            // What was thrown may panic again when dropped, and then the lane's end would never be
            // published.
            std::mem::forget(panic);
            Some(failure)
        }
    }
}

/// Stops run `number`, in which `op` failed, and those after it.
#[cold]
pub fn fail(shared: &Shared, op: OpIndex, number: u64, failure: Failure) {
    shared.skip(number);
    shared.stop.fail(number, shared.names.error(op, failure));
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(|text| &**text));
    text.unwrap_or("a panic without a message").to_owned()
}
