//! Steps: what a batch does on the device and on the host, in turn.
//!
//! Most batches are one step on the device. Copies from and to memory of the host are steps of
//! their own, and so are host functions.

use std::collections::VecDeque;
use std::sync::Arc;

use syncline_copy::CopyPlan;
use syncline_device::{
    Backend, Command, Commands, Copy, DeviceError, Fill, HostFunction, Pattern, fill,
};
use syncline_tensor::View;

use crate::encode::Encoder;
use crate::kit::Kit;
use crate::memory::Upload;
use crate::record::{CommandPool, Recorded, Times};

/// Bytes moved at a time between the host and memory that it cannot reach.
const CHUNK_BYTES: u64 = 4 << 20;

/// One step of a batch.
pub(crate) enum Step {
    /// Command buffers, submitted together, each with the number that its commands count from.
    Device(Arc<Vec<(u32, Arc<Recorded>)>>),
    /// Copies and fills by the host, and the number that they count from.
    Host(u32, Arc<Vec<HostJob>>),
    /// A function of the user's, and its number.
    Call(u32, HostFunction),
}

/// The steps of a batch that are still to come.
pub(crate) enum Steps {
    /// Made for this batch.
    Own(VecDeque<Step>),
    /// Those of a recording, from this one on: nothing is made for the batch.
    Kept(Arc<Prepared>, usize),
}

