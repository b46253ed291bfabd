//! The program: a trace whose every part has been found and checked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use syncline_device::{Backend, DeviceSpec, Kernel, Scalar};
use syncline_kernels::Library;
use syncline_spelling::nearest;
use syncline_tensor::BufferId;
use syncline_trace::capture::CaptureReader;
use syncline_trace::{Place, Trace};

use crate::error::ProgramError;
use crate::initial::{Initial, require_memory};
use crate::{resolve, user_kernels};

/// How a program is loaded.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProgramOptions {
    /// The folder that relative paths in the program start from.
    pub folder: PathBuf,
    /// Whether kernels in shared objects that the program names are loaded: they can do anything.
    pub trust_kernels: bool,
}

impl ProgramOptions {
    /// The same, with relative paths that start from `folder`.
    #[must_use]
    pub fn with_folder(self, folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), ..self }
    }

    /// The same, with or without kernels in shared objects.
    #[must_use]
    pub fn with_trusted_kernels(self, trust_kernels: bool) -> Self {
        Self { trust_kernels, ..self }
    }
}

/// A trace that can be run.
#[derive(Debug)]
pub struct Program {
    trace: Trace,
    tasks: Vec<ProgramTask>,
    initial: Vec<Initial>,
    by_id: HashMap<BufferId, usize>,
}

/// What a task of a program runs.
#[derive(Clone, Debug)]
pub struct ProgramTask {
    /// The kernel.
    pub kernel: Kernel,
    /// Its scalars, in the order in which the body finds them.
    pub scalars: Vec<Scalar>,
    /// How far its results may be off on another device than the CPU, relative to numbers of about
    /// one.
    pub tolerance: f64,
    /// A first guess of how long it takes.
    pub cost_ns: u64,
    /// Of several that could start, the one with the highest priority does.
    pub priority: i32,
    /// How many blocks run side by side in a stream.
    pub blocks: u32,
    /// The devices that it may run on; any if empty.
    pub devices: Vec<DeviceSpec>,
}

impl Program {
    /// Reads the trace at `path` (JSON or a capture) and checks all of it.
    pub fn load(path: &Path, trust_kernels: bool) -> Result<Self, ProgramError> {
        let bytes = syncline_files::read_file(path).map_err(|error| ProgramError::Output {
            path: path.to_owned(),
            message: error.to_string(),
        })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Self::from_bytes(&bytes, &ProgramOptions { folder, trust_kernels })
    }

    /// Reads a trace (JSON or a capture) and checks all of it.
    pub fn from_bytes(bytes: &[u8], options: &ProgramOptions) -> Result<Self, ProgramError> {
        let trace = if CaptureReader::is_capture(bytes) {
            CaptureReader::read(bytes)?.trace
        } else {
            Trace::from_json(bytes)?
        };
        Self::from_valid(trace, options)
    }

    /// Checks all of a trace.
    pub fn from_trace(trace: Trace, options: &ProgramOptions) -> Result<Self, ProgramError> {
        trace.validate()?;
        Self::from_valid(trace, options)
    }

    /// Checks what a trace that is valid as such says about running it.
    fn from_valid(trace: Trace, options: &ProgramOptions) -> Result<Self, ProgramError> {
        let mut library = Library::builtin();
        user_kernels::add(&trace, options, &mut library)?;
        let tasks = resolve::tasks(&trace, &library)?;
        let initial = trace
            .buffers
            .iter()
            .enumerate()
            .map(|(index, buffer)| {
                Initial::of(buffer, Place::entry("buffers", index), &options.folder)
            })
            .collect::<Result<_, _>>()?;
        let by_id = trace.buffers.iter().enumerate().map(|(at, buffer)| (buffer.id, at)).collect();
        Ok(Self { trace, tasks, initial, by_id })
    }

    /// The trace that was loaded.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// What each task of the trace runs, in its order.
    pub fn tasks(&self) -> &[ProgramTask] {
        &self.tasks
    }

    /// Refuses to run here where the buffers that `is_counted` picks take more than the machine's
    /// memory together.
    pub(crate) fn require_memory(
        &self,
        is_counted: impl Fn(usize) -> bool,
    ) -> Result<(), ProgramError> {
        let mut bytes = 0u64;
        for (index, buffer) in
            self.trace.buffers.iter().enumerate().filter(|(at, _)| is_counted(*at))
        {
            bytes = bytes.saturating_add(buffer.bytes);
            require_memory(Place::entry("buffers", index).member("bytes"), bytes)?;
        }
        Ok(())
    }

    /// Gives the buffer that is called `name`, or whose id it is, other contents before the first
    /// task.
    pub fn set_contents(&mut self, name: &str, bytes: Vec<u8>) -> Result<(), ProgramError> {
        let buffer = self.buffer_named(name)?;
        let (found, wanted) = (bytes.len() as u64, self.trace.buffers[buffer].bytes);
        if found != wanted {
            return Err(ProgramError::ContentsSize { name: name.to_owned(), found, wanted });
        }
        self.initial[buffer] = Initial::Bytes(bytes);
        Ok(())
    }

    /// What buffer number `buffer` of the trace holds before the first task.
    pub fn initial_contents(&self, buffer: usize) -> Result<Vec<u8>, ProgramError> {
        let place = Place::entry("buffers", buffer);
        self.initial[buffer].contents(self.trace.buffers[buffer].bytes, place)
    }

    /// Position of the buffer with that id, which the trace's validation found.
    pub(crate) fn buffer_index(&self, id: BufferId) -> usize {
        self.by_id[&id]
    }

    /// Refuses tasks whose kernel has no body for the CPU, before anything runs there.
    pub(crate) fn require_cpu_bodies(&self) -> Result<(), ProgramError> {
        let without = |what: &ProgramTask| !what.kernel.supports(Backend::Cpu);
        let Some(index) = self.tasks.iter().position(without) else { return Ok(()) };
        let place = Place::task(index, self.trace.tasks[index].id).member("kernel");
        Err(ProgramError::NoCpuBody { place, kernel: self.tasks[index].kernel.name().to_string() })
    }

    /// Position of the task with that id, which the trace's validation found.
    pub(crate) fn task_index(&self, id: u64) -> usize {
        self.trace.position(id).expect("validated: dependencies are on earlier tasks")
    }

    /// Position of the buffer that is called `name`, or whose id it is.
    pub fn buffer_named(&self, name: &str) -> Result<usize, ProgramError> {
        let id = name.parse().ok().map(BufferId);
        let found = self
            .trace
            .buffers
            .iter()
            .position(|buffer| buffer.name.as_deref() == Some(name))
            .or_else(|| self.trace.buffers.iter().position(|buffer| Some(buffer.id) == id));
        found.ok_or_else(|| {
            let known = self.trace.buffers.iter().filter_map(|buffer| buffer.name.as_deref());
            ProgramError::UnknownBuffer {
                name: name.to_owned(),
                nearest: nearest(name, known).map(str::to_owned),
            }
        })
    }
}
