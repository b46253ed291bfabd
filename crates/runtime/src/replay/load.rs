//! Loading: a plan, its bodies, its devices' memory and its threads put together.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use syncline_device::cpu::{Served, Workers, WorkersHandle};
use syncline_device::{
    Backend, Buffer, CancelToken, Deadline, Device, DeviceError, DeviceSpec, RawArg,
};
use syncline_plan::{
    CopyIndex, DeviceIndex, ExecutionPlan, LaneIndex, LaneKind, MemoryIndex, MemoryPlace, Op,
    OpKind, PlanArg, TaskInfo,
};
use syncline_tensor::{Access, Arg, Dtype, View};

use syncline_sync::Spin;

use super::apart::Apart;
use super::balance::Steal;
use super::bind::{Bindings, Claims};
use super::body::{Call, TaskBody, copy_call};
use super::bound::{BoundPlan, Cancel};
use super::bridge::Bridge;
use super::crew::PlanSource;
use super::device_lane::{DeviceLanes, ends, runs_on_threads};
use super::error::{BindError, LoadError, RunError};
use super::route::routes;
use super::shared::{LaneWork, Shared, Step};
use super::stop::Names;

/// How a plan is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadOptions {
    /// How long waiting lanes look before they sleep; chosen by lanes and cores if `None`.
    pub spins: Option<u32>,
    /// Whether idle lanes take ops of busy ones.
    pub steal: Steal,
    /// CPU devices whose tasks run on lanes of the device, as those of all other devices do,
    /// instead of being called one after the other.
    pub on_device_lanes: Vec<DeviceSpec>,
    /// Whether every op on a lane of a device is a batch of its own: timed runs then measure each,
    /// and all runs are slower.
    pub is_split: bool,
    /// Whether the plan is checked, as well as the deps by which lanes steal and the waits by which
    /// runs overlap, before anything goes by them. On in builds with debug assertions.
    ///
    /// Without it, plans that were compiled in this process are taken to be right; plans from files
    /// were checked when they were read, and plans with manual scopes are always checked.
    pub verify: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            spins: None,
            steal: Steal::default(),
            on_device_lanes: Vec::new(),
            is_split: false,
            verify: cfg!(debug_assertions),
        }
    }
}

impl LoadOptions {
    /// The same, with the plan checked before it is loaded, or not.
    #[must_use]
    pub fn with_verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// The same, with idle lanes taking ops of busy ones or not.
    #[must_use]
    pub fn with_steal(mut self, steal: Steal) -> Self {
        self.steal = steal;
        self
    }

    /// The same, checking `spins` times before giving up the processor.
    #[must_use]
    pub fn with_spins(mut self, spins: u32) -> Self {
        self.spins = Some(spins);
        self
    }

    /// The same, tasks on CPU device `device` running on its lanes.
    #[must_use]
    pub fn on_lanes_of(mut self, device: DeviceSpec) -> Self {
        self.on_device_lanes.push(device);
        self
    }

    /// The same, ops on lanes of devices submitted one by one.
    #[must_use]
    pub fn split(mut self) -> Self {
        self.is_split = true;
        self
    }
}

