//! Vulkan devices: memory, lanes, and the threads that see to them.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use syncline_device::{
    Allocator, Capabilities, Deadline, Device, DeviceError, DeviceInfo, DeviceSpec, Lane, LaneInfo,
    LaneKind,
};

use crate::bridge::Bridge;
use crate::candidate::Candidate;
use crate::gpu::{Gpu, lock};
use crate::host::{is_own_thread, spawn};
use crate::instance::Instance;
use crate::kit::Kit;
use crate::lane::{Core, VulkanLane};
use crate::memory::VulkanAllocator;
use crate::pipeline::Pipelines;

/// How a Vulkan device is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VulkanOptions {
    /// Lanes for kernels that exist from the start.
    pub compute_lanes: usize,
    /// Lanes for copies that exist from the start.
    pub copy_lanes: usize,
    /// The most memory that buffers may take; `None`: the size of the device's heap.
    pub memory_bytes: Option<u64>,
    /// Treats memory as if the host did not reach it, so that everything goes through staging. For tests of that way
    /// on devices with one memory.
    pub staged: bool,
}

impl Default for VulkanOptions {
    fn default() -> Self {
        Self { compute_lanes: 1, copy_lanes: 1, memory_bytes: None, staged: false }
    }
}

/// An open device.
#[derive(Debug)]
pub(crate) struct VulkanDevice {
    info: DeviceInfo,
    lanes: Vec<Arc<dyn Lane>>,
    /// All lanes ever opened that are still there: they close with the device.
    opened: Mutex<Vec<Weak<Core>>>,
    allocator: Arc<dyn Allocator>,
    kit: Arc<Kit>,
    bridge: Arc<Bridge>,
    threads: Vec<JoinHandle<()>>,
}

impl VulkanDevice {
    /// What opening `candidate` gives.
    pub(crate) fn describe(
        candidate: &Candidate,
        spec: DeviceSpec,
        options: &VulkanOptions,
    ) -> DeviceInfo {
        let mut capabilities = Capabilities::default();
        capabilities.host_visible = candidate.host_visible && !options.staged;
        capabilities.host_functions = true;
        capabilities.wait_before_signal = true;
        capabilities.open_lanes = true;
        let bytes = options.memory_bytes.unwrap_or(candidate.memory_bytes);
        let bytes = bytes.min(candidate.memory_bytes);
        DeviceInfo::new(spec, candidate.name.clone(), bytes, capabilities)
    }

    pub(crate) fn open(
        instance: &Arc<Instance>,
        candidate: Candidate,
        spec: DeviceSpec,
        options: &VulkanOptions,
    ) -> Result<Arc<dyn Device>, DeviceError> {
        let info = Self::describe(&candidate, spec, options);
        let gpu = Gpu::open(instance, candidate, spec)?;
        let allocator =
            VulkanAllocator::new(&gpu, info.memory_bytes, info.capabilities.host_visible);
        let pipelines = Pipelines::new(&gpu)?;
        let kit = Arc::new(Kit { gpu, allocator: allocator.clone(), pipelines });
        let mut device = Self {
            info,
            lanes: Vec::new(),
            opened: Mutex::default(),
            allocator,
            kit,
            bridge: Arc::default(),
            threads: Vec::new(),
        };
        device.start_threads()?;
        for (kind, name, count) in [
            (LaneKind::Compute, "compute", options.compute_lanes.max(1)),
            (LaneKind::Copy, "copy", options.copy_lanes),
        ] {
            for number in 0..count {
                let lane = device.open_lane(kind, &format!("{name} {number}"))?;
                device.lanes.push(lane);
            }
        }
        Ok(Arc::new(device))
    }

    /// One thread for each queue, and one for what waits for others.
    fn start_threads(&mut self) -> Result<(), DeviceError> {
        let spec = self.info.spec;
        for at in 0..self.kit.gpu.queues.len() {
            let gpu = self.kit.gpu.clone();
            let reap = move || gpu.queues[at].reap(&gpu);
            self.threads.push(spawn(spec, format!("{spec} reaper {at}"), reap)?);
        }
        let bridge = self.bridge.clone();
        self.threads.push(spawn(spec, format!("{spec} bridge"), move || bridge.run())?);
        Ok(())
    }

    /// The queue for lanes of `kind`: copies beside kernels, where there are two.
    fn queue_for(&self, kind: LaneKind) -> usize {
        match kind {
            LaneKind::Compute => 0,
            _ => self.kit.gpu.queues.len() - 1,
        }
    }
}

impl Device for VulkanDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn lanes(&self) -> &[Arc<dyn Lane>] {
        &self.lanes
    }

    fn open_lane(&self, kind: LaneKind, name: &str) -> Result<Arc<dyn Lane>, DeviceError> {
        let spec = self.info.spec;
        let info = LaneInfo::new(format!("{spec} {name}"), kind, spec);
        let lane = VulkanLane::open(info, &self.kit, self.queue_for(kind), &self.bridge)?;
        let mut opened = lock(&self.opened);
        opened.retain(|lane| lane.strong_count() > 0);
        opened.push(Arc::downgrade(&lane.0));
        Ok(Arc::new(lane))
    }

    fn allocator(&self) -> &Arc<dyn Allocator> {
        &self.allocator
    }
}

impl Drop for VulkanDevice {
    fn drop(&mut self) {
        let opened = self.opened.get_mut().unwrap_or_else(PoisonError::into_inner);
        let lanes: Vec<_> = opened.iter().filter_map(Weak::upgrade).collect();
        // All are told before any is waited for: one may wait for another.
        lanes.iter().for_each(|lane| lane.close());
        // A thread of ours that drops the last handle would wait for itself: then the rest ends by itself, and what
        // is in use of the driver lives until it has.
        if !is_own_thread() {
            for lane in &lanes {
                // What was handed over ends by itself, what was not has failed: either way the wait ends.
                let _ = lane.last().wait(Deadline::NEVER);
            }
        }
        lanes.iter().for_each(|lane| lane.host.join());
        self.kit.gpu.queues.iter().for_each(|queue| queue.close());
        self.bridge.close();
        if !is_own_thread() {
            for thread in self.threads.drain(..) {
                // Its panic, if any, was reported by the panic hook.
                let _ = thread.join();
            }
        }
    }
}
