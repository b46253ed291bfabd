//! Running a program as a plan: recorded, compiled, loaded, replayed.

use std::sync::Arc;

use serde_json::Value;
use syncline_deps::ScopeKind;
use syncline_device::{Backend, Buffer, DeviceSpec};
use syncline_plan::{
    BufferSpec, CompileOptions, CostModel, DeviceChoice, DeviceIndex, ExecutionPlan, LaneIndex,
    LaneKind, Machine, OpKind, TaskGraph, TaskSpec,
};
use syncline_runtime::replay::{Bindings, LoadOptions, LoadedPlan, OpTime, TaskBody};
use syncline_spelling::nearest;
use syncline_tensor::{Arg, BufferId, TaskId};
use syncline_trace::Place;

use crate::choices::Choices;
use crate::error::{ProgramError, ProgramRunError};
use crate::intermediates::Keep;
use crate::opened::Opened;
use crate::program::Program;
use crate::progress::RunProgress;
use crate::resolve::shape;
use crate::run::{CopyTiming, ProgramRun, RunOptions, TaskTiming, read_back, watched};

impl Program {
    /// Compiles the program for these devices and replays it; the fastest of the repeats counts.
    ///
    /// The first repeat runs a plan made from guessed costs, the others one made from the costs
    /// that it measured. With several devices, the first repeat runs the program once on each of
    /// them, as far as its kernels and the trace allow: the costs then known of all are what the
    /// others are placed by.
    pub fn run_planned(&self, options: &RunOptions) -> Result<ProgramRun, ProgramRunError> {
        let mut opened = Opened::new(options)?;
        let machine = opened.machine()?;
        let mut costs = CostModel::default();
        let mut best: Option<ProgramRun> = None;
        let mut keep = |run: ProgramRun| {
            if best.as_ref().is_none_or(|best| run.makespan_ns < best.makespan_ns) {
                best = Some(run);
            }
        };
        let repeats = options.repeats.max(1);
        let progress = options.progress.as_ref();
        let choices = Choices::on_machine(self, &machine)?;
        let is_inner = self.intermediates(&options.keep);
        // What lives in arenas is counted when the plan is compiled.
        self.require_memory(|buffer| !is_inner[buffer])?;
        let cost_ns = |task: usize| self.tasks()[task].cost_ns;
        let graph = self.graph_with(&machine, &choices, &is_inner, cost_ns)?;
        let mut prepared: Option<Prepared> = None;
        for repeat in 0..repeats {
            if repeat == 0 && repeats > 1 && choices.devices.len() > 1 {
                for &device in &choices.devices {
                    let preferred = choices.preferring(device);
                    let graph = self.graph_with(&machine, &preferred, &is_inner, cost_ns)?;
                    let load = LoadOptions::default().split();
                    let mut alone =
                        self.prepare(&graph, &machine, &opened, &costs, progress, load)?;
                    keep(self.run_once(&mut alone)?);
                    alone.loaded.observe(&mut costs);
                }
            } else {
                // Made anew where more is known than when it was made.
                if repeat < 2 || prepared.is_none() {
                    let load = LoadOptions::default();
                    // The one before gives its memory back first.
                    drop(prepared.take());
                    let made = self.prepare(&graph, &machine, &opened, &costs, progress, load)?;
                    prepared = Some(made);
                }
                let prepared = prepared.as_mut().expect("just made");
                keep(self.run_once(prepared)?);
                prepared.loaded.observe(&mut costs);
            }
            if let Some(progress) = progress {
                progress.reach(u64::from(repeat + 1) * self.tasks().len() as u64);
            }
        }
        Ok(best.expect("at least one repeat"))
    }

    /// The program as a graph for `machine`: all its buffers are external, so that they can be read
    /// afterwards.
    pub fn graph(&self, machine: &Machine) -> Result<TaskGraph, ProgramRunError> {
        let cost_ns = |task: usize| self.tasks()[task].cost_ns;
        let is_inner = self.intermediates(&Keep::All);
        self.graph_with(machine, &Choices::on_machine(self, machine)?, &is_inner, cost_ns)
    }