/// A plan with its bodies and its arenas: ready to run.
///
/// It has no threads: its lanes are run by the workers of its devices and by whoever waits for it.
///
/// ```
/// use std::sync::Arc;
/// use syncline_tensor::{Arg, Dtype, View};
/// use syncline_device::cpu::CpuDevice;
/// use syncline_plan::{BufferSpec, CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskSpec};
/// use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};
///
/// let mut graph = TaskGraph::new();
/// let x = graph.add_buffer(BufferSpec::external("x", 16))?;
/// let view = View::contiguous(Dtype::U32, &[4])?;
/// graph.submit(&TaskSpec::new("increment", &[Arg::inout(x, view)]))?;
/// let plan = ExecutionPlan::compile(&graph, &Machine::cpu(2), &CompileOptions::default())?;
///
/// let device = CpuDevice::open_default()?;
/// let mut loaded = LoadedPlan::load(Arc::new(plan), &[device.clone()], |_, _| {
///     Some(TaskBody::new(|args| {
///         args.open().slice_mut::<u32>(0).map(|xs| xs.iter_mut().for_each(|x| *x += 1))
///     }))
/// })?;
/// let buffer = device.buffer(16);
/// buffer.write(0, &[1u32, 2, 3, 4])?;
/// let bindings = Bindings::new().bind("x", &buffer);
/// loaded.run(&bindings)?;
/// assert_eq!(buffer.read::<u32>(0, 4)?, [2, 3, 4, 5]);
///
/// // Bound once, run often: nothing is allocated, locked or looked up on the way.
/// let mut bound = loaded.bind(&bindings)?;
/// for _ in 0..10 {
///     bound.run()?;
/// }
/// drop(bound);
/// assert_eq!(buffer.read::<u32>(0, 4)?, [12, 13, 14, 15]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LoadedPlan {
    pub(super) plan: Arc<ExecutionPlan>,
    pub(super) shared: Arc<Shared>,
    /// The workers that run lanes, and what they see of the plan.
    pub(super) sources: Vec<(Arc<Workers>, Arc<PlanSource>)>,
    /// While memory is bound: that they do.
    pub(super) served: Vec<Served>,
    /// The lane that the caller's thread runs.
    pub(super) own_lane: usize,
    /// Whether the caller has it, also between runs.
    pub(super) has_own_lane: bool,
    pub(super) loaded_at: Instant,
    /// Number of the last run that was begun.
    pub(super) last_run: u64,
    /// Number of the last run that is known to have ended.
    pub(super) last_ended: u64,
    /// Whether runs may begin before the ones before have ended.
    pub(super) overlaps: bool,
    pub(super) cancel: Option<Cancel>,
    /// Whether waits and deps are checked before lanes go by them.
    pub(super) verify: bool,
    devices: Vec<DeviceSpec>,
    /// By buffer: whether any task writes it.
    written: Vec<bool>,
    /// By memory: its address at the moment.
    bases: Vec<*mut u8>,
    /// The lanes that are not threads.
    pub(super) device_lanes: Option<DeviceLanes>,
    /// Arguments in memory that the caller binds: lane, place among its arguments, memory.
    rebindable: Vec<(u16, u32, MemoryIndex)>,
    /// What was bound last. A bound plan that is forgotten instead of dropped leaves runs behind;
    /// their memory is here, and the claims on it are never given back.
    kept: Vec<Buffer>,
    _arenas: Vec<Buffer>,
}

// SAFETY: the addresses are of memory that the arenas own or that claims guard; they are used
// through `&mut self` only.
unsafe impl Send for LoadedPlan {}
// SAFETY: `&LoadedPlan` gives no access to what the addresses point to.
unsafe impl Sync for LoadedPlan {}

