//! CPU devices: workers, lanes that they run, and a memory pool.

use std::sync::Arc;
use std::thread;

use super::lane::CpuLane;
use super::memory::CpuAllocator;
use super::ready::{LaneSource, ReadyLanes};
use super::workers::{Served, Workers};
use crate::{
    Allocator, Capabilities, Device, DeviceError, DeviceInfo, DeviceSpec, Lane, LaneInfo, LaneKind,
    OpenLanes,
};

/// How a CPU device is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Its number: `cpu:index`.
    pub index: u32,
    /// Lanes for kernels.
    pub compute_lanes: usize,
    /// Lanes for copies.
    pub copy_lanes: usize,
    /// Threads that run all lanes, plans and streams of the device; as many as compute lanes if
    /// `None`.
    pub workers: Option<usize>,
    /// The most memory that buffers may take.
    pub memory_bytes: u64,
    /// Whether workers stay on one processor each. A thread that waits for a plan or a stream runs
    /// it, too, and may find its processor taken then.
    pub pin: bool,
}

impl CpuOptions {
    /// One compute lane for each processor, one copy lane, and as much memory as the machine has.
    pub fn new(index: u32) -> Self {
        Self {
            index,
            compute_lanes: allowed_processors().len(),
            copy_lanes: 1,
            workers: None,
            memory_bytes: syncline_files::machine_memory_bytes(),
            pin: false,
        }
    }

    /// The same with `count` compute lanes.
    #[must_use]
    pub fn compute_lanes(mut self, count: usize) -> Self {
        self.compute_lanes = count;
        self
    }

    /// The same with `count` workers, at least one.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = Some(count);
        self
    }

    /// The same with at most `bytes` of memory.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }
}

/// Workers of this process as a device.
///
/// ```
/// use syncline_device::cpu::{CpuDevice, CpuOptions};
///
/// let device = CpuDevice::open(CpuOptions::new(1).compute_lanes(2))?;
/// assert_eq!(device.spec().to_string(), "cpu:1");
/// assert_eq!(device.lanes().len(), 3);
/// # Ok::<(), syncline_device::DeviceError>(())
/// ```
#[derive(Debug)]
pub struct CpuDevice {
    info: DeviceInfo,
    allocator: Arc<dyn Allocator>,
    lanes: Vec<Arc<dyn Lane>>,
    /// All lanes, those opened later included.
    opened: OpenLanes<CpuLane>,
    /// The lanes that workers should run.
    ready: Arc<ReadyLanes>,
    /// Dropped before the workers.
    _served: Served,
    workers: Arc<Workers>,
}

impl CpuDevice {
    /// Opens `cpu:0` with the usual options.
    pub fn open_default() -> Result<Arc<dyn Device>, DeviceError> {
        Self::open(CpuOptions::new(0))
    }

    /// Opens a device. There is at least one compute lane, whatever the options say; copies go
    /// there if there is no copy lane.
    pub fn open(options: CpuOptions) -> Result<Arc<dyn Device>, DeviceError> {
        let spec = DeviceSpec::cpu(options.index);
        let processors = allowed_processors();
        let compute_lanes = options.compute_lanes.max(1);
        let count = options.workers.unwrap_or(compute_lanes).max(1);
        // Devices begin at different processors, so that two with one worker each do not share one.
        let pin = |number: usize| {
            let slot = options.index as usize * count + number;
            processors.get(slot % processors.len().max(1)).copied().filter(|_| options.pin)
        };
        let workers = Workers::of_device(spec, count, pin)?;
        let ready = Arc::new(ReadyLanes::new(workers.handle()));
        let (mut lanes, opened) = (Vec::<Arc<dyn Lane>>::new(), OpenLanes::new());
        let mut open = |kind, name| {
            let lane = Arc::new(CpuLane::new(LaneInfo::new(name, kind, spec), &ready));
            opened.add(&lane);
            lanes.push(lane);
        };
        (0..compute_lanes)
            .for_each(|number| open(LaneKind::Compute, format!("{spec} compute {number}")));
        (0..options.copy_lanes)
            .for_each(|number| open(LaneKind::Copy, format!("{spec} copy {number}")));
        Ok(Arc::new(Self {
            info: Self::describe(&options),
            allocator: Arc::new(CpuAllocator::new(spec, options.memory_bytes)),
            lanes,
            opened,
            _served: workers.serve(Arc::new(LaneSource(ready.clone()))),
            ready,
            workers,
        }))
    }
}

impl CpuDevice {
    /// What a device opened with `options` would be.
    pub fn describe(options: &CpuOptions) -> DeviceInfo {
        let capabilities = Capabilities {
            host_visible: true,
            host_functions: true,
            wait_before_signal: true,
            open_lanes: true,
        };
        let count = options.workers.unwrap_or(options.compute_lanes).max(1);
        let name = format!("{count} worker threads");
        DeviceInfo::new(DeviceSpec::cpu(options.index), name, options.memory_bytes, capabilities)
    }
}

// SAFETY: lanes and allocator are made with the device's own name; it has at least one lane from
// the start.
unsafe impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn lanes(&self) -> &[Arc<dyn Lane>] {
        &self.lanes
    }

    fn open_lane(&self, kind: LaneKind, name: &str) -> Result<Arc<dyn Lane>, DeviceError> {
        let spec = self.info.spec;
        let info = LaneInfo::new(format!("{spec} {name}"), kind, spec);
        let lane = Arc::new(CpuLane::new(info, &self.ready));
        self.opened.add(&lane);
        Ok(lane)
    }

    fn allocator(&self) -> &Arc<dyn Allocator> {
        &self.allocator
    }

    fn workers(&self) -> Option<&Arc<Workers>> {
        Some(&self.workers)
    }
}

impl Drop for CpuDevice {
    fn drop(&mut self) {
        let all = self.opened.living();
        all.iter().for_each(|lane| lane.close());
        all.iter().for_each(|lane| lane.join());
    }
}

/// The processors that this process may use.
fn allowed_processors() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        let allowed: Vec<usize> =
            (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
        if !allowed.is_empty() {
            return allowed;
        }
    }
    (0..thread::available_parallelism().map_or(1, usize::from)).collect()
}