    /// The same, with tasks where `choices` lets them be, and the intermediates in the plan's
    /// arenas.
    pub(crate) fn graph_with(
        &self,
        machine: &Machine,
        choices: &Choices,
        is_intermediate: &[bool],
        cost_ns: impl Fn(usize) -> u64,
    ) -> Result<TaskGraph, ProgramRunError> {
        let mut graph = TaskGraph::new();
        let mut buffers: Vec<BufferId> = Vec::with_capacity(self.trace().buffers.len());
        for (index, buffer) in self.trace().buffers.iter().enumerate() {
            let place = Place::entry("buffers", index).member("device");
            let home = match buffer.extra.get("device") {
                None | Some(Value::Null) => None,
                Some(Value::String(home)) => Some(home.as_str()),
                Some(other) => return Err(shape(place, "a device by name", other).into()),
            };
            if let Some(home) = home {
                find(machine, home, place)?;
            }
            let name = buffer.name.as_deref().unwrap_or("");
            let spec = match is_intermediate[index] {
                true => BufferSpec::temporary(name, buffer.bytes),
                false => BufferSpec::external(name, buffer.bytes),
            };
            buffers.push(graph.add_buffer(BufferSpec { home, ..spec }).map_err(refused)?);
        }
        let mut ids: Vec<TaskId> = Vec::with_capacity(self.tasks().len());
        let (mut args, mut deps): (Vec<Arg>, Vec<TaskId>) = (Vec::new(), Vec::new());
        let mut scope = ScopeKind::Auto;
        for (index, (task, what)) in self.trace().tasks.iter().zip(self.tasks()).enumerate() {
            match (scope, task.scope) {
                (ScopeKind::Auto, ScopeKind::Manual) => graph.enter_scope(ScopeKind::Manual),
                (ScopeKind::Manual, ScopeKind::Auto) => graph.leave_scope().map_err(refused)?,
                _ => {}
            }
            scope = task.scope;
            let place = Place::task(index, task.id).member("device");
            let names: Vec<String> =
                choices.of_task[index].iter().map(DeviceSpec::to_string).collect();
            names.iter().try_for_each(|name| find(machine, name, place).map(|_| ()))?;
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let bound = |arg: &Arg| Arg { buffer: buffers[self.buffer_index(arg.buffer)], ..*arg };
            args.clear();
            args.extend(task.args.iter().map(|arg| bound(&arg.arg)));
            deps.clear();
            deps.extend(task.deps.iter().map(|&dep| ids[self.task_index(dep)]));
            let mut spec = TaskSpec::new(task.label(), &args)
                .kernel(what.kernel.name())
                .deps(&deps)
                .cost_ns(cost_ns(index))
                .priority(what.priority);
            if !names.is_empty() {
                spec.device = DeviceChoice::OneOf(&names);
            }
            ids.push(graph.submit(&spec).map_err(refused)?);
        }
        Ok(graph)
    }

    /// A plan of `graph`, loaded, with buffers to run it on. Kernels that a driver must compile
    /// have been when it is returned: that belongs to no run.
    fn prepare(
        &self,
        graph: &TaskGraph,
        machine: &Machine,
        opened: &Opened,
        costs: &CostModel,
        progress: Option<&RunProgress>,
        load: LoadOptions,
    ) -> Result<Prepared, ProgramRunError> {
        let options = CompileOptions::default().with_costs(costs);
        let plan = ExecutionPlan::compile(graph, machine, &options).map_err(refused)?;
        let body = |task: syncline_plan::TaskInfo<'_>, device: DeviceSpec| {
            let what = &self.tasks()[task.index().index()];
            let kernel = match device.backend {
                // One without a body on the CPU is refused by the loader, which names its task.
                Backend::Cpu => {
                    watched(progress, &what.kernel).unwrap_or_else(|_| what.kernel.clone())
                }
                _ => what.kernel.clone(),
            };
            Some(TaskBody::kernel(&kernel, what.scalars.clone()))
        };
        let loaded = LoadedPlan::load_with(Arc::new(plan), &opened.devices, body, load);
        let loaded = loaded.map_err(refused)?;
        let mut bindings = Bindings::new();
        let mut buffers: Vec<Buffer> = Vec::new();
        for (_, memory) in loaded.plan().bound_memories() {
            let buffer = opened.devices[memory.device.index()].buffer(memory.bytes);
            bindings = bindings.bind_id(memory.buffer, &buffer);
            buffers.push(buffer);
        }
        let mut prepared = Prepared { loaded, buffers, bindings };
        if opened.devices.iter().any(|device| device.spec().backend != Backend::Cpu) {
            self.fill(&prepared)?;
            let run = prepared.loaded.run(&prepared.bindings);
            run.map_err(|error| self.failed(error))?;
        }
        Ok(prepared)
    }

    /// Writes what the buffers hold before the first task.
    fn fill(&self, prepared: &Prepared) -> Result<(), ProgramRunError> {
        let memories = prepared.loaded.plan().bound_memories();
        for ((_, memory), buffer) in memories.zip(&prepared.buffers) {
            buffer.write(0, &self.initial_contents(memory.buffer.0 as usize)?)?;
        }
        Ok(())
    }

    fn run_once(&self, prepared: &mut Prepared) -> Result<ProgramRun, ProgramRunError> {
        self.fill(prepared)?;
        let Prepared { loaded, buffers, bindings } = prepared;
        loaded.bind(bindings).map_err(refused)?.run_timed().map_err(|error| self.failed(error))?;
        let (times, ran_on) = (loaded.times(), loaded.ran_on());
        let mut contents = vec![Vec::new(); self.trace().buffers.len()];
        for ((_, memory), kept) in loaded.plan().bound_memories().zip(read_back(buffers)?) {
            contents[memory.buffer.0 as usize] = kept;
        }
        let steals = loaded.steals();
        Ok(ProgramRun { steals, ..collect(loaded.plan(), &times, &ran_on, contents) })
    }

    fn failed(&self, error: syncline_runtime::replay::RunError) -> ProgramRunError {
        use syncline_runtime::replay::RunError as Replay;
        match error {
            Replay::Failed { task, index, cause } | Replay::Panicked { task, index, cause } => {
                match self.trace().tasks.get(index.index()) {
                    Some(of) => ProgramRunError::Task { id: of.id, name: task, message: cause },
                    // A copy between devices is no task of the trace.
                    None => refused(format!("{task}: {cause}")),
                }
            }
            other => refused(other),
        }
    }
}

