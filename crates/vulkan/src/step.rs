//! Steps: what a batch does on the device and on the host, in turn.
//!
//! Most batches are one step on the device. Copies from and to memory of the host are steps of their own, and so are host
//! functions.

use std::collections::VecDeque;
use std::sync::Arc;

use syncline_deps::View;
use syncline_device::copy::CopyPlan;
use syncline_device::{
    Backend, Command, Commands, Copy, DeviceError, Fill, HostFunction, Pattern, fill,
};

use crate::encode::Encoder;
use crate::kit::Kit;
use crate::memory::Upload;
use crate::record::{CommandPool, Recorded, Times};

/// Bytes moved at a time between the host and memory that it cannot reach.
const CHUNK_BYTES: u64 = 4 << 20;

/// One step of a batch.
pub(crate) enum Step {
    /// Command buffers, submitted together.
    Device(Vec<Arc<Recorded>>),
    /// Copies and fills by the host.
    Host(Arc<Vec<HostJob>>),
    /// A function of the user's.
    Call(HostFunction),
}

/// What a recording becomes on one lane.
pub(crate) struct Prepared(Vec<Repeatable>);

enum Repeatable {
    Device(Arc<Recorded>),
    Host(Arc<Vec<HostJob>>),
}

/// A copy or a fill by the host, on memory that the leases of its batch keep.
pub(crate) enum HostJob {
    Copy { plan: CopyPlan, source: Pointer, target: Pointer, keeps: Option<Arc<Upload>> },
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
        // SAFETY: the caller's promise; views lie inside their buffers, and different buffers never overlap.
        unsafe {
            match self {
                HostJob::Copy { plan, source, target, .. } if source == target => {
                    plan.run_within(target.0);
                }
                HostJob::Copy { plan, source, target, .. } => plan.run(source.0, target.0),
                HostJob::Fill { view, pattern, target } => fill::run(target.0, view, pattern),
            }
        }
    }
}

/// The steps of `commands` on the lane with this pool and identity.
pub(crate) fn prepare(
    kit: &Kit,
    pool: &Arc<CommandPool>,
    lane: u64,
    commands: Commands,
) -> Result<VecDeque<Step>, DeviceError> {
    let mut builder = Builder::new(kit, pool, Times::Once);
    let mut steps = VecDeque::new();
    for command in commands {
        match command {
            Command::Host(function) => {
                builder.flush()?;
                take(&mut steps, builder.done.drain(..));
                steps.push_back(Step::Call(function));
            }
            Command::Recording(recording) => {
                builder.flush()?;
                take(&mut steps, builder.done.drain(..));
                let prepared = recording.keep(lane, |commands| {
                    let mut builder = Builder::new(kit, pool, Times::Often);
                    commands.iter().try_for_each(|command| builder.add(command))?;
                    builder.flush()?;
                    Ok::<_, DeviceError>(Prepared(builder.done))
                })?;
                take(&mut steps, prepared.0.iter().map(Repeatable::clone));
            }
            command => builder.add(&command)?,
        }
    }
    builder.flush()?;
    take(&mut steps, builder.done.drain(..));
    Ok(steps)
}

/// Appends steps; what the device does in succession is submitted together.
fn take(steps: &mut VecDeque<Step>, more: impl Iterator<Item = Repeatable>) {
    for step in more {
        match (step, steps.back_mut()) {
            (Repeatable::Device(recorded), Some(Step::Device(before))) => before.push(recorded),
            (Repeatable::Device(recorded), _) => steps.push_back(Step::Device(vec![recorded])),
            (Repeatable::Host(jobs), _) => steps.push_back(Step::Host(jobs)),
        }
    }
}

impl Clone for Repeatable {
    fn clone(&self) -> Self {
        match self {
            Repeatable::Device(recorded) => Repeatable::Device(recorded.clone()),
            Repeatable::Host(jobs) => Repeatable::Host(jobs.clone()),
        }
    }
}