impl Steps {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Steps::Own(steps) => steps.is_empty(),
            Steps::Kept(kept, next) => *next == kept.0.len(),
        }
    }

    /// Returns `true` if the next step is the host's.
    pub(crate) fn begin_on_host(&self) -> bool {
        match self {
            Steps::Own(steps) => matches!(steps.front(), Some(Step::Host(..) | Step::Call(..))),
            Steps::Kept(kept, next) => matches!(kept.0.get(*next), Some(Repeatable::Host(_))),
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<Step> {
        match self {
            Steps::Own(steps) => steps.pop_front(),
            Steps::Kept(kept, next) => {
                let step = match kept.0.get(*next)? {
                    Repeatable::Device(recorded) => Step::Device(recorded.clone()),
                    Repeatable::Host(jobs) => Step::Host(0, jobs.clone()),
                };
                *next += 1;
                Some(step)
            }
        }
    }

    /// Returns the host functions to `commands`, of a batch that is refused.
    pub(crate) fn give_back(self, commands: &mut Commands) {
        let Steps::Own(steps) = self else { return };
        for step in steps {
            if let Step::Call(_, function) = step {
                commands.push(Command::Host(function));
            }
        }
    }
}

/// What a recording becomes on one lane.
pub(crate) struct Prepared(Vec<Repeatable>);

/// The same, where the device notes when its commands run.
struct PreparedTimed(Vec<Repeatable>);

#[derive(Clone)]
enum Repeatable {
    Device(Arc<Vec<(u32, Arc<Recorded>)>>),
    Host(Arc<Vec<HostJob>>),
}

/// A copy or a fill by the host, on memory that the leases of its batch keep.
pub(crate) struct HostJob {
    /// The command that it is, or is a part of.
    pub(crate) number: u32,
    what: HostWork,
    /// Memory of ours that it goes through.
    _keeps: Option<Arc<Upload>>,
}

enum HostWork {
    Copy { plan: CopyPlan, source: Pointer, target: Pointer },
    Fill { view: View, pattern: Pattern, target: Pointer },
}

/// An address that another thread will use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointer(*mut u8);

// SAFETY: an address and nothing else; who uses it argues for what it points to.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

impl HostJob {
    /// Does it.
    ///
    /// # Safety
    /// The memory is alive, and no conflicting work runs meanwhile.
    pub(crate) unsafe fn run(&self) {
        // SAFETY: the caller's promise; views lie inside their buffers, and different buffers never
        // overlap.
        unsafe {
            match &self.what {
                HostWork::Copy { plan, source, target } if source == target => {
                    plan.run_within(target.0);
                }
                HostWork::Copy { plan, source, target } => plan.run(source.0, target.0),
                HostWork::Fill { view, pattern, target } => fill::run(target.0, view, pattern),
            }
        }
    }
}

/// The steps of `commands` on the lane with this pool and identity. If `timed`, the device notes
/// when they run. Leaves all commands but the host functions, and those too where one is refused.
pub(crate) fn prepare(
    kit: &Kit,
    pool: &Arc<CommandPool>,
    lane: u64,
    commands: &mut Commands,
    timed: bool,
) -> Result<Steps, DeviceError> {
    let make = |commands: &[Command]| {
        let mut builder = Builder::new(kit, pool, Times::Often, timed);
        commands.iter().try_for_each(|command| builder.add(command))?;
        builder.flush()?;
        Ok::<_, DeviceError>(builder.done)
    };
    if let Some(recording) = commands.as_recording().filter(|_| !timed) {
        return Ok(Steps::Kept(recording.keep(lane, |of| make(of).map(Prepared))?, 0));
    }
    let mut builder = Builder::new(kit, pool, Times::Once, timed);
    let mut steps = VecDeque::new();
    let mut result = Ok(());
    for command in std::mem::take(commands) {
        match command {
            Command::Host(function) if result.is_ok() => {
                result = builder.flush();
                take(&mut steps, 0, builder.done.drain(..));
                steps.push_back(Step::Call(builder.number, function));
                builder.number += 1;
            }
            command => {
                if result.is_ok() {
                    result = builder.add_to(&mut steps, &command, lane, make);
                }
                commands.push(command);
            }
        }
    }
    result = result.and_then(|()| builder.flush());
    take(&mut steps, 0, builder.done.drain(..));
    let steps = Steps::Own(steps);
    match result {
        Ok(()) => Ok(steps),
        Err(cause) => {
            steps.give_back(commands);
            Err(cause)
        }
    }
}

/// Appends steps whose commands count from `base`; what the device does in succession is submitted
/// together.
fn take(steps: &mut VecDeque<Step>, base: u32, more: impl Iterator<Item = Repeatable>) {
    for step in more {
        let based = |recorded: &Arc<Vec<(u32, Arc<Recorded>)>>| {
            let based = recorded.iter().map(|(number, recorded)| (base + number, recorded.clone()));
            based.collect::<Vec<_>>()
        };
        match (step, steps.back_mut()) {
            (Repeatable::Device(recorded), Some(Step::Device(before))) => {
                Arc::make_mut(before).extend(based(&recorded));
            }
            (Repeatable::Device(recorded), _) => {
                steps.push_back(Step::Device(Arc::new(based(&recorded))));
            }
            (Repeatable::Host(jobs), _) => steps.push_back(Step::Host(base, jobs)),
        }
    }
}

/// Sorts commands into steps.
struct Builder<'a> {
    kit: &'a Kit,
    pool: &'a Arc<CommandPool>,
    times: Times,
    timed: bool,
    /// Of the next command.
    number: u32,
    done: Vec<Repeatable>,
    encoder: Encoder<'a>,
    jobs: Vec<HostJob>,
}

impl<'a> Builder<'a> {
    fn new(kit: &'a Kit, pool: &'a Arc<CommandPool>, times: Times, timed: bool) -> Self {
        let encoder = Encoder::new(kit, timed);
        Self { kit, pool, times, timed, number: 0, done: Vec::new(), encoder, jobs: Vec::new() }
    }

    /// Adds a command; what a recording becomes on `lane`, by `make`, goes to `steps`.
    fn add_to(
        &mut self,
        steps: &mut VecDeque<Step>,
        command: &Command,
        lane: u64,
        make: impl Fn(&[Command]) -> Result<Vec<Repeatable>, DeviceError>,
    ) -> Result<(), DeviceError> {
        let Command::Recording(recording) = command else { return self.add(command) };
        self.flush()?;
        take(steps, 0, self.done.drain(..));
        // Two types under one key: the one that is asked for is found.
        if self.timed {
            let kept = recording.keep(lane, |commands| make(commands).map(PreparedTimed))?;
            take(steps, self.number, kept.0.iter().cloned());
        } else {
            let kept = recording.keep(lane, |commands| make(commands).map(Prepared))?;
            take(steps, self.number, kept.0.iter().cloned());
        }
        self.number += recording.commands().len() as u32;
        Ok(())
    }

