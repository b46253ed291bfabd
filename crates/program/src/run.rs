//! Running a program one task after the other: the answer that every other way must give.

use std::sync::Arc;

use serde_json::Value;
use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{
    Batch, Buffer, Command, Deadline, Device, DeviceError, DeviceRegistry, DeviceSpec, Kernel,
    KernelArg, LaneKind,
};
use syncline_plan::ExecutionPlan;
use syncline_trace::{Trace, TraceLane};

use crate::error::ProgramRunError;
use crate::intermediates::Keep;
use crate::overheads::LANES;
use crate::program::Program;
use crate::progress::RunProgress;
use crate::timed::Clock;

/// What a run left behind.
#[derive(Clone, Debug)]
pub struct ProgramRun {
    /// The contents of every buffer of the trace, in its order; nothing for buffers that the run
    /// did not [`Keep`].
    pub contents: Vec<Vec<u8>>,
    /// From the start of the first task to the end of the last.
    pub makespan_ns: u64,
    /// When and where every task ran, in the order of the trace.
    pub timings: Vec<TaskTiming>,
    /// The lanes that timings refer to, by name.
    pub lanes: Vec<String>,
    /// What was copied between devices, in the order of the plan's ops.
    pub copies: Vec<CopyTiming>,
    /// The plan that was run, if there was one.
    pub plan: Option<Arc<ExecutionPlan>>,
    /// Whether idle lanes took ops of busy ones. Bytes then decided what an op came after, and the
    /// order on the plan's lanes did not.
    pub steals: bool,
}

/// When and where bytes were copied from one device to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTiming {
    /// When and where it ran.
    pub timing: TaskTiming,
    /// How many bytes.
    pub bytes: u64,
    /// From where to where, such as `cpu:0 -> cpu:1`.
    pub route: String,
}

/// How a program is run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunOptions {
    /// The devices to use.
    pub devices: Vec<DeviceSpec>,
    /// Adds the backends that they may be of to a registry, which has the CPU already.
    pub backends: fn(&mut DeviceRegistry),
    /// How often to run; the fastest run is reported.
    pub repeats: u32,
    /// Counts the tasks that are done, for display.
    pub progress: Option<RunProgress>,
    /// Which buffers a plan leaves behind; the others live in its arenas. Streams and serial runs
    /// keep all.
    pub keep: Keep,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            devices: vec![DeviceSpec::CPU],
            backends: |_| (),
            repeats: 1,
            progress: None,
            keep: Keep::All,
        }
    }
}

impl RunOptions {
    /// The same, on these devices.
    #[must_use]
    pub fn with_devices(self, devices: impl IntoIterator<Item = DeviceSpec>) -> Self {
        Self { devices: devices.into_iter().collect(), ..self }
    }

    /// The same, with backends beside the CPU.
    #[must_use]
    pub fn with_backends(self, backends: fn(&mut DeviceRegistry)) -> Self {
        Self { backends, ..self }
    }

    /// The same, so many times.
    #[must_use]
    pub fn with_repeats(self, repeats: u32) -> Self {
        Self { repeats, ..self }
    }

    /// The same, with a count of the tasks that are done, or without one.
    #[must_use]
    pub fn with_progress(self, progress: impl Into<Option<RunProgress>>) -> Self {
        Self { progress: progress.into(), ..self }
    }

    /// The same, with these buffers left behind.
    #[must_use]
    pub fn with_keep(self, keep: Keep) -> Self {
        Self { keep, ..self }
    }
}

/// When and where a task ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskTiming {
    /// Position in [`ProgramRun::lanes`].
    pub lane: usize,
    /// From the start of the first task.
    pub start_ns: u64,
    /// From the start of the first task.
    pub end_ns: u64,
}

impl Program {
    /// Runs the tasks in the order of the trace, each after the one before, on one lane.
    pub fn run_serially(&self) -> Result<ProgramRun, ProgramRunError> {
        self.run_serially_watched(None)
    }

