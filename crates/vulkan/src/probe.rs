//! Finding Vulkan devices: the devices there are, the refused ones and why.

use std::fmt;
use std::sync::{Arc, OnceLock};

use syncline_device::registry::{BackendProbe, Refused};
use syncline_device::{Backend, Device, DeviceError, DeviceInfo, DeviceSpec};

use crate::candidate::Candidate;
use crate::device::{VulkanDevice, VulkanOptions};
use crate::instance::{Instance, Messages};

/// The Vulkan backend, as a registry sees it.
///
/// ```
/// use syncline_device::{Backend, DeviceRegistry};
///
/// let mut registry = DeviceRegistry::new();
/// registry.register(Box::new(syncline_vulkan::Probe::new()));
/// let mut found = registry.probe().into_iter();
/// let found = found.find(|found| found.backend == Backend::Vulkan).unwrap();
/// match found.devices {
///     Ok(devices) => println!("{} Vulkan devices", devices.len()),
///     Err(reason) => println!("no Vulkan: {reason}"),
/// }
/// ```
#[derive(Default)]
pub struct Probe {
    options: VulkanOptions,
    validated: bool,
    found: OnceLock<Result<Found, String>>,
}

/// What the loader listed.
struct Found {
    instance: Arc<Instance>,
    candidates: Vec<Candidate>,
    refused: Vec<Refused>,
}

impl Probe {
    /// A probe for devices with the usual options. Nothing is loaded before it is asked.
    pub fn new() -> Self {
        Self::default()
    }

    /// A probe whose devices are opened with `options`.
    pub fn with_options(options: VulkanOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// The same, with the validation layers between us and the driver: slow, and an error where
    /// they are not installed.
    #[must_use]
    pub fn validated(mut self) -> Self {
        self.validated = true;
        self
    }

    /// What the validation layers have said, if they were asked for and there.
    pub fn messages(&self) -> Option<Arc<Messages>> {
        self.found().as_ref().ok()?.instance.messages().cloned()
    }

    fn found(&self) -> &Result<Found, String> {
        self.found.get_or_init(|| {
            let instance = Instance::load(self.validated)?;
            // SAFETY: the instance is alive.
            let all = unsafe { instance.raw.enumerate_physical_devices() }
                .map_err(|error| format!("vkEnumeratePhysicalDevices: {error}"))?;
            let (mut candidates, mut refused) = (Vec::new(), Vec::new());
            for physical in all {
                match Candidate::examine(&instance, physical) {
                    Ok(candidate) => candidates.push(candidate),
                    Err((name, reason)) => refused.push(Refused { name, reason }),
                }
            }
            Ok(Found { instance, candidates, refused })
        })
    }
}

impl BackendProbe for Probe {
    fn backend(&self) -> Backend {
        Backend::Vulkan
    }

    fn probe(&self) -> Result<Vec<DeviceInfo>, String> {
        let found = self.found().as_ref().map_err(String::clone)?;
        if found.candidates.is_empty() {
            let refused: Vec<_> =
                found.refused.iter().map(|of| format!("`{}` {}", of.name, of.reason)).collect();
            return Err(match refused.is_empty() {
                true => "the drivers list no device".to_owned(),
                false => format!("no device can be used: {}", refused.join("; ")),
            });
        }
        let describe = |(candidate, index)| {
            VulkanDevice::describe(
                candidate,
                DeviceSpec::new(Backend::Vulkan, index),
                &self.options,
            )
        };
        Ok(found.candidates.iter().zip(0..).map(describe).collect())
    }

    fn refused(&self) -> Vec<Refused> {
        self.found().as_ref().map(|found| found.refused.clone()).unwrap_or_default()
    }

    fn open(&self, index: u32) -> Result<Arc<dyn Device>, DeviceError> {
        let spec = DeviceSpec::new(Backend::Vulkan, index);
        let refuse = |message: &str| DeviceError::Backend { device: spec, message: message.into() };
        let found = self.found().as_ref().map_err(|reason| refuse(reason))?;
        let candidate = found.candidates.get(index as usize).ok_or_else(|| {
            refuse(&format!("no such device; there are {}", found.candidates.len()))
        })?;
        VulkanDevice::open(&found.instance, candidate.clone(), spec, &self.options)
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe")
            .field("options", &self.options)
            .field("validated", &self.validated)
            .finish_non_exhaustive()
    }
}
