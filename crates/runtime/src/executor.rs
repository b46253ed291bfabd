//! The executor: device contexts by name, and kernels and transfers between them.
//!
//! Everything submitted here is ordered behind conflicting work that was submitted before, on
//! whatever device: two calls from safe code never race, and need no waits of their own.

mod context;
mod error;
mod machine;
mod topology;
mod transfer;

pub use context::DeviceContext;
pub use error::ExecutorError;
pub use machine::machine_of;
pub use topology::{Path, Topology};

use std::sync::Arc;

use syncline_device::{
    Allocator, Batch, BufferView, Command, Deadline, Device, DeviceSpec, Kernel, KernelArg,
    LaneKind, Point, Scalar, wait_all,
};

/// How an executor moves data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecutorOptions {
    /// Transfers between devices go through host memory, also where a direct copy would do.
    pub force_staging: bool,
    /// The size of the pieces of a staged transfer, of which three are under way at a time; small
    /// transfers go in halves.
    pub staging_chunk_bytes: u64,
    /// The most host memory that staged transfers may hold at the same time.
    pub staging_memory_bytes: u64,
}

impl Default for ExecutorOptions {
    fn default() -> Self {
        Self {
            force_staging: false,
            staging_chunk_bytes: 16 << 20,
            staging_memory_bytes: 512 << 20,
        }
    }
}

impl ExecutorOptions {
    /// The same, with all transfers between devices staged in pieces of `chunk_bytes`.
    #[must_use]
    pub fn staged(mut self, chunk_bytes: u64) -> Self {
        self.force_staging = true;
        self.staging_chunk_bytes = chunk_bytes;
        self
    }
}

/// Runs kernels and transfers on any of its devices.
///
/// Dropping it closes the lanes of devices that nobody else holds: work that has not begun fails
/// with [`DeviceError::Closed`](syncline_device::DeviceError::Closed), and nothing hangs. Whoever
/// wants the results calls [`UnifiedExecutor::synchronize_all`] first.
///
/// ```
/// use syncline_device::cpu::{CpuDevice, CpuOptions};
/// use syncline_device::{Deadline, DeviceSpec, Kernel, KernelArg, Scalar};
/// use syncline_tensor::Dtype;
/// use syncline_runtime::UnifiedExecutor;
///
/// let mut executor = UnifiedExecutor::new();
/// let first = executor.add_device(CpuDevice::open(CpuOptions::new(0).compute_lanes(1))?)?;
/// let second = executor.add_device(CpuDevice::open(CpuOptions::new(1).compute_lanes(1))?)?;
///
/// let here = executor.context(first)?.device().buffer(16);
/// let there = executor.context(second)?.device().buffer(16);
/// here.write(0, &[1.0f32, 2.0, 3.0, 4.0])?;
///
/// let scale = Kernel::cpu("scale", |args| {
///     let factor = args.scalar(0)?.as_f32();
///     args.slice_mut::<f32>(0).map(|xs| xs.iter_mut().for_each(|x| *x *= factor))
/// });
/// let (here, there) = (here.tensor(Dtype::F32, &[4])?, there.tensor(Dtype::F32, &[4])?);
/// let args = vec![KernelArg::inout(here.clone())];
/// executor.execute_kernel(first, &scale, args, vec![Scalar::F32(10.0)])?;
/// executor.execute_transfer(&here, &there)?;
/// executor.synchronize_all(Deadline::NEVER)?;
/// assert_eq!(there.to_vec::<f32>()?, [10.0, 20.0, 30.0, 40.0]);
/// # Ok::<(), syncline_runtime::ExecutorError>(())
/// ```
#[derive(Debug)]
pub struct UnifiedExecutor {
    contexts: Vec<DeviceContext>,
    topology: Topology,
    staging: Arc<dyn Allocator>,
    options: ExecutorOptions,
}

/// Several threads may use one executor; this fails to compile where they may not.
const _: fn() = || {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<UnifiedExecutor>();
    is_shared::<DeviceContext>();
};

impl Default for UnifiedExecutor {
    fn default() -> Self {
        Self::new()
    }
}

impl UnifiedExecutor {
    /// An executor without devices.
    pub fn new() -> Self {
        Self::with_options(ExecutorOptions::default())
    }

    /// An executor without devices that moves data as `options` say.
    pub fn with_options(options: ExecutorOptions) -> Self {
        Self {
            contexts: Vec::new(),
            topology: Topology::default(),
            staging: syncline_device::cpu::host_memory(options.staging_memory_bytes),
            options,
        }
    }

    /// Adds a device, and finds out by trying how it works together with each of the others.
    pub fn add_device(&mut self, device: Arc<dyn Device>) -> Result<DeviceSpec, ExecutorError> {
        let spec = device.spec();
        if self.contexts.iter().any(|context| context.spec() == spec) {
            return Err(ExecutorError::DuplicateDevice { device: spec });
        }
        let others = self.contexts.iter().map(|context| &**context.device());
        self.topology.add(&*device, others);
        self.contexts.push(DeviceContext::new(device));
        Ok(spec)
    }

