//! Finding CUDA devices, and opening them.

use std::sync::Arc;

use cudarc::driver::{result, sys};
use syncline_device::registry::BackendProbe;
use syncline_device::{Backend, Capabilities, Device, DeviceError, DeviceInfo, DeviceSpec};

use crate::api::text;
use crate::device;

/// Asks the CUDA driver of this machine, which is loaded when it is first asked.
///
/// ```
/// use syncline_device::DeviceRegistry;
/// use syncline_cuda::Probe;
///
/// let mut registry = DeviceRegistry::new();
/// registry.register(Box::new(Probe::new()));
/// assert!(registry.probe().iter().any(|found| found.backend.name() == "cuda"));
/// ```
#[derive(Debug, Default)]
pub struct Probe(());

impl Probe {
    /// A probe.
    pub fn new() -> Self {
        Self::default()
    }

    /// The driver's devices. Nothing of the driver is called before it is known to be there: its
    /// binding panics.
    fn look() -> Result<Vec<DeviceInfo>, String> {
        // SAFETY: this loads the library, whose initialisers are trusted like those of any other.
        if !unsafe { sys::is_culib_present() } {
            return Err("libcuda not found".into());
        }
        result::init().map_err(|error| format!("libcuda does not start: {}", text(error)))?;
        let count = result::device::get_count()
            .map_err(|error| format!("libcuda counts no devices: {}", text(error)))?;
        (0..count.max(0)).map(describe).collect()
    }
}

fn describe(index: i32) -> Result<DeviceInfo, String> {
    let failed = |error| format!("device {index} does not describe itself: {}", text(error));
    let device = result::device::get(index).map_err(failed)?;
    let name = result::device::get_name(device).map_err(failed)?;
    // SAFETY: the device exists.
    let bytes = unsafe { result::device::total_mem(device) }.map_err(failed)?;
    let mut capabilities = Capabilities::default();
    capabilities.host_functions = true;
    capabilities.wait_before_signal = true;
    capabilities.open_lanes = true;
    let spec = DeviceSpec::new(Backend::Cuda, index as u32);
    Ok(DeviceInfo::new(spec, name, bytes as u64, capabilities))
}

impl BackendProbe for Probe {
    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn probe(&self) -> Result<Vec<DeviceInfo>, String> {
        match Self::look()? {
            devices if devices.is_empty() => Err("libcuda is there, but no device".into()),
            devices => Ok(devices),
        }
    }

    fn open(&self, index: u32) -> Result<Arc<dyn Device>, DeviceError> {
        let spec = DeviceSpec::new(Backend::Cuda, index);
        let failed =
            |message: String| DeviceError::Backend { device: spec, message: message.into() };
        let devices = self.probe().map_err(failed)?;
        let info = devices.into_iter().find(|info| info.spec == spec);
        device::open(info.ok_or_else(|| failed("there is no such device".into()))?)
    }
}