/// A plan with its buffers: one for each that the caller binds, in their order.
struct Prepared {
    loaded: LoadedPlan,
    buffers: Vec<Buffer>,
    bindings: Bindings,
}

pub(crate) fn refused(error: impl std::fmt::Display) -> ProgramRunError {
    ProgramRunError::Plan(error.to_string())
}

fn find(machine: &Machine, name: &str, place: Place) -> Result<DeviceIndex, ProgramError> {
    machine.find(name).ok_or_else(|| {
        let known: Vec<&str> =
            machine.devices().iter().map(|device| device.name.as_str()).collect();
        ProgramError::UnknownDevice {
            place,
            name: name.to_owned(),
            nearest: nearest(name, known.iter().copied()).map(str::to_owned),
            known: known.join(", "),
        }
    })
}

/// What ran when, and on which lane (by op; as planned where nothing is said): tasks in the order
/// of the trace, and copies.
pub(crate) fn collect(
    plan: &Arc<ExecutionPlan>,
    times: &[OpTime],
    ran_on: &[LaneIndex],
    contents: Vec<Vec<u8>>,
) -> ProgramRun {
    let mut timings = vec![TaskTiming { lane: 0, start_ns: 0, end_ns: 0 }; plan.tasks().len()];
    let mut copies = Vec::new();
    for (at, lane) in plan.lanes().iter().enumerate() {
        let ops = lane.first.index()..lane.first.index() + lane.count as usize;
        for (number, (op, time)) in ops.clone().zip(plan.ops()[ops.clone()].iter().zip(&times[ops]))
        {
            let lane = ran_on.get(number).map_or(at, |lane| lane.index());
            let timing = TaskTiming { lane, start_ns: time.start_ns, end_ns: time.end_ns };
            match op.kind {
                OpKind::Task(task) => timings[task.index()] = timing,
                OpKind::Copy(copy) => {
                    copies.push(copy_timing(plan, &plan.copies()[copy.index()], timing))
                }
            }
        }
    }
    // A copy may come before the first task.
    let all = || timings.iter().chain(copies.iter().map(|copy: &CopyTiming| &copy.timing));
    let first_ns = all().map(|timing| timing.start_ns).min().unwrap_or(0);
    let makespan_ns = all().map(|timing| timing.end_ns).max().unwrap_or(0) - first_ns;
    for timing in timings.iter_mut().chain(copies.iter_mut().map(|copy| &mut copy.timing)) {
        timing.start_ns -= first_ns;
        timing.end_ns -= first_ns;
    }
    ProgramRun {
        contents,
        makespan_ns,
        timings,
        lanes: lane_names(plan),
        copies,
        plan: Some(plan.clone()),
        steals: false,
    }
}

fn copy_timing(plan: &ExecutionPlan, copy: &syncline_plan::Copy, timing: TaskTiming) -> CopyTiming {
    let device = |memory: syncline_plan::MemoryIndex| {
        &plan.machine().devices()[plan.memories()[memory.index()].device.index()].name
    };
    let route = format!("{} -> {}", device(copy.source), device(copy.target));
    CopyTiming { timing, bytes: copy.bytes(), route }
}

/// `cpu:0/0`, `cpu:0/1`, `cpu:0/copy` and so on.
fn lane_names(plan: &ExecutionPlan) -> Vec<String> {
    let mut compute = vec![0; plan.machine().devices().len()];
    let name = |lane: &syncline_plan::PlanLane| {
        let device = lane.device.index();
        let name = &plan.machine().devices()[device].name;
        match lane.kind {
            LaneKind::Copy => format!("{name}/copy"),
            LaneKind::Compute => {
                compute[device] += 1;
                format!("{name}/{}", compute[device] - 1)
            }
        }
    };
    plan.lanes().iter().map(name).collect()
}