    fn add(&mut self, command: &Command) -> Result<(), DeviceError> {
        self.add_numbered(command)?;
        self.number += 1;
        Ok(())
    }

    fn add_numbered(&mut self, command: &Command) -> Result<(), DeviceError> {
        let is_cpu =
            |view: &syncline_device::BufferView| view.buffer().device().backend == Backend::Cpu;
        match command {
            Command::Copy(copy) if is_cpu(&copy.source) || is_cpu(&copy.target) => {
                self.copy_by_host(copy)
            }
            Command::Fill(fill) if is_cpu(&fill.target) => self.fill_by_host(fill),
            command => {
                self.flush_jobs();
                self.encoder.add(command, self.number)
            }
        }
    }

    fn copy_by_host(&mut self, copy: &Copy) -> Result<(), DeviceError> {
        let plan = CopyPlan::new(copy.source.view(), copy.target.view())?;
        if plan.bytes() == 0 {
            return Ok(());
        }
        match (self.kit.host(&copy.source)?, self.kit.host(&copy.target)?) {
            (Some(source), Some(target)) => {
                let (source, target) = (Pointer(source), Pointer(target));
                self.push_job(HostWork::Copy { plan, source, target }, None)
            }
            _ => self.copy_staged(copy, &plan),
        }
    }

    fn fill_by_host(&mut self, fill: &Fill) -> Result<(), DeviceError> {
        let Some(target) = self.kit.host(&fill.target)? else {
            return Err(DeviceError::Unsupported {
                device: fill.target.buffer().device(),
                what: "a fill of memory that the host does not reach".into(),
            });
        };
        let (view, pattern) = (*fill.target.view(), fill.pattern);
        self.push_job(HostWork::Fill { view, pattern, target: Pointer(target) }, None)
    }

    fn push_job(&mut self, what: HostWork, keeps: Option<Arc<Upload>>) -> Result<(), DeviceError> {
        self.flush_encoder()?;
        self.jobs.push(HostJob { number: self.number, what, _keeps: keeps });
        Ok(())
    }

    /// Copies between the host and memory that it does not reach, chunk by chunk through memory
    /// that both reach.
    fn copy_staged(&mut self, copy: &Copy, plan: &CopyPlan) -> Result<(), DeviceError> {
        let to_device = self.kit.memory(copy.target.buffer())?.is_some();
        let chunk = Arc::new(self.kit.allocator.uploads().take(plan.bytes().min(CHUNK_BYTES))?);
        for part in plan.parts(CHUNK_BYTES) {
            let (out, back) = part.through_packed();
            let chunk_pointer = Pointer(chunk.host());
            let keeps = Some(chunk.clone());
            if to_device {
                let from = self.kit.host(&copy.source)?.expect("memory of the host");
                let (source, target) = (Pointer(from), chunk_pointer);
                self.push_job(HostWork::Copy { plan: out, source, target }, keeps)?;
                self.flush_jobs();
                self.encoder.staged(self.number, &back, &chunk, &copy.target, true)?;
            } else {
                self.flush_jobs();
                self.encoder.staged(self.number, &out, &chunk, &copy.source, false)?;
                let to = self.kit.host(&copy.target)?.expect("memory of the host");
                let (source, target) = (chunk_pointer, Pointer(to));
                self.push_job(HostWork::Copy { plan: back, source, target }, keeps)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.flush_jobs();
        self.flush_encoder()
    }

    fn flush_jobs(&mut self) {
        if !self.jobs.is_empty() {
            self.done.push(Repeatable::Host(Arc::new(std::mem::take(&mut self.jobs))));
        }
    }

    fn flush_encoder(&mut self) -> Result<(), DeviceError> {
        if self.encoder.is_empty() {
            return Ok(());
        }
        let encoder = std::mem::replace(&mut self.encoder, Encoder::new(self.kit, self.timed));
        let recorded = self.pool.record(encoder.finish()?, self.times)?;
        self.done.push(Repeatable::Device(Arc::new(vec![(0, Arc::new(recorded))])));
        Ok(())
    }
}
