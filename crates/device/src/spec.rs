//! Names of devices, as people write them: `cpu`, `cpu:1`, `vulkan:0`.

use std::fmt;
use std::str::FromStr;

/// A family of devices that are driven in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Backend {
    Cpu,
    Vulkan,
    OpenCl,
    Cuda,
}

impl Backend {
    /// Every backend, in the order in which devices are listed.
    pub const ALL: [Backend; 4] = [Backend::Cpu, Backend::Vulkan, Backend::OpenCl, Backend::Cuda];

    /// The name used in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Cpu => "cpu",
            Backend::Vulkan => "vulkan",
            Backend::OpenCl => "opencl",
            Backend::Cuda => "cuda",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which device is meant: a backend and a number.
///
/// ```
/// use syncline_device::{Backend, DeviceSpec};
///
/// let spec: DeviceSpec = "vulkan:1".parse()?;
/// assert_eq!(spec, DeviceSpec::new(Backend::Vulkan, 1));
/// assert_eq!("cpu".parse(), Ok(DeviceSpec::CPU));
/// assert_eq!(DeviceSpec::CPU.to_string(), "cpu:0");
/// # Ok::<(), syncline_device::UnknownDevice>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceSpec {
    /// How the device is driven.
    pub backend: Backend,
    /// Its number among the devices of that backend.
    pub index: u32,
}

impl DeviceSpec {
    /// The first CPU device.
    pub const CPU: DeviceSpec = DeviceSpec::cpu(0);

    /// Device number `index` of `backend`.
    pub const fn new(backend: Backend, index: u32) -> Self {
        Self { backend, index }
    }

    /// CPU device number `index`.
    pub const fn cpu(index: u32) -> Self {
        Self::new(Backend::Cpu, index)
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.backend, self.index)
    }
}

/// Text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no device: expected cpu, vulkan, opencl or cuda, and a number after a colon, such as cpu:1"
)]
pub struct UnknownDevice(pub String);

impl FromStr for DeviceSpec {
    type Err = UnknownDevice;

    fn from_str(text: &str) -> Result<Self, UnknownDevice> {
        let unknown = || UnknownDevice(text.to_owned());
        let (name, index) = match text.split_once(':') {
            // `+1` and `01` would parse as numbers, but nothing prints them: one spelling a device.
            Some((name, digits)) => {
                let index: u32 = digits.parse().map_err(|_| unknown())?;
                if index.to_string() != digits {
                    return Err(unknown());
                }
                (name, index)
            }
            None => (text, 0),
        };
        let backend = Backend::ALL.into_iter().find(|backend| backend.name() == name);
        Ok(Self::new(backend.ok_or_else(unknown)?, index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_back() {
        for backend in Backend::ALL {
            for index in [0, 1, 7, u32::MAX] {
                let spec = DeviceSpec::new(backend, index);
                assert_eq!(spec.to_string().parse(), Ok(spec));
            }
            assert_eq!(backend.name().parse(), Ok(DeviceSpec::new(backend, 0)));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            ":",
            "cpu:",
            "cpu:-1",
            "cpu:+1",
            "cpu:01",
            "cpu:4294967296",
            "gpu:0",
            "CPU",
            " cpu",
            "cpu:0:0",
        ] {
            assert_eq!(text.parse::<DeviceSpec>(), Err(UnknownDevice(text.to_owned())));
        }
    }
}