impl LoadedPlan {
    /// Loads `plan` with the body that `bodies` gives for each task and device it was placed on.
    ///
    /// Bodies are asked for in the order in which lanes run them, so that what they own lies in
    /// that order, too.
    pub fn load(
        plan: Arc<ExecutionPlan>,
        devices: &[Arc<dyn Device>],
        bodies: impl FnMut(TaskInfo<'_>, DeviceSpec) -> Option<TaskBody>,
    ) -> Result<Self, LoadError> {
        Self::load_with(plan, devices, bodies, LoadOptions::default())
    }

    /// As [`LoadedPlan::load`], with options.
    pub fn load_with(
        plan: Arc<ExecutionPlan>,
        devices: &[Arc<dyn Device>],
        mut bodies: impl FnMut(TaskInfo<'_>, DeviceSpec) -> Option<TaskBody>,
        options: LoadOptions,
    ) -> Result<Self, LoadError> {
        match options.verify {
            true => plan.verify()?,
            false => plan.prove()?,
        }
        let given = find_devices(&plan, devices)?;
        let specs: Vec<DeviceSpec> = given.iter().map(|device| device.info().spec).collect();
        let (arenas, bases) = allocate(&plan, &given)?;
        let on_threads =
            |lane: usize| runs_on_threads(specs[plan.lanes()[lane].device.index()], &options);
        let mut routes = routes(&plan, None, |lane| options.is_split && !on_threads(lane));
        let device_lanes =
            DeviceLanes::load(&plan, &given, &arenas, &options, &mut routes, &mut bodies)?;
        let mut rebindable = Vec::new();
        let mut lanes = Vec::with_capacity(plan.lanes().len());
        for (lane, route) in routes.into_iter().enumerate() {
            let planned = &plan.lanes()[lane];
            if !on_threads(lane) {
                lanes.push(LaneWork::elsewhere(planned.first, planned.count as usize));
                continue;
            }
            let mut loader =
                LaneLoader { plan: &plan, devices: &given, bases: &bases, args: Vec::new() };
            let steps = loader.steps(LaneIndex(lane as u16), &mut bodies)?;
            for (at, memory) in loader.args.iter().enumerate() {
                if plan.memories()[memory.1.index()].place == MemoryPlace::Bound {
                    rebindable.push((lane as u16, at as u32, memory.1));
                }
            }
            let args = loader.args.into_iter().map(|(arg, _)| arg).collect();
            lanes.push(LaneWork::new(steps.into(), route, planned.first, args));
        }
        let busy = lanes.iter().filter(|lane| !lane.steps.is_empty()).count();
        // Lanes without ops of their own run others' where lanes steal.
        let steals = device_lanes.is_none() && options.steal.applies_to(&plan);
        let crews = Crews::new(&plan, &given, |lane| {
            on_threads(lane) && (steals || !lanes[lane].steps.is_empty())
        })?;
        let threads = 1 + crews.workers.iter().map(|workers| workers.count()).sum::<usize>();
        let mut spin = Spin::lanes(busy.min(threads));
        if let Some(checks) = options.spins {
            spin = spin.with_checks(checks);
        }
        let compute = plan.lanes().iter().filter(|lane| lane.kind == LaneKind::Compute).count();
        let apart = Apart::new(lanes.len(), if steals { compute.max(busy) } else { busy });
        let counts = lanes.iter().enumerate();
        // Ties go to the first lane.
        let own_lane =
            counts.rev().max_by_key(|(_, lane)| lane.steps.len()).map_or(0, |(at, _)| at);
        let (names, loaded_at) = (Names(Arc::clone(&plan)), Instant::now());
        let bridge = Bridge::new(DeviceLanes::sides(&plan, device_lanes.as_ref()));
        let handles: Box<[WorkersHandle]> =
            crews.workers.iter().map(|workers| workers.handle()).collect();
        let by_lane = (handles, crews.of_lane.into());
        let shared = Arc::new_cyclic(|own| {
            let own = std::sync::Weak::clone(own);
            let lanes = lanes.into();
            Shared::new(own, lanes, by_lane, own_lane, bridge, spin, apart, names, loaded_at)
        });
        let sources = crews.workers.into_iter().enumerate().map(|(crew, workers)| {
            (workers, Arc::new(PlanSource { shared: Arc::clone(&shared), crew }))
        });
        let sources = sources.collect();
        let written = written_buffers(&plan);
        let mut loaded = Self {
            plan,
            shared,
            sources,
            served: Vec::new(),
            own_lane,
            has_own_lane: true,
            loaded_at,
            last_run: 0,
            last_ended: 0,
            overlaps: false,
            cancel: None,
            verify: options.verify,
            devices: specs,
            written,
            bases,
            device_lanes,
            rebindable,
            kept: Vec::new(),
            _arenas: arenas,
        };
        loaded.balance(options.steal)?;
        Ok(loaded)
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<ExecutionPlan> {
        &self.plan
    }

    /// Binds buffers for any number of runs.
    ///
    /// Waits for work under way on them; from then on the host and other work keep off, until the
    /// result is dropped.
    pub fn bind<'a>(&'a mut self, bindings: &'a Bindings) -> Result<BoundPlan<'a>, BindError> {
        self.bind_until(bindings, Deadline::NEVER)
    }

    fn bind_until<'a>(
        &'a mut self,
        bindings: &'a Bindings,
        deadline: Deadline,
    ) -> Result<BoundPlan<'a>, BindError> {
        self.wait_for_all();
        let (bases, mut device_lanes) = (&mut self.bases, self.device_lanes.as_mut());
        let mut changed = false;
        let claims = Claims::new(
            &self.plan,
            &self.devices,
            &self.written,
            bindings,
            deadline,
            |memory, claim| {
                let base = claim.host_pointer().unwrap_or(std::ptr::null_mut());
                changed |= std::mem::replace(&mut bases[memory.index()], base) != base;
                if let Some(lanes) = &mut device_lanes {
                    lanes.bind(memory, claim.buffer());
                }
            },
        );
        // Also where a later buffer was refused: arguments and `bases` must agree, or the next bind
        // would find nothing changed and leave addresses of memory that may be gone.
        if changed {
            for &(lane, at, memory) in &self.rebindable {
                // SAFETY: `&mut self`: no run is under way, and this is the owner.
                let args = unsafe { self.shared.lanes[usize::from(lane)].args_mut() };
                args[at as usize].base = self.bases[memory.index()];
            }
        }
        let claims = claims?;
        if let Some(lanes) = &mut self.device_lanes {
            lanes.record().map_err(|source| BindError::NotRecorded { source })?;
        }
        self.kept.clear();
        self.kept.extend(bindings.buffers().cloned());
        self.join_workers();
        Ok(BoundPlan { _claims: claims, plan: self })
    }

    /// Binds buffers, runs once, and lets go of them.
    pub fn run(&mut self, bindings: &Bindings) -> Result<(), RunError> {
        self.bind(bindings)?.run()
    }

    /// As [`LoadedPlan::run`]; no body begins after `deadline`, and buffers in use are waited for
    /// no longer. See [`BoundPlan::run_until`].
    pub fn run_until(&mut self, bindings: &Bindings, deadline: Deadline) -> Result<(), RunError> {
        if !self.wait_for_all_until(deadline) {
            return Err(RunError::DeadlinePassed);
        }
        match self.bind_until(bindings, deadline) {
            Ok(mut bound) => bound.run_until(deadline),
            Err(BindError::Device { source: DeviceError::BufferBusy { .. }, .. })
                if deadline.has_passed() =>
            {
                Err(RunError::DeadlinePassed)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Has `token` stop runs: those under way when it is cancelled, and all that begin later, until
    /// another token is set. Replaces the token before.
    ///
    /// Bodies that have begun come to their ends, others do not begin, and a run that left out any
    /// returns [`RunError::Cancelled`]. On lanes of devices a batch of ops counts as one body, and
    /// each costs a call of the host for as long as there is a token.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use syncline_tensor::{Arg, View};
    /// use syncline_device::{CancelToken, cpu::CpuDevice};
    /// use syncline_plan::{
    ///     BufferSpec, CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskSpec,
    /// };
    /// use syncline_runtime::replay::{Bindings, LoadedPlan, RunError, TaskBody};
    ///
    /// let mut graph = TaskGraph::new();
    /// let x = graph.add_buffer(BufferSpec::external("x", 4))?;
    /// graph.submit(&TaskSpec::new("nothing", &[Arg::inout(x, View::bytes_at(0, 4)?)]))?;
    /// let plan = ExecutionPlan::compile(&graph, &Machine::cpu(1), &CompileOptions::default())?;
    /// let device = CpuDevice::open_default()?;
    /// let mut loaded = LoadedPlan::load(Arc::new(plan), &[device.clone()], |_, _| {
    ///     Some(TaskBody::new(|_| ()))
    /// })?;
    /// let bindings = Bindings::new().bind("x", &device.buffer(4));
    ///
    /// let token = CancelToken::new();
    /// loaded.set_cancel(&token);
    /// loaded.run(&bindings)?;
    /// token.cancel();
    /// assert_eq!(loaded.run(&bindings), Err(RunError::Cancelled));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_cancel(&mut self, token: &CancelToken) {
        self.cancel = Some(Cancel::new(token, &self.shared));
    }
}

impl Drop for LoadedPlan {
    fn drop(&mut self) {
        // A bound plan that was forgotten may have left runs behind.
        self.wait_for_all();
        self.leave_workers();
    }
}

impl fmt::Debug for LoadedPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedPlan")
            .field("ops", &self.plan.ops().len())
            .field("lanes", &self.plan.lanes().len())
            .finish_non_exhaustive()
    }
}

/// Whose workers run which lanes.
struct Crews {
    workers: Vec<Arc<Workers>>,
    /// By lane; `None` for one that no thread of the host runs.
    of_lane: Vec<Option<usize>>,
}

impl Crews {
    /// The workers of each lane's device, for lanes that are `run` by threads of the host. Devices
    /// without workers, which wrap others, get some for this plan.
    fn new(
        plan: &ExecutionPlan,
        devices: &[Arc<dyn Device>],
        run: impl Fn(usize) -> bool,
    ) -> Result<Self, LoadError> {
        let mut crews = Self { workers: Vec::new(), of_lane: Vec::new() };
        let lanes = plan.lanes().len();
        let mut own = None;
        for lane in 0..lanes {
            if !run(lane) {
                crews.of_lane.push(None);
                continue;
            }
            let device = &devices[plan.lanes()[lane].device.index()];
            let workers = match (device.workers(), &own) {
                (Some(workers), _) | (None, Some(workers)) => workers.clone(),
                (None, None) => {
                    let count = (lanes - 1).clamp(1, syncline_sync::processors());
                    let started = Workers::start("plan", count);
                    let workers = started.map_err(|error| LoadError::NoThread {
                        lane,
                        message: error.to_string(),
                    })?;
                    own.insert(workers).clone()
                }
            };
            let known = crews.workers.iter().position(|known| Arc::ptr_eq(known, &workers));
            crews.of_lane.push(Some(known.unwrap_or(crews.workers.len())));
            if known.is_none() {
                crews.workers.push(workers);
            }
        }
        Ok(crews)
    }
}

/// The devices of the plan's machine, in its order.
fn find_devices(
    plan: &ExecutionPlan,
    devices: &[Arc<dyn Device>],
) -> Result<Vec<Arc<dyn Device>>, LoadError> {
    (plan.machine().devices().iter())
        .map(|model| {
            let spec: DeviceSpec = model
                .name
                .parse()
                .map_err(|source| LoadError::NoDevice { name: model.name.clone(), source })?;
            let found = devices.iter().find(|device| device.info().spec == spec);
            found.cloned().ok_or(LoadError::MissingDevice { device: spec })
        })
        .collect()
}

/// The arenas, and the address of every memory in them; what the caller binds has none yet, and
/// what is out of the host's reach never has.
fn allocate(
    plan: &ExecutionPlan,
    devices: &[Arc<dyn Device>],
) -> Result<(Vec<Buffer>, Vec<*mut u8>), LoadError> {
    let mut arenas = Vec::with_capacity(devices.len());
    let mut starts = Vec::with_capacity(devices.len());
    for (device, &bytes) in devices.iter().zip(plan.arena_bytes()) {
        let arena = device.buffer(bytes.max(1));
        let pointer = arena.allocate()?.host_pointer();
        starts.push(pointer.map_or(std::ptr::null_mut(), |pointer| pointer.as_ptr()));
        arenas.push(arena);
    }
    let bases = (plan.memories().iter())
        .map(|memory| match memory.place {
            MemoryPlace::Bound => std::ptr::null_mut(),
            MemoryPlace::Arena { offset } => {
                starts[memory.device.index()].wrapping_add(offset as usize)
            }
        })
        .collect();
    Ok((arenas, bases))
}

fn written_buffers(plan: &ExecutionPlan) -> Vec<bool> {
    let mut written = vec![false; plan.buffers().len()];
    for task in plan.tasks() {
        for arg in task.args().filter(|arg| arg.access.writes()) {
            written[arg.buffer.0 as usize] = true;
        }
    }
    // A copy home writes nothing that no task wrote, but the claim must cover it.
    for copy in plan.copies() {
        written[plan.memories()[copy.target.index()].buffer.0 as usize] = true;
    }
    written
}

/// Puts the steps of one lane together.
struct LaneLoader<'a> {
    plan: &'a ExecutionPlan,
    devices: &'a [Arc<dyn Device>],
    bases: &'a [*mut u8],
    args: Vec<(RawArg, MemoryIndex)>,
}

