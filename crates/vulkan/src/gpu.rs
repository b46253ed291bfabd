//! An open `VkDevice`, and what everything made of it holds on to.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ash::{ext, vk};
use syncline_device::{DeviceError, DeviceSpec};

use crate::candidate::Candidate;
use crate::instance::Instance;
use crate::queue::Queue;
use crate::times::ClockFunctions;

/// An open device. It is destroyed when the last of what was made of it is gone.
pub(crate) struct Gpu {
    pub(crate) raw: ash::Device,
    pub(crate) spec: DeviceSpec,
    pub(crate) candidate: Candidate,
    pub(crate) queues: Vec<Queue>,
    /// Families of the queues, each once.
    pub(crate) families: Vec<u32>,
    /// Tells the device's clock, if the driver does.
    pub(crate) clock: Option<ClockFunctions>,
    lost: OnceLock<DeviceError>,
    /// Outlives the device.
    _instance: Arc<Instance>,
}

impl Gpu {
    pub(crate) fn open(
        instance: &Arc<Instance>,
        candidate: Candidate,
        spec: DeviceSpec,
    ) -> Result<Arc<Self>, DeviceError> {
        let mut families: Vec<u32> = candidate.queues.iter().map(|(family, _)| *family).collect();
        families.dedup();
        let priorities = [1.0f32; 2];
        let count = |family| candidate.queues.iter().filter(|(of, _)| *of == family).count();
        let queues: Vec<_> = families
            .iter()
            .map(|&family| {
                vk::DeviceQueueCreateInfo::default()
                    .queue_family_index(family)
                    .queue_priorities(&priorities[..count(family)])
            })
            .collect();
        let features = candidate.features;
        let base = vk::PhysicalDeviceFeatures::default()
            .robust_buffer_access(features.robust)
            .shader_float64(features.float64)
            .shader_int64(features.int64);
        let mut of_1_1 = vk::PhysicalDeviceVulkan11Features::default()
            .storage_buffer16_bit_access(features.float16);
        let mut of_1_2 = vk::PhysicalDeviceVulkan12Features::default()
            .timeline_semaphore(true)
            .shader_float16(features.float16);
        let extensions = [ext::calibrated_timestamps::NAME.as_ptr()];
        let info = vk::DeviceCreateInfo::default()
            .enabled_extension_names(&extensions[..usize::from(candidate.tells_clock)])
            .queue_create_infos(&queues)
            .enabled_features(&base)
            .push_next(&mut of_1_1)
            .push_next(&mut of_1_2);
        // SAFETY: queues and features were found to be there; `info` lives until the call returns.
        let raw = unsafe { instance.raw.create_device(candidate.physical, &info, None) }
            .map_err(|error| refused(spec, "vkCreateDevice", error))?;
        let clock = candidate.tells_clock.then(|| ClockFunctions::new(&instance.raw, &raw));
        let mut gpu = Self {
            raw,
            clock,
            spec,
            queues: Vec::new(),
            families,
            lost: OnceLock::new(),
            _instance: instance.clone(),
            candidate,
        };
        for (family, number) in gpu.candidate.queues.clone() {
            let semaphore = gpu.create_semaphore()?;
            // SAFETY: the queue was asked for when the device was created.
            let queue = unsafe { gpu.raw.get_device_queue(family, number) };
            gpu.queues.push(Queue::new(queue, family, semaphore));
        }
        Ok(Arc::new(gpu))
    }

    /// A timeline semaphore that stands at zero.
    pub(crate) fn create_semaphore(&self) -> Result<vk::Semaphore, DeviceError> {
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: timeline semaphores were enabled.
        unsafe { self.raw.create_semaphore(&info, None) }
            .map_err(|error| self.error("vkCreateSemaphore", error))
    }

    /// An error of the driver. A lost device is remembered: nothing works on it any longer.
    pub(crate) fn error(&self, call: &str, error: vk::Result) -> DeviceError {
        match error {
            vk::Result::ERROR_DEVICE_LOST => {
                self.lose(&format!("the device was lost, found by {call}: open it anew"))
            }
            _ => refused(self.spec, call, error),
        }
    }

    /// Notes that the device is lost, and returns the first cause noted.
    pub(crate) fn lose(&self, message: &str) -> DeviceError {
        let cause = || DeviceError::Backend { device: self.spec, message: message.into() };
        self.lost.get_or_init(cause).clone()
    }

    /// The cause, if the device is lost.
    pub(crate) fn lost(&self) -> Option<&DeviceError> {
        self.lost.get()
    }
}

fn refused(spec: DeviceSpec, call: &str, error: vk::Result) -> DeviceError {
    DeviceError::Backend { device: spec, message: format!("{call}: {error}").into() }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: everything made of the device holds it, so that nothing is left but the queues'
        // semaphores; no thread submits any longer, and waiting for an idle device is allowed from
        // the only thread that has it.
        unsafe {
            let _ = self.raw.device_wait_idle();
            for queue in &self.queues {
                self.raw.destroy_semaphore(queue.semaphore(), None);
            }
            self.raw.destroy_device(None);
        }
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({}, {})", self.spec, self.candidate.name)
    }
}
