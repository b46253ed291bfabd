//! Running a program as a stream: submitted task by task while earlier ones run.

use std::collections::HashMap;

use syncline_deps::ScopeKind;
use syncline_device::{Backend, Buffer, DeviceSpec};
use syncline_runtime::stream::{Stream, StreamError, StreamOptions, Task, TaskHandle};
use syncline_trace::Place;

use crate::error::ProgramRunError;
use crate::program::Program;
use crate::progress::RunProgress;
use crate::run::{ProgramRun, RunOptions, TaskTiming, watched};
use crate::timed::Clock;

impl Program {
    /// Submits the tasks in the order of the trace to a stream; the fastest of the repeats counts.
    pub fn run_streamed(&self, options: &RunOptions) -> Result<ProgramRun, ProgramRunError> {
        let foreign = options.devices.iter().find(|spec| spec.backend != Backend::Cpu);
        if options.devices.len() != 1 || foreign.is_some() {
            let names: Vec<_> = options.devices.iter().map(DeviceSpec::to_string).collect();
            return Err(ProgramRunError::Start(format!(
                "a stream runs on one CPU device, not on {}: its workers share the host's memory, and take any task; \
                 `--mode plan` uses several devices, and others than CPUs",
                names.join(", ")
            )));
        }
        self.require_device(options.devices[0])?;
        self.require_cpu_bodies()?;
        self.require_memory(|_| true)?;
        // Tasks of a manual scope may race, if the program is wrong. A plan with such tasks is
        // proven free of races before it runs; a stream cannot be.
        if let Some(task) = self.trace().tasks.iter().find(|task| task.scope == ScopeKind::Manual) {
            let id = task.id;
            return Err(ProgramRunError::Start(format!(
                "task {id} is in a manual scope, which a stream cannot prove to be free of races; \
                 `--mode plan` can"
            )));
        }
        let mut best: Option<ProgramRun> = None;
        for _ in 0..options.repeats.max(1) {
            let run = self.stream_once(options.progress.as_ref())?;
            if best.as_ref().is_none_or(|best| run.makespan_ns < best.makespan_ns) {
                best = Some(run);
            }
        }
        Ok(best.expect("at least one repeat"))
    }

    /// Refuses tasks that must run elsewhere: a stream would run them here.
    fn require_device(&self, device: DeviceSpec) -> Result<(), ProgramRunError> {
        let elsewhere =
            |what: &crate::ProgramTask| !what.devices.is_empty() && !what.devices.contains(&device);
        let Some(index) = self.tasks().iter().position(elsewhere) else { return Ok(()) };
        let wanted: Vec<_> =
            self.tasks()[index].devices.iter().map(DeviceSpec::to_string).collect();
        let place = Place::task(index, self.trace().tasks[index].id).member("device");
        Err(ProgramRunError::Start(format!(
            "{place}: the task is for {}, and a stream runs on {device} alone; `--mode plan` uses several devices",
            wanted.join(" or ")
        )))
    }

    fn stream_once(&self, progress: Option<&RunProgress>) -> Result<ProgramRun, ProgramRunError> {
        let stream = Stream::new(StreamOptions::default()).map_err(start)?;
        let mut buffers: Vec<Buffer> = Vec::new();
        for index in 0..self.trace().buffers.len() {
            let contents = self.initial_contents(index)?;
            buffers.push(stream.buffer_of(&contents).map_err(start)?);
        }
        let clock = Clock::start(self.tasks().len());
        let submitted = self.submit_all(&stream, &buffers, &clock, progress);
        let waited = stream.wait_all();
        submitted?;
        waited.map_err(start)?;
        let mut contents = Vec::new();
        for buffer in &buffers {
            let read = stream.read(buffer).map_err(start)?;
            contents.push(read.as_slice::<u8>().map_err(start)?.to_vec());
        }
        let (timings, lanes) = lanes_by_time(clock.timings(|_| 0));
        Ok(ProgramRun::new(contents, lanes, timings))
    }

    fn submit_all(
        &self,
        stream: &Stream,
        buffers: &[Buffer],
        clock: &Clock,
        progress: Option<&RunProgress>,
    ) -> Result<(), ProgramRunError> {
        let mut handles: HashMap<u64, TaskHandle> = HashMap::new();
        for (index, (task, what)) in self.trace().tasks.iter().zip(self.tasks()).enumerate() {
            let mut one = Task::new(task.label().to_owned()).priority(what.priority);
            for arg in &task.args {
                let buffer = &buffers[self.buffer_index(arg.arg.buffer)];
                one = one.arg(as_existing(arg.arg.access), buffer, arg.arg.view);
            }
            for dep in &task.deps {
                one = one.after(&handles[dep]);
            }
            let kernel = clock.wrap(&watched(progress, &what.kernel)?, index)?;
            one = one.kernel(&kernel, &what.scalars).kernel_blocks(what.blocks);
            let submitted = stream.submit(one);
            handles.insert(task.id, submitted.map_err(start)?);
        }
        Ok(())
    }
}

fn start(error: StreamError) -> ProgramRunError {
    ProgramRunError::Start(error.to_string())
}

/// The program's buffers exist from the start, so that a first use creates nothing.
fn as_existing(access: syncline_tensor::Access) -> syncline_tensor::Access {
    match access {
        syncline_tensor::Access::Output => syncline_tensor::Access::OutputExisting,
        other => other,
    }
}

/// Which worker ran a task is the stream's affair: tasks are shown on as few lanes as their times
/// allow.
fn lanes_by_time(mut timings: Vec<TaskTiming>) -> (Vec<TaskTiming>, Vec<String>) {
    let mut order: Vec<usize> = (0..timings.len()).collect();
    order.sort_by_key(|&task| (timings[task].start_ns, timings[task].end_ns));
    let mut free_at: Vec<u64> = Vec::new();
    for task in order {
        let TaskTiming { start_ns, end_ns, .. } = timings[task];
        let lane = free_at.iter().position(|&free| free <= start_ns).unwrap_or_else(|| {
            free_at.push(0);
            free_at.len() - 1
        });
        free_at[lane] = end_ns;
        timings[task].lane = lane;
    }
    let names = (0..free_at.len().max(1)).map(|lane| format!("stream/{lane}")).collect();
    (timings, names)
}
