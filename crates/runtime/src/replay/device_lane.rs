//! Lanes of devices: a plan's ops as recordings, submitted whole at the start of each run.
//!
//! A lane is cut where it waits for another or is waited for. Each piece is one recording, made
//! when buffers are bound and made anew only where other buffers are; a run submits one batch for
//! each. All of them are submitted before the first has run, each with the points that it waits
//! for, so that no thread of the host stands by while a device works.

use std::sync::Arc;

use syncline_device::{
    Backend, Batch, Buffer, BufferView, Command, Device, DeviceError, DeviceSpec, KernelArg, Lane,
    Point, Recording, SubmissionGuard,
};
use syncline_plan::{
    CopyIndex, ExecutionPlan, LaneIndex, LaneKind, MemoryIndex, MemoryPlace, OpIndex, OpKind,
    PlanArg, TaskIndex, TaskInfo, Wait,
};
use syncline_tensor::{Access, Arg, View};

use super::body::{KernelBody, TaskBody};
use super::bridge::{Bridge, Side};
use super::error::LoadError;
use super::label;
use super::load::{LoadOptions, describe};
use super::route::announce;
use super::shared::{LaneWait, Route, Shared};

/// The lanes of a loaded plan that are not threads of the host.
#[derive(Debug)]
pub struct DeviceLanes {
    plan: Arc<ExecutionPlan>,
    lanes: Vec<DeviceLane>,
    /// Lane and segment, in an order in which the whole plan could run one op at a time.
    order: Vec<(usize, usize)>,
    /// The devices' lanes by ascending identity, each once: what a submission guards.
    guarded: Vec<Arc<dyn Lane>>,
    /// By memory of the plan; `None` where nothing is bound yet.
    places: Vec<Option<Place>>,
}

/// One lane of the plan on a lane of its device.
#[derive(Debug)]
pub struct DeviceLane {
    /// Its number in the plan.
    pub number: usize,
    pub lane: Arc<dyn Lane>,
    pub route: Route,
    /// By segment of the route.
    pub batches: Vec<SegmentBatch>,
    /// By op of the lane; copies have none.
    bodies: Vec<Option<KernelBody>>,
}

/// What is submitted for a segment of a lane.
#[derive(Debug)]
pub struct SegmentBatch {
    task: Arc<str>,
    recording: Option<Arc<Recording>>,
    /// By command of the recording: the place in the lane of the op that it is part of.
    pub op_of_command: Vec<u32>,
}

/// Where a memory of the plan is.
#[derive(Clone, Debug)]
struct Place {
    buffer: Buffer,
    offset: u64,
}

/// A command that fails where run `number` must stop, and with it what comes after it on the lane.
fn ask(shared: &Arc<Shared>, number: u64) -> Command {
    let shared = Arc::clone(shared);
    Command::host("deadline and cancel", move || {
        // SAFETY: the run does not end before its batches have.
        let mode = unsafe { shared.mode(number) };
        match mode.must_stop(&shared.stop) {
            true => {
                Err(DeviceError::Cancelled { reason: "the run of the plan was stopped".into() })
            }
            false => Ok(()),
        }
    })
}

/// Whether the lanes of `device` are threads of the plan, as opposed to lanes of the device.
pub fn runs_on_threads(device: DeviceSpec, options: &LoadOptions) -> bool {
    device.backend == Backend::Cpu && !options.on_device_lanes.contains(&device)
}

