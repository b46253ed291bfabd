//! Vulkan devices: memory, lanes, and the threads that see to them.

use std::sync::Arc;
use std::thread::JoinHandle;

use syncline_backend::Bridge;
use syncline_device::{
    Allocator, Capabilities, Deadline, Device, DeviceError, DeviceInfo, DeviceSpec, Lane, LaneInfo,
    LaneKind, OpenLanes,
};

use crate::candidate::Candidate;
use crate::gpu::Gpu;
use crate::host::{is_own_thread, spawn};
use crate::instance::Instance;
use crate::kit::Kit;
use crate::lane::{Core, VulkanLane};
use crate::memory::VulkanAllocator;
use crate::pipeline::Pipelines;

/// How a Vulkan device is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VulkanOptions {
    /// Lanes for kernels that exist from the start.
    pub compute_lanes: usize,
    /// Lanes for copies that exist from the start.
    pub copy_lanes: usize,
    /// The most memory that buffers may take; `None`: the size of the device's heap.
    pub memory_bytes: Option<u64>,
    /// Treats memory as if the host did not reach it, so that everything goes through staging. For
    /// tests of that way on devices with one memory.
    pub staged: bool,
}

impl Default for VulkanOptions {
    fn default() -> Self {
        Self { compute_lanes: 1, copy_lanes: 1, memory_bytes: None, staged: false }
    }
}

impl VulkanOptions {
    /// The same, with so many lanes for kernels and for copies from the start.
    #[must_use]
    pub fn with_lanes(self, compute_lanes: usize, copy_lanes: usize) -> Self {
        Self { compute_lanes, copy_lanes, ..self }
    }

    /// The same, with at most `bytes` of memory for buffers.
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Self {
        Self { memory_bytes: Some(bytes), ..self }
    }

    /// The same, with or without staging of everything.
    #[must_use]
    pub fn with_staged(self, staged: bool) -> Self {
        Self { staged, ..self }
    }
}

