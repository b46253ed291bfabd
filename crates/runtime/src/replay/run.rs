//! What a lane does in a run: its ops in order, or whatever is ready.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use syncline_device::blocked::act_for;
use syncline_device::{Deadline, PointStatus};
use syncline_plan::OpIndex;
use syncline_sync::Spin;

use super::body::{Cause, Outcome};
use super::crew::Attendant;
use super::lane::{Awaits, Held};
use super::shared::{LaneWait, LaneWork, RunMode, Shared};
use super::stop::{Failure, Stop, Why};

/// When an op ran, in nanoseconds from the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpTime {
    /// When its body was called.
    pub start_ns: u64,
    /// When its body returned.
    pub end_ns: u64,
}

/// What a lane came to.
pub enum Stood {
    /// Its end in this run.
    AtTheEnd,
    /// A wait that does not end soon.
    Waiting(Awaits),
    /// Nothing keeps it, but its thread must leave.
    Leaving,
}

/// Why the ops of a lane are left before their end.
enum Left {
    Failed(Box<Cause>),
    Waiting(Awaits),
    Leaving,
}

impl Shared {
    /// Runs a lane in its order, from where it stands in a run to its end if it can get there.
    #[inline]
    pub fn run_lane<A: Attendant>(
        &self,
        attendant: &mut A,
        lane: usize,
        held: &mut Held<'_>,
    ) -> Stood {
        // SAFETY: the run has begun, and does not end before this lane has.
        let mode = unsafe { self.mode(held.run) };
        let at = Cell::new(0);
        let _acts = act_for(mode.binder);
        let left = catch_unwind(AssertUnwindSafe(|| match (mode.is_timed, mode.is_limited()) {
            (false, false) => execute::<false, false, A>(self, attendant, lane, mode, held, &at),
            (false, true) => execute::<false, true, A>(self, attendant, lane, mode, held, &at),
            (true, false) => execute::<true, false, A>(self, attendant, lane, mode, held, &at),
            (true, true) => execute::<true, true, A>(self, attendant, lane, mode, held, &at),
        }));
        let failed = match left {
            Ok(Err(Left::Waiting(awaits))) => return Stood::Waiting(awaits),
            Ok(Err(Left::Leaving)) => return Stood::Leaving,
            Ok(Err(Left::Failed(cause))) => Ok(Err(cause)),
            Ok(Ok(())) => Ok(Ok(())),
            Err(panic) => Err(panic),
        };
        let work = &self.lanes[lane];
        if let Some(failure) = failure_of(failed) {
            fail(self, OpIndex(work.first.0 + at.get() as u32), mode.number, failure);
        }
        if self.stop.is_below(Stop::limit(mode.number)) {
            // SAFETY: this thread runs the lane, during a run.
            unsafe { self.bridge.give_up(lane) };
        }
        held.watch = None;
        // The last thing that is done for the lane in the run.
        self.progress[lane].raise(mode.number * work.steps.len() as u64);
        self.published(true);
        Stood::AtTheEnd
    }
}

/// Runs the ops of a lane in order. Without `LIMITED` the run has no deadline, and what a deadline
/// costs each op is not compiled.
fn execute<const TIMED: bool, const LIMITED: bool, A: Attendant>(
    shared: &Shared,
    attendant: &mut A,
    lane: usize,
    mode: RunMode,
    held: &mut Held<'_>,
    at: &Cell<usize>,
) -> Result<(), Left> {
    let work = &shared.lanes[lane];
    let base = (mode.number - 1) * work.steps.len() as u64;
    // SAFETY: during a run.
    let (route, args) = unsafe { (work.route(), work.args()) };
    let first = held.segment as usize;
    let mut start = route.steps(first).start as usize;
    let mut waited = std::mem::take(&mut held.waited) as usize;
    for (number, segment) in route.segments.iter().enumerate().skip(first) {
        for (place, wait) in route.waits_of(segment).iter().enumerate().skip(waited) {
            if let Some(awaits) = meets(shared, attendant, wait, mode, held) {
                (held.segment, held.waited) = (number as u32, place as u32);
                return Err(Left::Waiting(awaits));
            }
        }
        waited = 0;
        let end = segment.steps_end as usize;
        for (place, step) in (start..end).zip(&work.steps[start..end]) {
            if mode.must_stop_if::<LIMITED>(&shared.stop) {
                shared.skip(mode.number);
                return Ok(());
            }
            at.set(place);
            let start_ns = if TIMED { mode.elapsed_ns() } else { 0 };
            // SAFETY: during a run, after the segment's waits and the steps before.
            unsafe { work.call(step, args) }.map_err(Left::Failed)?;
            if TIMED {
                let time = OpTime { start_ns, end_ns: mode.elapsed_ns() };
                // SAFETY: this thread called the step.
                unsafe { work.set_time(place, time) };
            }
        }
        if segment.announces {
            // SAFETY: this thread runs the lane, during a run.
            unsafe { shared.bridge.announce(lane, base + end as u64) };
        }
        // The end of the lane is published by `run_lane`, when nothing else is left to do: whoever
        // sees it may begin the next run, on another thread.
        let is_end = end == work.steps.len();
        if segment.publishes && !is_end {
            shared.progress[lane].raise(base + end as u64);
            shared.published(false);
        }
        if !attendant.goes_on() && !is_end {
            held.segment = number as u32 + 1;
            return Err(Left::Leaving);
        }
        start = end;
    }
    Ok(())
}

/// Returns what the lane waits for, if `wait` is not over soon.
#[inline]
fn meets<A: Attendant>(
    shared: &Shared,
    attendant: &A,
    wait: &LaneWait,
    mode: RunMode,
    held: &mut Held<'_>,
) -> Option<Awaits> {
    if shared.bridge.is_device(wait.lane as usize) {
        return meets_device(shared, wait, mode, held);
    }
    // Nothing is below zero in the first run, which has none before it.
    let value = (mode.number * u64::from(wait.steps)).saturating_sub(wait.back);
    let progress = &shared.progress[wait.lane as usize];
    let is_met = progress.get() >= value || shared.is_soon(attendant, || progress.get() >= value);
    (!is_met).then_some(Awaits::Lane(wait.lane, value))
}

/// As [`meets`], for a lane of a device; where it fails or is late, the run is stopped.
#[cold]
fn meets_device(
    shared: &Shared,
    wait: &LaneWait,
    mode: RunMode,
    held: &mut Held<'_>,
) -> Option<Awaits> {
    // Runs of plans with lanes on devices do not overlap: the wait is for this run.
    // SAFETY: during a run.
    let point = unsafe { shared.bridge.point(wait.lane as usize, wait.count(), mode.number) };
    let why = loop {
        let Some(point) = &point else { break Why::Failed };
        let mut status = point.status();
        if status == PointStatus::Pending && !mode.deadline.has_passed() {
            Spin::point().until(|| {
                status = point.status();
                status != PointStatus::Pending
            });
        }
        match status {
            PointStatus::Reached => {
                held.watch = None;
                return None;
            }
            // What failed is found out at the end of the run, when all lanes have come to rest.
            PointStatus::Failed(_) => break Why::Failed,
            PointStatus::Pending if mode.deadline.has_passed() => break Why::Deadline,
            PointStatus::Pending => {}
        }
        held.forget_told();
        let Some(waker) = shared.waker() else { break Why::Failed };
        let watch = point.watch(waker);
        if watch.look() == PointStatus::Pending {
            held.watch = Some(watch);
            return Some(Awaits::Device);
        }
    };
    held.watch = None;
    shared.stop.lower(mode.number, why);
    None
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