    /// The context of `device`.
    pub fn context(&self, device: DeviceSpec) -> Result<&DeviceContext, ExecutorError> {
        let found = self.contexts.iter().find(|context| context.spec() == device);
        found.ok_or_else(|| self.no_such_device(device))
    }

    /// The context of `device`, to change its settings.
    pub fn context_mut(&mut self, device: DeviceSpec) -> Result<&mut DeviceContext, ExecutorError> {
        match self.contexts.iter().position(|context| context.spec() == device) {
            Some(at) => Ok(&mut self.contexts[at]),
            None => Err(self.no_such_device(device)),
        }
    }

    /// All contexts, in the order in which their devices were added.
    pub fn contexts(&self) -> &[DeviceContext] {
        &self.contexts
    }

    /// What the devices can do together.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// How transfers from `source` to `target` go: as the topology says, and never directly if
    /// [`ExecutorOptions::force_staging`] is set.
    ///
    /// # Errors
    /// A device that this executor does not have.
    pub fn path(&self, source: DeviceSpec, target: DeviceSpec) -> Result<Path, ExecutorError> {
        self.context(source)?;
        self.context(target)?;
        Ok(match self.topology.path(source, target) {
            Path::Pull | Path::Push if self.options.force_staging => {
                self.topology.staged(source, target)
            }
            path => path,
        })
    }

    /// The device that all `views` live on; an error that names two where they live on several.
    /// What passes needs no transfer, and one lane orders it.
    pub fn single_device_check<'a>(
        &self,
        views: impl IntoIterator<Item = &'a BufferView>,
    ) -> Result<Option<DeviceSpec>, ExecutorError> {
        let mut views = views.into_iter().map(|view| view.buffer());
        let Some(first) = views.next() else { return Ok(None) };
        let device = self.context(first.device())?.spec();
        match views.find(|buffer| buffer.device() != device) {
            None => Ok(Some(device)),
            Some(other) => Err(ExecutorError::SeveralDevices {
                buffer: first.id(),
                device,
                other_buffer: other.id(),
                other: other.device(),
            }),
        }
    }

    /// Waits until all work submitted so far has completed, on every device.
    ///
    /// # Errors
    /// The first failure of any lane, with its cause; a deadline that passes.
    pub fn synchronize_all(&self, deadline: Deadline) -> Result<(), ExecutorError> {
        let points: Vec<Point> = self.contexts.iter().flat_map(DeviceContext::last).collect();
        Ok(wait_all(&points, deadline)?)
    }

    /// Makes lanes that failed usable again. What the failed work should have written stays marked
    /// as failed until it is written anew.
    pub fn recover(&self) {
        self.contexts.iter().for_each(DeviceContext::recover);
    }

    /// Runs `kernel` on the default lane of `device`, and returns the point at which it will have
    /// completed.
    ///
    /// # Errors
    /// Before anything runs: see [`Lane`](syncline_device::Lane). A kernel that fails later fails
    /// the point.
    pub fn execute_kernel(
        &self,
        device: DeviceSpec,
        kernel: &Kernel,
        args: Vec<KernelArg>,
        scalars: Vec<Scalar>,
    ) -> Result<Point, ExecutorError> {
        self.execute(device, Batch::from(Command::dispatch(kernel, args, scalars)))
    }

    /// Runs a whole batch on the default lane of `device`.
    pub fn execute(&self, device: DeviceSpec, batch: Batch) -> Result<Point, ExecutorError> {
        Ok(self.context(device)?.default_lane().submit(batch)?)
    }

    /// Copies the elements of `source` to `target`, which has the same shape, and returns the point
    /// at which they are there.
    ///
    /// On one device its copy lane does it. Between devices it is one copy where that worked when
    /// it was tried ([`Topology`]); otherwise pieces go through host memory, and while one is on
    /// its way in the next is on its way out.
    ///
    /// # Errors
    /// Before anything moves: shapes that differ, or [`ExecutorError::NoRoute`].
    pub fn execute_transfer(
        &self,
        source: &BufferView,
        target: &BufferView,
    ) -> Result<Point, ExecutorError> {
        let (from, to) = (source.buffer().device(), target.buffer().device());
        let copier = match self.path(from, to)? {
            Path::Local | Path::Pull => to,
            Path::Push => from,
            Path::Staged => return self.execute_staged(source, target),
            Path::Unconnected => {
                return Err(ExecutorError::NoRoute { source_device: from, target: to });
            }
        };
        let copy = Batch::from(Command::copy(source.clone(), target.clone()));
        Ok(self.context(copier)?.lane(LaneKind::Copy).submit(copy)?)
    }

    fn no_such_device(&self, device: DeviceSpec) -> ExecutorError {
        let available = self.contexts.iter().map(DeviceContext::spec).collect();
        ExecutorError::NoSuchDevice { device, available }
    }
}
