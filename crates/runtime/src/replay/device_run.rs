//! The part of a run that happens on lanes of devices: how it begins, ends, and fails.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use syncline_device::{Deadline, DeviceError, Point};
use syncline_plan::{ExecutionPlan, LaneIndex, OpIndex, TaskIndex};

use super::device_lane::DeviceLanes;
use super::error::RunError;
use super::label;
use super::run::OpTime;
use super::shared::{RunMode, Shared};
use super::stop::Stop;

/// A run under way on the devices of a plan.
pub struct DeviceRun<'a> {
    shared: &'a Shared,
    lanes: &'a DeviceLanes,
    mode: RunMode,
    /// What watches the batches of each lane in a timed run, and when they were submitted.
    watched: Option<(Vec<JoinHandle<Vec<u64>>>, u64)>,
}

impl<'a> DeviceRun<'a> {
    /// Submits all batches; `None` if the plan has no lane on a device. With `asks`, each batch
    /// asks first whether the run was stopped.
    ///
    /// # Safety
    /// By the one owner of the loaded plan, with no run under way and memory claimed until
    /// [`DeviceRun::end`] returns.
    pub unsafe fn begin(
        shared: &'a Shared,
        lanes: Option<&'a DeviceLanes>,
        number: u64,
        asks: Option<&Arc<Shared>>,
    ) -> Option<Self> {
        let lanes = lanes?;
        // SAFETY: the run is being begun, by its owner.
        let mode = unsafe { shared.mode(number) };
        lanes.recover();
        // SAFETY: the caller's promise: no lane runs.
        unsafe { shared.bridge.begin(mode.number) };
        if mode.must_stop(&shared.stop) {
            shared.skip(number);
        } else {
            if mode.is_timed {
                note_commands(lanes, true);
            }
            // SAFETY: as above.
            if let Err((op, error)) = unsafe { lanes.submit(&shared.bridge, number, asks) } {
                fail(shared, number, named(&shared.names.0, op, &error));
            }
        }
        let mut run = Self { shared, lanes, mode, watched: None };
        if mode.is_timed {
            run.watch();
        }
        Some(run)
    }

    /// Waits until all that was submitted has ended, and says why the run failed if it did here.
    ///
    /// # Safety
    /// By the one owner, when no lane on the host runs any more.
    pub unsafe fn end(self) {
        let Self { shared, lanes, mode, watched } = self;
        // SAFETY: the caller's promise.
        for point in unsafe { lanes.last_points(&shared.bridge) } {
            // A device cannot be stopped in the middle of a batch: its memory is in use until the
            // lane says otherwise.
            let _ = point.wait(Deadline::NEVER);
        }
        // SAFETY: as above.
        if let Some((op, error)) = unsafe { lanes.failure(&shared.bridge) } {
            shared.skip(mode.number);
            if !is_own_stop(&error) || !shared.stop.is_below(Stop::limit(mode.number)) {
                fail(shared, mode.number, named(&shared.names.0, op, &error));
            }
        }
        if let Some((threads, submitted_ns)) = watched {
            let ends =
                threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect();
            // SAFETY: as above.
            unsafe {
                note_times(shared, lanes, submitted_ns, ends);
                note_device_times(shared, lanes, mode.began);
            }
            note_commands(lanes, false);
        }
    }

    /// Notes when batches end, by a thread for each lane: timed runs are for looking, not for
    /// speed.
    fn watch(&mut self) {
        let began = self.mode.began;
        let submitted_ns = began.elapsed().as_nanos() as u64;
        let watch = |points: Vec<Point>| {
            std::thread::spawn(move || {
                let end = |point: Point| {
                    let _ = point.wait(Deadline::NEVER);
                    began.elapsed().as_nanos() as u64
                };
                points.into_iter().map(end).collect()
            })
        };
        let lanes = self.lanes.lanes().iter();
        // SAFETY: no lane of the plan runs yet.
        let points = lanes.map(|lane| unsafe { self.shared.bridge.points(lane.number) }.to_vec());
        self.watched = Some((points.map(watch).collect(), submitted_ns));
    }
}

/// The failure of a run is the first one that was noted. A CPU lane that learned of one has stopped
/// the run, and left the reason to be found here.
fn fail(shared: &Shared, number: u64, error: RunError) {
    shared.skip(number);
    shared.stop.explain(number, error);
}

/// Whether a device lane failed only because a CPU lane of the same run gave up.
fn is_own_stop(error: &DeviceError) -> bool {
    matches!(error.root_cause(), DeviceError::Cancelled { .. })
}

/// The failure as the run's: by the task that the device named, or else by the one that the batch
/// begins with.
fn named(plan: &ExecutionPlan, op: OpIndex, error: &DeviceError) -> RunError {
    let first = label::of(plan, op);
    let label = error.task().unwrap_or(&first);
    let task = label::task_of(plan, label);
    let index = task.unwrap_or(TaskIndex(u32::MAX));
    let task = task.map_or_else(|| label.to_owned(), |task| plan.task(task).name().to_owned());
    match error.root_cause() {
        DeviceError::KernelPanicked { message, .. } => {
            RunError::Panicked { task, index, cause: message.to_string() }
        }
        DeviceError::KernelFailed { message, .. } => {
            RunError::Failed { task, index, cause: message.to_string() }
        }
        other => RunError::Failed { task, index, cause: other.to_string() },
    }
}

/// Has the lanes that can note when commands run, or no longer.
fn note_commands(lanes: &DeviceLanes, on: bool) {
    for lane in lanes.lanes() {
        lane.lane.note_times(on);
        // What was noted for others, or in a run that failed, is not this run's.
        lane.lane.take_times();
    }
}