/// An open device.
#[derive(Debug)]
pub(crate) struct VulkanDevice {
    info: DeviceInfo,
    lanes: Vec<Arc<dyn Lane>>,
    /// All lanes ever opened that are still there: they close with the device.
    opened: OpenLanes<Core>,
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
        Ok(Arc::new(Self::build(instance, candidate, spec, options)?))
    }

    fn build(
        instance: &Arc<Instance>,
        candidate: Candidate,
        spec: DeviceSpec,
        options: &VulkanOptions,
    ) -> Result<Self, DeviceError> {
        let info = Self::describe(&candidate, spec, options);
        let gpu = Gpu::open(instance, candidate, spec)?;
        let allocator =
            VulkanAllocator::new(&gpu, info.memory_bytes, info.capabilities.host_visible);
        let pipelines = Pipelines::new(&gpu)?;
        let kit = Arc::new(Kit { gpu, allocator: allocator.clone(), pipelines });
        let bridge = Arc::new(Bridge::start(&format!("{spec} bridge"), spec)?);
        let mut device = Self {
            info,
            lanes: Vec::new(),
            opened: OpenLanes::new(),
            allocator,
            kit,
            bridge,
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
        Ok(device)
    }

    /// One thread for each queue, which learns what has completed.
    fn start_threads(&mut self) -> Result<(), DeviceError> {
        let spec = self.info.spec;
        for at in 0..self.kit.gpu.queues.len() {
            let gpu = self.kit.gpu.clone();
            let reap = move || gpu.queues[at].reap(&gpu);
            self.threads.push(spawn(spec, format!("{spec} reaper {at}"), reap)?);
        }
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

// SAFETY: lanes and allocator are of the same `Gpu`; it has at least one lane from the start.
unsafe impl Device for VulkanDevice {
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
        self.opened.add(&lane.0);
        Ok(Arc::new(lane))
    }

    fn allocator(&self) -> &Arc<dyn Allocator> {
        &self.allocator
    }
}

impl Drop for VulkanDevice {
    fn drop(&mut self) {
        let lanes = self.opened.living();
        lanes.iter().for_each(|lane| lane.close());
        // A thread of ours that drops the last handle would wait for itself: then the rest ends by
        // itself, and the objects of the driver live until it has.
        let waits = !is_own_thread() && !self.bridge.is_current();
        if waits {
            for lane in &lanes {
                // What was handed over ends by itself, what was not has failed: either way the wait
                // ends.
                let _ = lane.last().wait(Deadline::NEVER);
            }
        }
        lanes.iter().for_each(|lane| lane.host.end(waits));
        self.kit.gpu.queues.iter().for_each(|queue| queue.close());
        if waits {
            for thread in self.threads.drain(..) {
                // Its panic, if any, was reported by the panic hook.
                let _ = thread.join();
            }
            // A program may exit next, and must not find a thread of ours inside of the driver.
            self.bridge.settle(Deadline::NEVER);
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_device::{Backend, Batch, Timeline};

    use super::*;
    use crate::encode::{Encoded, Op};
    use crate::record::{CommandPool, Times};

    /// Returns the first device, with the validation layers if wanted, or `None` where the test is
    /// to be skipped.
    fn device(validated: bool) -> Option<(Arc<Instance>, VulkanDevice)> {
        let found = Instance::load(validated).and_then(|instance| {
            // SAFETY: the instance is alive.
            let all = unsafe { instance.raw.enumerate_physical_devices() }.unwrap_or_default();
            let usable = all.into_iter().find_map(|of| Candidate::examine(&instance, of).ok());
            usable.map(|candidate| (instance, candidate)).ok_or_else(|| "no device".to_owned())
        });
        let (instance, candidate) = syncline_testing::need("a Vulkan device", found)?;
        let spec = DeviceSpec::new(Backend::Vulkan, 0);
        let options = VulkanOptions::default();
        let device = VulkanDevice::build(&instance, candidate, spec, &options).unwrap();
        Some((instance, device))
    }

    /// Without this, a messenger that hears nothing would pass for a program without errors.
    #[test]
    fn the_validation_layers_are_heard() {
        let Some((instance, device)) = device(true) else { return };
        let messages = instance.messages().expect("layers were asked for");
        assert_eq!(messages.all(), Vec::<String>::new());
        let raw = &device.kit.gpu.raw;
        let info = ash::vk::SemaphoreSignalInfo::default()
            .semaphore(device.kit.gpu.queues[0].semaphore())
            .value(0);
        // SAFETY: setting the value that a semaphore has is forbidden and changes nothing: the
        // layers say so.
        let _ = unsafe { raw.signal_semaphore(&info) };
        assert!(!messages.all().is_empty(), "nothing was said about a forbidden call");
    }

    /// Without this, a layer that reports no hazards would pass for recordings without any.
    #[test]
    fn a_missing_barrier_is_heard() {
        let Some((instance, device)) = device(true) else { return };
        let messages = instance.messages().expect("layers were asked for");
        let gpu = &device.kit.gpu;
        let memory = device.kit.allocator.take(256).unwrap();
        let (target, offset) = memory.piece().place();
        let pool = CommandPool::new(gpu, gpu.queues[0].family).unwrap();
        let record = |ops| {
            let encoded = Encoded {
                ops,
                sets: Vec::new(),
                upload: None,
                scratch: Vec::new(),
                staging: Vec::new(),
                stamped: Vec::new(),
            };
            drop(pool.record(encoded, Times::Once).unwrap());
            messages.all()
        };
        let fill = |word| Op::Fill { target, offset, bytes: 256, word };
        assert_eq!(record(vec![fill(1), Op::Barrier, fill(2)]), Vec::<String>::new());
        let said = record(vec![fill(1), fill(2)]);
        let is_hazard = |one: &String| one.contains("SYNC-HAZARD-WRITE-AFTER-WRITE");
        assert!(said.iter().any(is_hazard), "{said:?}");
    }

    /// A driver that loses its device cannot be had at will: the note of it is what everything else
    /// goes by.
    #[test]
    fn a_lost_device_fails_every_lane_with_the_cause() {
        let Some((_instance, device)) = device(false) else { return };
        let (lane, other) = (device.lanes[0].clone(), device.lanes[1].clone());
        let (gate, signalled) = (Timeline::new("gate", 0), Timeline::new("signalled", 0));
        lane.submit(Batch::new()).unwrap().wait(Deadline::NEVER).unwrap();
        let first = lane.submit(Batch::new().wait(gate.point(1))).unwrap();
        let behind = lane.submit(Batch::new().signal(signalled.point(1))).unwrap();
        let elsewhere = other.submit(Batch::new().wait(behind.clone())).unwrap();
        device.kit.gpu.lose("the device was lost, on purpose");
        gate.signal(1).unwrap();
        let deadline = Deadline::after(std::time::Duration::from_secs(60));
        for point in [first, behind, elsewhere, signalled.point(1)] {
            let error = point.wait(deadline).unwrap_err();
            assert!(error.root_cause().to_string().contains("on purpose"), "{error}");
        }
        // Recovering the lane does not bring the device back, and says so again.
        lane.recover();
        let again = lane.submit(Batch::new()).unwrap().wait(deadline).unwrap_err();
        assert!(again.to_string().contains("on purpose"), "{again}");
    }
}
