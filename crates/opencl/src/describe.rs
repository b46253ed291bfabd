//! What a driver says of its devices, as plain data.

use opencl3::device::{CL_DEVICE_SVM_FINE_GRAIN_BUFFER, CL_EXEC_NATIVE_KERNEL, Device};
use opencl3::types::cl_device_id;

use crate::api::Code;

/// A device's handle. Whole devices exist as long as the driver is loaded, parts as long as the
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceId(pub(crate) cl_device_id);

// SAFETY: a device's handle is a number to the driver, which may be used from any thread.
unsafe impl Send for DeviceId {}
// SAFETY: as above.
unsafe impl Sync for DeviceId {}

/// What matters of a device.
#[derive(Clone, Debug)]
pub(crate) struct Traits {
    pub(crate) id: DeviceId,
    pub(crate) name: String,
    /// The driver with its version: what a compiled program depends on beside its source.
    pub(crate) driver: String,
    pub(crate) memory_bytes: u64,
    pub(crate) allocation_bytes_max: u64,
    pub(crate) units: u32,
    pub(crate) group_items_max: usize,
    /// What the start of a part of a buffer must be a multiple of.
    pub(crate) part_alignment: u64,
    fine_grained: bool,
    native_kernels: bool,
}

impl Traits {
    /// Asks the driver; the error says why the device cannot be used.
    pub(crate) fn ask(id: cl_device_id) -> Result<Self, String> {
        let device = Device::new(id);
        let ask = || -> Result<Self, Code> {
            let svm = device.svm_mem_capability();
            let version =
                format!("{}; {}", device.version()?.trim(), device.driver_version()?.trim());
            Ok(Self {
                id: DeviceId(id),
                name: device.name()?.trim().to_owned(),
                driver: version,
                memory_bytes: device.global_mem_size()?,
                allocation_bytes_max: device.max_mem_alloc_size()?,
                units: device.max_compute_units()?,
                group_items_max: device.max_work_group_size()?,
                part_alignment: u64::from(device.mem_base_addr_align()? / 8).max(4),
                fine_grained: svm & CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0,
                native_kernels: device.execution_capabilities()? & CL_EXEC_NATIVE_KERNEL != 0,
            })
        };
        let found = ask().map_err(|code| format!("it does not describe itself: {code}"))?;
        let usable = |yes: Result<bool, _>, what: &str| match yes {
            Ok(true) => Ok(()),
            _ => Err(format!("{}: {what}", found.name)),
        };
        usable(device.available(), "not available")?;
        let version = device.version().map(|text| is_new_enough(&text));
        usable(version, "a version of OpenCL before 1.2")?;
        usable(device.compiler_available(), "no compiler for OpenCL C")?;
        usable(device.endian_little(), "it stores numbers with the high byte first")?;
        Ok(found)
    }

    /// Whether host and device may work on the same memory at the same time, and the device calls
    /// the host's functions.
    pub(crate) fn is_direct(&self) -> bool {
        self.fine_grained && self.native_kernels
    }
}

/// Whether a device with this version (`OpenCL 3.0 ...`) fills buffers, waits for lists of events,
/// and can be divided.
fn is_new_enough(version: &str) -> bool {
    let number = version.strip_prefix("OpenCL ").and_then(|rest| rest.split(' ').next());
    let parts = number.and_then(|number| number.split_once('.'));
    let parsed = parts
        .and_then(|(major, minor)| Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?)));
    parsed.is_some_and(|version| version >= (1, 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for version in
            ["OpenCL 1.2 CUDA", "OpenCL 3.0 PoCL HSTR: pthread", "OpenCL 2.0", "OpenCL 1.10"]
        {
            assert!(is_new_enough(version), "{version}");
        }
        for version in ["OpenCL 1.1 Mesa", "OpenCL 1.0", "OpenCL", "3.0", ""] {
            assert!(!is_new_enough(version), "{version}");
        }
    }
}
