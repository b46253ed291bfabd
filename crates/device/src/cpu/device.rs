//! CPU devices: a set of worker threads with a memory pool of their own.

use std::sync::Arc;
use std::thread;

use super::lane::CpuLane;
use super::memory::CpuAllocator;
use crate::{
    Allocator, Capabilities, Device, DeviceError, DeviceInfo, DeviceSpec, Lane, LaneInfo, LaneKind,
    OpenLanes,
};

/// How a CPU device is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Its number: `cpu:index`.
    pub index: u32,
    /// Worker threads for kernels.
    pub compute_lanes: usize,
    /// Worker threads for copies.
    pub copy_lanes: usize,
    /// The most memory that buffers may take.
    pub memory_bytes: u64,
    /// Whether compute lanes stay on one processor each. Lanes for copies never do: they sleep most
    /// of the time, and should run wherever there is room.
    pub pin: bool,
}

impl CpuOptions {
    /// One compute lane for each processor, one copy lane, and as much memory as the machine has.
    pub fn new(index: u32) -> Self {
        Self {
            index,
            compute_lanes: processors().len(),
            copy_lanes: 1,
            memory_bytes: syncline_files::machine_memory_bytes(),
            pin: true,
        }
    }

    /// The same with `count` compute lanes.
    #[must_use]
    pub fn compute_lanes(mut self, count: usize) -> Self {
        self.compute_lanes = count;
        self
    }

    /// The same with at most `bytes` of memory.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }
}

/// Worker threads of this process as a device.
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
        let (mut lanes, opened) = (Vec::<Arc<dyn Lane>>::new(), OpenLanes::new());
        let mut start = |kind, name, pin| {
            let lane = Arc::new(CpuLane::start(LaneInfo::new(name, kind, spec), pin)?);
            opened.add(&lane);
            lanes.push(lane);
            Ok::<(), DeviceError>(())
        };
        let processors = processors();
        let compute_lanes = options.compute_lanes.max(1);
        for number in 0..compute_lanes {
            // Devices begin at different processors, so that two with one lane each do not share
            // one.
            let slot = options.index as usize * compute_lanes + number;
            let pin = processors.get(slot % processors.len().max(1)).copied();
            let pin = pin.filter(|_| options.pin);
            start(LaneKind::Compute, format!("{spec} compute {number}"), pin)?;
        }
        for number in 0..options.copy_lanes {
            start(LaneKind::Copy, format!("{spec} copy {number}"), None)?;
        }
        Ok(Arc::new(Self {
            info: Self::describe(&options),
            allocator: Arc::new(CpuAllocator::new(spec, options.memory_bytes)),
            lanes,
            opened,
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
        let name = format!("{} worker threads", options.compute_lanes.max(1));
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
        let lane = Arc::new(CpuLane::start(info, None)?);
        self.opened.add(&lane);
        Ok(lane)
    }

    fn allocator(&self) -> &Arc<dyn Allocator> {
        &self.allocator
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
fn processors() -> Vec<usize> {
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