    /// The same, counting the tasks that are done.
    pub fn run_serially_watched(
        &self,
        progress: Option<&RunProgress>,
    ) -> Result<ProgramRun, ProgramRunError> {
        self.require_cpu_bodies()?;
        self.require_memory(|_| true)?;
        let device = CpuDevice::open(CpuOptions::new(0).compute_lanes(1))?;
        let buffers = self.filled_buffers(&device)?;
        let clock = Clock::start(self.tasks().len());
        let lane = device.lane(LaneKind::Compute);
        for (index, (task, what)) in self.trace().tasks.iter().zip(self.tasks()).enumerate() {
            let args = task
                .args
                .iter()
                .map(|arg| {
                    let buffer = &buffers[self.buffer_index(arg.arg.buffer)];
                    Ok(KernelArg::new(arg.arg.access, buffer.view(arg.arg.view)?))
                })
                .collect::<Result<Vec<_>, ProgramRunError>>()?;
            let kernel = clock.wrap(&watched(progress, &what.kernel)?, index)?;
            let command = Command::dispatch(&kernel, args, what.scalars.clone());
            lane.submit(Batch::from(command).task(format!("{} {}", task.id, task.label())))?;
        }
        lane.synchronize(Deadline::NEVER)?;
        let lanes = vec![lane.info().name.to_string()];
        Ok(ProgramRun::new(read_back(&buffers)?, lanes, clock.timings(|_| 0)))
    }

    /// A buffer on `device` for each of the trace's, with its initial contents.
    pub(crate) fn filled_buffers(
        &self,
        device: &Arc<dyn Device>,
    ) -> Result<Vec<Buffer>, ProgramRunError> {
        let one = |index: usize| {
            let buffer = device.buffer(self.trace().buffers[index].bytes);
            buffer.write(0, &self.initial_contents(index)?)?;
            Ok(buffer)
        };
        (0..self.trace().buffers.len()).map(one).collect()
    }
}

impl Program {
    /// The program's trace with the times and lanes of `run`: what reports and comparisons are made
    /// from.
    pub fn timed_trace(&self, run: &ProgramRun) -> Trace {
        let mut trace = self.trace().clone();
        for (task, timing) in trace.tasks.iter_mut().zip(&run.timings) {
            task.start_ns = Some(timing.start_ns);
            task.end_ns = Some(timing.end_ns);
            task.lane = Some(TraceLane::Name(run.lanes[timing.lane].as_str().into()));
        }
        run.list_lanes(&mut trace);
        trace
    }
}

impl ProgramRun {
    /// Lists the lanes that tasks could have run on in `trace`: no task names lanes that ran
    /// nothing.
    pub(crate) fn list_lanes(&self, trace: &mut Trace) {
        let Some(plan) = &self.plan else { return };
        let lanes = plan.lanes().iter().zip(&self.lanes);
        let compute = lanes.filter(|(lane, _)| lane.kind == syncline_plan::LaneKind::Compute);
        let names = compute.map(|(_, name)| Value::from(name.as_str())).collect();
        trace.extra.insert(LANES.to_owned(), Value::Array(names));
    }

    /// A run whose tasks ran at `times`, with the contents read back.
    pub(crate) fn new(
        contents: Vec<Vec<u8>>,
        lanes: Vec<String>,
        times: impl IntoIterator<Item = TaskTiming>,
    ) -> Self {
        let mut timings: Vec<TaskTiming> = times.into_iter().collect();
        let first_ns = timings.iter().map(|timing| timing.start_ns).min().unwrap_or(0);
        for timing in &mut timings {
            timing.start_ns -= first_ns;
            timing.end_ns -= first_ns;
        }
        let makespan_ns = timings.iter().map(|timing| timing.end_ns).max().unwrap_or(0);
        Self {
            contents,
            makespan_ns,
            timings,
            lanes,
            copies: Vec::new(),
            plan: None,
            steals: false,
        }
    }
}

/// `kernel` for the CPU, counted if progress is shown.
pub(crate) fn watched(
    progress: Option<&RunProgress>,
    kernel: &Kernel,
) -> Result<Kernel, DeviceError> {
    progress.map_or_else(|| Ok(kernel.clone()), |progress| progress.counted(kernel))
}

/// The contents of all buffers.
pub(crate) fn read_back(buffers: &[Buffer]) -> Result<Vec<Vec<u8>>, ProgramRunError> {
    let all = |buffer: &Buffer| buffer.read::<u8>(0, buffer.bytes() as usize);
    buffers.iter().map(all).collect::<Result<_, _>>().map_err(ProgramRunError::from)
}