/// Sorts commands into steps.
struct Builder<'a> {
    kit: &'a Kit,
    pool: &'a Arc<CommandPool>,
    times: Times,
    done: Vec<Repeatable>,
    encoder: Encoder<'a>,
    jobs: Vec<HostJob>,
}

impl<'a> Builder<'a> {
    fn new(kit: &'a Kit, pool: &'a Arc<CommandPool>, times: Times) -> Self {
        let encoder = Encoder::new(kit);
        Self { kit, pool, times, done: Vec::new(), encoder, jobs: Vec::new() }
    }

    fn add(&mut self, command: &Command) -> Result<(), DeviceError> {
        let is_cpu =
            |view: &syncline_device::BufferView| view.buffer().device().backend == Backend::Cpu;
        match command {
            Command::Copy(copy) if is_cpu(&copy.source) || is_cpu(&copy.target) => {
                self.copy_by_host(copy)
            }
            Command::Fill(fill) if is_cpu(&fill.target) => self.fill_by_host(fill),
            command => {
                self.flush_jobs();
                self.encoder.add(command)
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
                self.push_job(HostJob::Copy { plan, source, target, keeps: None })
            }
            _ => self.copy_staged(copy),
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
        self.push_job(HostJob::Fill { view, pattern, target: Pointer(target) })
    }

    fn push_job(&mut self, job: HostJob) -> Result<(), DeviceError> {
        self.flush_encoder()?;
        self.jobs.push(job);
        Ok(())
    }

    /// Copies between the host and memory that it does not reach, chunk by chunk through memory that both reach.
    fn copy_staged(&mut self, copy: &Copy) -> Result<(), DeviceError> {
        let to_device = self.kit.memory(copy.target.buffer())?.is_some();
        let chunk = Arc::new(
            self.kit.allocator.uploads().take(copy.source.view().bytes().clamp(1, CHUNK_BYTES))?,
        );
        let mut parts = Vec::new();
        split(copy.source.view(), copy.target.view(), &mut parts);
        for (source, target) in parts {
            let packed = View::contiguous(source.dtype(), source.shape())
                .map_err(|error| DeviceError::BadArgument { arg: 0, message: error.to_string() })?;
            let chunk_pointer = Pointer(chunk.host());
            let out = CopyPlan::new(&source, &packed)?;
            let back = CopyPlan::new(&packed, &target)?;
            let keeps = Some(chunk.clone());
            if to_device {
                let from = self.kit.host(&copy.source)?.expect("memory of the host");
                let (source, target) = (Pointer(from), chunk_pointer);
                self.push_job(HostJob::Copy { plan: out, source, target, keeps })?;
                self.flush_jobs();
                self.encoder.staged(&back, &chunk, &copy.target, true)?;
            } else {
                self.flush_jobs();
                self.encoder.staged(&out, &chunk, &copy.source, false)?;
                let to = self.kit.host(&copy.target)?.expect("memory of the host");
                let (source, target) = (chunk_pointer, Pointer(to));
                self.push_job(HostJob::Copy { plan: back, source, target, keeps })?;
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
        let encoder = std::mem::replace(&mut self.encoder, Encoder::new(self.kit));
        let recorded = self.pool.record(encoder.finish()?, self.times)?;
        self.done.push(Repeatable::Device(Arc::new(recorded)));
        Ok(())
    }
}

/// The same copy in parts of at most [`CHUNK_BYTES`].
fn split(source: &View, target: &View, parts: &mut Vec<(View, View)>) {
    let dim = (0..source.rank()).find(|&dim| source.shape()[dim] > 1);
    let Some(dim) = dim.filter(|_| source.bytes() > CHUNK_BYTES) else {
        return parts.push((*source, *target));
    };
    let size = source.shape()[dim];
    let count = source.bytes().div_ceil(CHUNK_BYTES).min(size);
    let step = size.div_ceil(count);
    let mut start = 0;
    while start < size {
        let range = start..(start + step).min(size);
        let part = |view: &View| view.slice(dim, range.clone()).expect("a part of the dimension");
        split(&part(source), &part(target), parts);
        start = range.end;
    }
}
