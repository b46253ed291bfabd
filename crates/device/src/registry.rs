//! Finding devices: every backend is asked, and those that cannot be used say why.

use std::fmt;
use std::sync::Arc;

use crate::cpu::{CpuDevice, CpuOptions};
use crate::{Backend, Device, DeviceError, DeviceInfo, DeviceSpec};

/// One way of driving devices, as the registry sees it.
pub trait BackendProbe: Send + Sync {
    /// Which backend.
    fn backend(&self) -> Backend;

    /// The devices there are, or why there are none: a driver that is missing, a version too old.
    /// Loads what must be loaded, opens nothing.
    fn probe(&self) -> Result<Vec<DeviceInfo>, String>;

    /// Devices that are there and cannot be used, with the reasons.
    fn refused(&self) -> Vec<Refused> {
        Vec::new()
    }

    /// Opens one of them.
    fn open(&self, index: u32) -> Result<Arc<dyn Device>, DeviceError>;
}

/// The backends of this program.
///
/// ```
/// use syncline_device::{Backend, DeviceRegistry, DeviceSpec};
///
/// let registry = DeviceRegistry::new();
/// let found = registry.probe();
/// assert!(found.iter().any(|of| of.backend == Backend::Cpu && of.devices.is_ok()));
/// let device = registry.open(DeviceSpec::CPU)?;
/// assert_eq!(device.spec(), DeviceSpec::CPU);
/// # Ok::<(), syncline_device::DeviceError>(())
/// ```
pub struct DeviceRegistry {
    probes: Vec<Box<dyn BackendProbe>>,
}

/// A device that is there and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Refused {
    pub name: String,
    pub reason: String,
}

/// What asking one backend gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Who was asked.
    pub backend: Backend,
    /// Its devices, or why it has none.
    pub devices: Result<Vec<DeviceInfo>, String>,
    /// What it found and refused.
    pub refused: Vec<Refused>,
}

impl DeviceRegistry {
    /// A registry with the CPU backend, as one device with the usual options.
    pub fn new() -> Self {
        Self::with_cpu_devices(vec![CpuOptions::new(0)])
    }

    /// A registry whose CPU devices are those of `options`, one each.
    pub fn with_cpu_devices(options: Vec<CpuOptions>) -> Self {
        Self { probes: vec![Box::new(CpuProbe { options })] }
    }

    /// Adds a backend; one that was there before under the same name gives way.
    pub fn register(&mut self, probe: Box<dyn BackendProbe>) {
        self.probes.retain(|other| other.backend() != probe.backend());
        self.probes.push(probe);
    }

    /// Asks every backend that exists, also those that are not part of this program.
    pub fn probe(&self) -> Vec<Found> {
        let ask = |backend| match self.find(backend) {
            Some(probe) => Found { backend, devices: probe.probe(), refused: probe.refused() },
            None => Found { backend, devices: Err(NOT_BUILT_IN.to_owned()), refused: Vec::new() },
        };
        Backend::ALL.into_iter().map(ask).collect()
    }

    /// Opens the device that `spec` names.
    pub fn open(&self, spec: DeviceSpec) -> Result<Arc<dyn Device>, DeviceError> {
        let refused =
            |message: String| DeviceError::Backend { device: spec, message: message.into() };
        let probe = self.find(spec.backend).ok_or_else(|| refused(NOT_BUILT_IN.to_owned()))?;
        let devices = probe.probe().map_err(refused)?;
        if !devices.iter().any(|info| info.spec == spec) {
            let names: Vec<_> = devices.iter().map(|info| info.spec.to_string()).collect();
            return Err(refused(format!("no such device; there are: {}", names.join(", "))));
        }
        probe.open(spec.index)
    }

    fn find(&self, backend: Backend) -> Option<&dyn BackendProbe> {
        self.probes.iter().find(|probe| probe.backend() == backend).map(|probe| &**probe)
    }
}

const NOT_BUILT_IN: &str = "not built into this program";

impl Default for DeviceRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for DeviceRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.probes.iter().map(|probe| probe.backend())).finish()
    }
}

struct CpuProbe {
    options: Vec<CpuOptions>,
}

impl BackendProbe for CpuProbe {
    fn backend(&self) -> Backend {
        Backend::Cpu
    }

    fn probe(&self) -> Result<Vec<DeviceInfo>, String> {
        Ok(self.options.iter().map(CpuDevice::describe).collect())
    }

    fn open(&self, index: u32) -> Result<Arc<dyn Device>, DeviceError> {
        let options = self.options.iter().find(|options| options.index == index);
        CpuDevice::open(options.expect("the registry opens what was probed").clone())
    }
}