impl DeviceLanes {
    /// The lanes of `plan` on `devices` that are not threads, with their part of `routes`; `None`
    /// if there is nothing to do for any of them.
    pub fn load(
        plan: &Arc<ExecutionPlan>,
        devices: &[Arc<dyn Device>],
        arenas: &[Buffer],
        options: &LoadOptions,
        routes: &mut [Route],
        bodies: &mut impl FnMut(TaskInfo<'_>, DeviceSpec) -> Option<TaskBody>,
    ) -> Result<Option<Self>, LoadError> {
        let mut lanes = Vec::new();
        let mut compute_lanes = vec![0; devices.len()];
        for (number, planned) in plan.lanes().iter().enumerate() {
            let device = &devices[planned.device.index()];
            let sibling = compute_lanes[planned.device.index()];
            compute_lanes[planned.device.index()] += usize::from(planned.kind == LaneKind::Compute);
            if planned.count == 0 || runs_on_threads(device.spec(), options) {
                continue;
            }
            let ops = plan.lane_ops(LaneIndex(number as u16));
            let bodies = (ops.iter())
                .map(|op| match op.kind {
                    OpKind::Task(task) => body(plan, task, device.spec(), bodies).map(Some),
                    OpKind::Copy(_) => Ok(None),
                })
                .collect::<Result<Vec<_>, LoadError>>()?;
            let lane = open(device, planned.kind, sibling)?;
            check_routes(plan, devices, number, &*lane)?;
            let route = std::mem::take(&mut routes[number]);
            let first = planned.first.0;
            let batches = (0..route.segments.len())
                .map(|at| SegmentBatch {
                    task: label::of(plan, OpIndex(first + route.steps(at).start)),
                    recording: None,
                    op_of_command: Vec::new(),
                })
                .collect();
            lanes.push(DeviceLane { number, lane, route, batches, bodies });
        }
        if lanes.is_empty() {
            return Ok(None);
        }
        lanes.iter().for_each(|lane| announce(routes, &lane.route));
        let order = order(plan, &lanes);
        let places = (plan.memories().iter())
            .map(|memory| match memory.place {
                MemoryPlace::Bound => None,
                MemoryPlace::Arena { offset } => {
                    Some(Place { buffer: arenas[memory.device.index()].clone(), offset })
                }
            })
            .collect();
        let guarded = guarded(&lanes);
        Ok(Some(Self { plan: Arc::clone(plan), lanes, order, guarded, places }))
    }

    /// The lanes.
    pub fn lanes(&self) -> &[DeviceLane] {
        &self.lanes
    }

    /// Lane and segment, in the order in which they are submitted.
    pub fn order(&self) -> &[(usize, usize)] {
        &self.order
    }

    /// What every lane of the plan is to the other side.
    pub fn sides(plan: &ExecutionPlan, lanes: Option<&Self>) -> Box<[Side]> {
        let mut sides: Vec<Side> = (plan.lanes().iter())
            .map(|lane| Side::Cpu { ops: lane.count.into(), announces: false })
            .collect();
        let lanes = lanes.map_or(&[][..], |lanes| &lanes.lanes);
        for lane in lanes {
            let ends = lane.route.segments.iter().map(|segment| segment.steps_end).collect();
            sides[lane.number] = Side::Device { ends };
        }
        for wait in lanes.iter().flat_map(|lane| &lane.route.waits) {
            if let Side::Cpu { announces, .. } = &mut sides[wait.lane as usize] {
                *announces = true;
            }
        }
        sides.into()
    }

    /// Binds `buffer` to `memory`.
    pub fn bind(&mut self, memory: MemoryIndex, buffer: &Buffer) {
        let place = &mut self.places[memory.index()];
        if place.as_ref().is_some_and(|place| place.buffer.id() == buffer.id()) {
            return;
        }
        *place = Some(Place { buffer: buffer.clone(), offset: 0 });
        for lane in &mut self.lanes {
            let first = self.plan.lanes()[lane.number].first.0;
            for (at, batch) in lane.batches.iter_mut().enumerate() {
                let mut ops = lane.route.steps(at).map(|at| OpIndex(first + at));
                if ops.any(|op| touches(&self.plan, op, memory)) {
                    batch.recording = None;
                }
            }
        }
    }

    /// Makes the recordings that are missing. Everything is bound.
    pub fn record(&mut self) -> Result<(), DeviceError> {
        let segments = self.lanes.iter().map(|lane| lane.batches.len()).sum();
        for lane in &mut self.lanes {
            let first = self.plan.lanes()[lane.number].first.0;
            let is_complete = lane.batches.iter().all(|one| one.recording.is_some());
            let batches = lane.batches.iter_mut().enumerate();
            for (number, batch) in batches.filter(|(_, one)| one.recording.is_none()) {
                let mut recorder = Recorder {
                    plan: &self.plan,
                    places: &self.places,
                    commands: Vec::new(),
                    tasks: Vec::new(),
                };
                let mut op_of_command = Vec::new();
                for at in lane.route.steps(number) {
                    recorder.op(OpIndex(first + at), lane.bodies[at as usize].as_ref())?;
                    op_of_command.resize(recorder.commands.len(), at);
                }
                batch.op_of_command = op_of_command;
                let Recorder { commands, tasks, .. } = recorder;
                let recording = Recording::new(commands)?.with_tasks(tasks);
                batch.recording = Some(Arc::new(recording));
            }
            if !is_complete {
                reserve(lane, segments);
            }
        }
        Ok(())
    }

    /// Makes lanes that failed in the run before usable again.
    pub fn recover(&self) {
        for lane in &self.lanes {
            if lane.lane.timeline().failure().is_some() {
                lane.lane.recover();
            }
        }
    }

    /// Submits everything, as run `number`. With `asks`, a batch begins only if the run was not
    /// stopped.
    ///
    /// # Errors
    /// The first batch that was refused, by the op that it begins with; what was submitted before
    /// takes its course.
    ///
    /// # Safety
    /// By the one owner of the loaded plan, before any of its lanes runs; `bridge` has begun the
    /// run. Until the run has ended, memory bound to the plan is claimed.
    pub unsafe fn submit(
        &self,
        bridge: &Bridge,
        number: u64,
        asks: Option<&Arc<Shared>>,
    ) -> Result<(), (OpIndex, DeviceError)> {
        let mut lanes = self.guarded.iter().map(|lane| &**lane);
        SubmissionGuard::during(&mut lanes, || {
            // SAFETY: the caller's promise.
            unsafe { self.submit_guarded(bridge, number, asks) }
        })
    }

    /// # Safety
    /// As [`DeviceLanes::submit`].
    unsafe fn submit_guarded(
        &self,
        bridge: &Bridge,
        number: u64,
        asks: Option<&Arc<Shared>>,
    ) -> Result<(), (OpIndex, DeviceError)> {
        for &(lane, segment) in &self.order {
            let lane = &self.lanes[lane];
            let (start, prepared) = (lane.route.steps(segment).start, &lane.batches[segment]);
            let waits = lane.route.waits_of(&lane.route.segments[segment]);
            let point = |wait: &LaneWait| {
                // SAFETY: no lane of the plan runs yet.
                let point = unsafe { bridge.point(wait.lane as usize, wait.count(), number) };
                point.expect("batches are submitted in an order in which they can run")
            };
            let recording = prepared.recording.as_ref().expect("recorded when buffers were bound");
            let mut batch = Batch::for_lane(&*lane.lane).waits(waits.iter().map(point));
            if let Some(shared) = asks {
                batch = batch.command(ask(shared, number));
            }
            let batch = batch.command(Command::recording(recording)).task(prepared.task.clone());
            // SAFETY: arenas are known to this plan only, bound memory is claimed; the plan is
            // proven: whatever conflicts is ordered by its lanes and its waits, and the points of
            // these are what is waited for.
            let submitted = unsafe { lane.lane.submit_claimed(batch) };
            let first = self.plan.lanes()[lane.number].first.0;
            let point = submitted.map_err(|error| (OpIndex(first + start), error))?;
            // SAFETY: no lane of the plan runs yet.
            unsafe { bridge.submitted(lane.number, point) };
        }
        Ok(())
    }

    /// The op that a failure of the run began with: of all lanes that failed the one that did not
    /// inherit it, and there the first batch that did not complete.
    ///
    /// # Safety
    /// By the one owner of the loaded plan, when no lane of it runs any more.
    pub unsafe fn failure(&self, bridge: &Bridge) -> Option<(OpIndex, DeviceError)> {
        let mut found: Option<(OpIndex, DeviceError)> = None;
        for lane in &self.lanes {
            // SAFETY: the caller's promise.
            let points = unsafe { bridge.points(lane.number) };
            let Some(at) = points.iter().position(|point| !point.is_reached()) else { continue };
            let Some(error) = points[at].timeline().failure() else { continue };
            let first = self.plan.lanes()[lane.number].first.0;
            let inherited = matches!(error, DeviceError::Inherited { .. });
            if found.is_none() || !inherited {
                found = Some((OpIndex(first + lane.route.steps(at).start), error));
            }
            if !inherited {
                break;
            }
        }
        found
    }

    /// The last points of the lanes that have one.
    ///
    /// # Safety
    /// As [`Bridge::points`], while the result is used.
    pub unsafe fn last_points<'a>(&'a self, bridge: &'a Bridge) -> impl Iterator<Item = &'a Point> {
        // SAFETY: the caller's promise.
        self.lanes.iter().filter_map(|lane| unsafe { bridge.points(lane.number) }.last())
    }
}

/// The kernel of `task`, which must have an implementation for its device and its arguments.
fn body(
    plan: &ExecutionPlan,
    task: TaskIndex,
    device: DeviceSpec,
    bodies: &mut impl FnMut(TaskInfo<'_>, DeviceSpec) -> Option<TaskBody>,
) -> Result<KernelBody, LoadError> {
    let info = plan.task(task);
    let name = || info.name().to_owned();
    let body = bodies(info, device).ok_or_else(|| LoadError::NoBody {
        task: name(),
        index: task,
        kernel: info.kernel().to_owned(),
        device: device.to_string(),
    })?;
    let body = body.into_kernel().ok_or_else(|| LoadError::NotAKernel {
        task: name(),
        index: task,
        device,
    })?;
    let refused = |source| LoadError::NoKernel { task: name(), index: task, device, source };
    let args: Vec<Arg> = plan.args_of(task).map(|arg| describe(plan, &arg)).collect();
    body.kernel.check(device.backend, &args, &body.scalars, 1).map_err(refused)?;
    if device.backend != Backend::Cpu {
        let views: Vec<View> = plan.args_of(task).map(seen).collect();
        body.kernel.source(device.backend, &views).map_err(refused)?;
    }
    Ok(body)
}

/// What a kernel sees of an argument: of one that orders nothing, no element.
fn seen(arg: PlanArg<'_>) -> View {
    match arg.access {
        Access::NoDep => View::contiguous(arg.view.dtype(), &[0]).expect("a view of nothing"),
        _ => *arg.view,
    }
}

/// A lane of its own, so that a run that fails takes nobody else's work along; where the device has
/// no more to give, one of those that all share.
fn open(
    device: &Arc<dyn Device>,
    kind: LaneKind,
    number: usize,
) -> Result<Arc<dyn Lane>, DeviceError> {
    let (kind, name) = match kind {
        LaneKind::Compute => (syncline_device::LaneKind::Compute, format!("plan {number}")),
        LaneKind::Copy => (syncline_device::LaneKind::Copy, "plan copy".to_owned()),
    };
    device.lane_for(kind, &name, number)
}

/// The lanes of the devices by ascending identity, each once.
fn guarded(lanes: &[DeviceLane]) -> Vec<Arc<dyn Lane>> {
    let mut all: Vec<Arc<dyn Lane>> = lanes.iter().map(|lane| Arc::clone(&lane.lane)).collect();
    all.sort_by_key(|lane| lane.info().id());
    all.dedup_by_key(|lane| lane.info().id());
    all
}

/// Makes room for all segments of the lane, and on its buffers for all of the plan, so that runs
/// allocate nothing.
fn reserve(lane: &DeviceLane, segments_of_plan: usize) {
    let recordings = lane.batches.iter().filter_map(|batch| batch.recording.as_ref());
    for (buffer, _) in recordings.flat_map(|recording| recording.buffers()) {
        buffer.reserve_leases(segments_of_plan);
    }
    let waits = lane.route.segments.iter().map(|segment| lane.route.waits_of(segment).len()).max();
    let recordings = lane.batches.iter().filter_map(|batch| batch.recording.as_ref());
    let buffers = recordings.map(|recording| recording.buffers().len()).max();
    lane.lane.reserve(lane.batches.len(), waits.unwrap_or(0), buffers.unwrap_or(0));
}

/// Every copy of the lane is between memories that it reaches.
fn check_routes(
    plan: &ExecutionPlan,
    devices: &[Arc<dyn Device>],
    number: usize,
    lane: &dyn Lane,
) -> Result<(), LoadError> {
    for op in plan.lane_ops(LaneIndex(number as u16)) {
        let OpKind::Copy(copy) = op.kind else { continue };
        let (source, target) = ends(plan, devices, copy);
        if !(lane.can_access(source) && lane.can_access(target)) {
            return Err(LoadError::NoRoute {
                source_device: source,
                target,
                lane: lane.info().device,
            });
        }
    }
    Ok(())
}

/// From where to where `copy` goes.
pub fn ends(
    plan: &ExecutionPlan,
    devices: &[Arc<dyn Device>],
    copy: CopyIndex,
) -> (DeviceSpec, DeviceSpec) {
    let copy = &plan.copies()[copy.index()];
    let device =
        |memory: MemoryIndex| devices[plan.memories()[memory.index()].device.index()].spec();
    (device(copy.source), device(copy.target))
}

/// The segments in an order in which the whole plan could run, one op at a time.
fn order(plan: &ExecutionPlan, lanes: &[DeviceLane]) -> Vec<(usize, usize)> {
    let mut device_lane = vec![None; plan.lanes().len()];
    for (at, lane) in lanes.iter().enumerate() {
        device_lane[lane.number] = Some(at);
    }
    let mut done = vec![0u32; plan.lanes().len()];
    let mut order = Vec::new();
    let mut next = vec![0usize; lanes.len()];
    loop {
        let mut went_on = false;
        for lane in 0..plan.lanes().len() {
            let ops = plan.lane_ops(LaneIndex(lane as u16));
            while let Some(op) = ops.get(done[lane] as usize) {
                let ready = |wait: &Wait| done[wait.lane.index()] >= wait.count;
                if !plan.waits_of(op).iter().all(ready) {
                    break;
                }
                if let Some(at) = device_lane[lane]
                    && next[at] < lanes[at].batches.len()
                    && lanes[at].route.steps(next[at]).start == done[lane]
                {
                    order.push((at, next[at]));
                    next[at] += 1;
                }
                done[lane] += 1;
                went_on = true;
            }
        }
        if !went_on {
            break;
        }
    }
    let segments: usize = lanes.iter().map(|lane| lane.batches.len()).sum();
    assert_eq!(order.len(), segments, "a proven plan can run to its end");
    order
}

fn touches(plan: &ExecutionPlan, op: OpIndex, memory: MemoryIndex) -> bool {
    match plan.ops()[op.index()].kind {
        OpKind::Task(task) => plan.args_of(task).any(|arg| arg.memory == memory),
        OpKind::Copy(copy) => {
            let copy = &plan.copies()[copy.index()];
            copy.source == memory || copy.target == memory
        }
    }
}

/// Writes down the commands of one segment.
struct Recorder<'a> {
    plan: &'a ExecutionPlan,
    places: &'a [Option<Place>],
    commands: Vec<Command>,
    tasks: Vec<Arc<str>>,
}

impl Recorder<'_> {
    fn op(&mut self, op: OpIndex, body: Option<&KernelBody>) -> Result<(), DeviceError> {
        let task = label::of(self.plan, op);
        match self.plan.ops()[op.index()].kind {
            OpKind::Task(index) => {
                let KernelBody { kernel, scalars } = body.expect("loaded for every task");
                let args = (self.plan.args_of(index))
                    .map(|arg| Ok(KernelArg::new(arg.access, self.view(arg.memory, arg.view)?)))
                    .collect::<Result<Vec<_>, DeviceError>>()?;
                self.commands.push(Command::dispatch(kernel, args, scalars.to_vec()));
                self.tasks.push(task);
            }
            OpKind::Copy(copy) => {
                let copy = &self.plan.copies()[copy.index()];
                for view in &copy.views {
                    let (source, target) =
                        (self.view(copy.source, view)?, self.view(copy.target, view)?);
                    self.commands.push(Command::copy(source, target));
                    self.tasks.push(task.clone());
                }
            }
        }
        Ok(())
    }

    fn view(&self, memory: MemoryIndex, view: &View) -> Result<BufferView, DeviceError> {
        let place = self.places[memory.index()].as_ref().expect("bound before it is recorded");
        let offset = place.offset + view.offset();
        let moved = View::strided(view.dtype(), offset, view.shape(), view.strides());
        place.buffer.view(moved.expect("inside an arena that has memory"))
    }
}