/// Writes down when ops ran by the devices' own clocks, where these were read. A batch stays inside
/// of the time that the host saw it take: two clocks that are a little apart must not make an op
/// end after one that waited for it began.
///
/// # Safety
/// By the one owner, when no lane of the plan runs any more, after [`note_times`].
unsafe fn note_device_times(shared: &Shared, lanes: &DeviceLanes, began: Instant) {
    let ns = |at: Instant| at.saturating_duration_since(began).as_nanos() as u64;
    for lane in lanes.lanes() {
        let work = &shared.lanes[lane.number];
        // SAFETY: the caller's promise.
        let points = unsafe { shared.bridge.points(lane.number) };
        let mut times: HashMap<u32, OpTime> = HashMap::new();
        for time in lane.lane.take_times() {
            let Some(at) = points.iter().position(|point| point.value() == time.value) else {
                continue;
            };
            let (batch, steps) = (&lane.batches[at], lane.route.steps(at));
            let Some(&op) = batch.op_of_command.get(time.command as usize) else { continue };
            // SAFETY: the caller's promise.
            let (first, last) =
                unsafe { (work.time(steps.start as usize), work.time(steps.end as usize - 1)) };
            let inside = |ns: u64| ns.clamp(first.start_ns, last.end_ns.max(first.start_ns));
            let (start_ns, end_ns) = (inside(ns(time.began)), inside(ns(time.ended)));
            // A copy of several views is several commands.
            let known = times.entry(op).or_insert(OpTime { start_ns, end_ns });
            known.start_ns = known.start_ns.min(start_ns);
            known.end_ns = known.end_ns.max(end_ns);
        }
        for (op, time) in times {
            // SAFETY: the caller's promise.
            unsafe { work.set_time(op as usize, time) };
        }
    }
}

/// Writes down when the ops of the device lanes ran, as far as the host can tell.
///
/// What is known is when a thread of the host learned that a batch had ended, which may be late. A
/// batch has surely ended when one that waits for it has, or an op on the host that waits for it
/// has begun; and it begins when the one before it on its lane has ended and all that it waits for
/// has. Its ops share its time in the proportion that the plan expects of them.
///
/// # Safety
/// By the one owner, when no lane of the plan runs any more.
unsafe fn note_times(
    shared: &Shared,
    lanes: &DeviceLanes,
    submitted_ns: u64,
    mut ends: Vec<Vec<u64>>,
) {
    let plan = &shared.names.0;
    // SAFETY: the caller's promise: nobody else touches the times.
    let time = |lane: usize, at: usize| unsafe { shared.lanes[lane].time(at) };
    lower_ends(plan, lanes, &mut ends, time);
    for &(number, segment) in lanes.order() {
        let lane = &lanes.lanes()[number];
        let Some(&end_ns) = ends[number].get(segment) else { continue };
        let steps = lane.route.steps(segment);
        let steps = steps.start as usize..steps.end as usize;
        let waits = lane.route.waits_of(&lane.route.segments[segment]).iter();
        let waited = waits.map(|wait| time(wait.lane as usize, wait.count() as usize - 1).end_ns);
        let before = steps.start.checked_sub(1).map(|at| time(lane.number, at).end_ns);
        let start_ns = waited.chain(before).fold(submitted_ns, u64::max).min(end_ns);
        let first = plan.lanes()[lane.number].first.index();
        let ops = &plan.ops()[first + steps.start..first + steps.end];
        let costs: Vec<u64> = ops.iter().map(|op| (op.end_ns - op.start_ns).max(1)).collect();
        let total: u128 = costs.iter().map(|&cost| u128::from(cost)).sum();
        let (mut done, mut from_ns) = (0u128, start_ns);
        for (at, cost) in steps.zip(costs) {
            done += u128::from(cost);
            let share = u128::from(end_ns - start_ns) * done / total;
            let until_ns = start_ns + share as u64;
            let time = OpTime { start_ns: from_ns, end_ns: until_ns };
            // SAFETY: as above.
            unsafe { shared.lanes[lane.number].set_time(at, time) };
            from_ns = until_ns;
        }
    }
}

/// Brings the ends of batches forward to where somebody went on who had waited for them.
fn lower_ends(
    plan: &ExecutionPlan,
    lanes: &DeviceLanes,
    ends: &mut [Vec<u64>],
    time: impl Fn(usize, usize) -> OpTime,
) {
    let numbers = lanes.lanes().iter().enumerate().map(|(at, lane)| (lane.number, at));
    let device_lanes: HashMap<usize, usize> = numbers.collect();
    let lower = |ends: &mut [Vec<u64>], lane: usize, count: u32, by_ns: u64| {
        let Some(&at) = device_lanes.get(&lane) else { return };
        let segments = &lanes.lanes()[at].route.segments;
        let batch = segments.partition_point(|segment| segment.steps_end < count);
        if let Some(end_ns) = ends[at].get_mut(batch) {
            *end_ns = by_ns.min(*end_ns);
        }
    };
    for number in (0..plan.lanes().len()).filter(|number| !device_lanes.contains_key(number)) {
        for (at, op) in plan.lane_ops(LaneIndex(number as u16)).iter().enumerate() {
            let start_ns = time(number, at).start_ns;
            let waits = plan.waits_of(op).iter();
            waits.for_each(|wait| lower(ends, wait.lane.index(), wait.count, start_ns));
        }
    }
    for &(number, segment) in lanes.order().iter().rev() {
        let Some(&end_ns) = ends[number].get(segment) else { continue };
        if let Some(before) = segment.checked_sub(1) {
            ends[number][before] = end_ns.min(ends[number][before]);
        }
        let route = &lanes.lanes()[number].route;
        let waits = route.waits_of(&route.segments[segment]).iter();
        waits.for_each(|wait| lower(ends, wait.lane as usize, wait.count(), end_ns));
    }
}