impl LaneLoader<'_> {
    fn steps(
        &mut self,
        lane: LaneIndex,
        bodies: &mut impl FnMut(TaskInfo<'_>, DeviceSpec) -> Option<TaskBody>,
    ) -> Result<Vec<Step>, LoadError> {
        let ops = self.plan.lane_ops(lane);
        let mut steps = Vec::with_capacity(ops.len());
        for op in ops {
            let args_start = self.args.len() as u32;
            let body = self.body(lane, op, bodies)?;
            let args_len = self.args.len() as u32 - args_start;
            steps.push(Step { body, args_start, args_len });
        }
        Ok(steps)
    }

    fn body(
        &mut self,
        lane: LaneIndex,
        op: &Op,
        bodies: &mut impl FnMut(TaskInfo<'_>, DeviceSpec) -> Option<TaskBody>,
    ) -> Result<Box<Call>, LoadError> {
        match op.kind {
            OpKind::Task(task) => {
                let mut described = Vec::new();
                for arg in self.plan.args_of(task) {
                    described.push(describe(self.plan, &arg));
                    let view = match arg.access {
                        // Nobody orders others' writes against it, so that it must not be looked
                        // into.
                        Access::NoDep => nothing(arg.view.dtype()),
                        _ => *arg.view,
                    };
                    self.push(arg.memory, view, arg.access.writes());
                }
                let DeviceIndex(device) = self.plan.device_of(task);
                let (info, spec) = (self.plan.task(task), self.devices[device as usize].spec());
                let name = || info.name().to_owned();
                let body = bodies(info, spec).ok_or_else(|| LoadError::NoBody {
                    task: name(),
                    index: task,
                    kernel: info.kernel().to_owned(),
                    device: spec.to_string(),
                })?;
                // SAFETY: it is called with what was pushed above. What is bound to two buffers of
                // the plan of which one is written is never the same.
                unsafe { body.into_call(&described) }.map_err(|source| LoadError::NoKernel {
                    task: name(),
                    index: task,
                    device: spec,
                    source,
                })
            }
            OpKind::Copy(copy) => {
                self.check_route(lane, copy)?;
                let copy = &self.plan.copies()[copy.index()];
                let view = copy.views.first().copied().unwrap_or_else(|| nothing(Dtype::U8));
                self.push(copy.source, view, false);
                self.push(copy.target, view, true);
                Ok(copy_call(&copy.views)?)
            }
        }
    }

    /// A thread reaches memory of CPU devices only.
    fn check_route(&self, lane: LaneIndex, copy: CopyIndex) -> Result<(), LoadError> {
        let (source, target) = ends(self.plan, self.devices, copy);
        match [source, target].iter().all(|end| end.backend == Backend::Cpu) {
            true => Ok(()),
            false => {
                let device = self.plan.lanes()[lane.index()].device.index();
                let lane = self.devices[device].spec();
                Err(LoadError::NoRoute { source_device: source, target, lane })
            }
        }
    }

    fn push(&mut self, memory: MemoryIndex, view: View, writes: bool) {
        let base = self.bases[memory.index()];
        self.args.push((RawArg { base, view, writes }, memory));
    }
}

/// An argument of a task as its kernel checks it. The plan's buffers exist, so that others may
/// overlap them.
pub(super) fn describe(plan: &ExecutionPlan, arg: &PlanArg<'_>) -> Arg {
    let access = match arg.access {
        Access::Output => Access::OutputExisting,
        other => other,
    };
    Arg::new(access, plan.memories()[arg.memory.index()].buffer, *arg.view)
}

/// A view of no elements.
fn nothing(dtype: Dtype) -> View {
    View::contiguous(dtype, &[0]).expect("a view of nothing is a view")
}
