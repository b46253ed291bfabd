//! OpenCL devices: lanes, memory and programs of one device of a context.

use std::sync::Arc;

use syncline_backend::driver::DriverDevice;
use syncline_device::{Capabilities, Device, DeviceError, DeviceInfo, DeviceSpec};

use crate::context::Context;
use crate::describe::Traits;
use crate::memory::OpenClAllocator;
use crate::prepare::Preparer;

/// Device number `at` of `context`.
pub(crate) fn open(
    context: &Arc<Context>,
    at: usize,
    info: DeviceInfo,
) -> Result<Arc<dyn Device>, DeviceError> {
    let allocator = OpenClAllocator::new(context, at, info.memory_bytes)?;
    let preparer = Preparer::new(context.clone(), at)?;
    DriverDevice::open(info, Arc::new(allocator), Arc::new(preparer))
}

/// What a device with these traits is.
pub(crate) fn describe(
    spec: DeviceSpec,
    traits: &Traits,
    memory_bytes: u64,
    direct: bool,
) -> DeviceInfo {
    let mut capabilities = Capabilities::default();
    capabilities.host_visible = direct;
    capabilities.host_functions = true;
    capabilities.wait_before_signal = true;
    capabilities.open_lanes = true;
    DeviceInfo::new(spec, traits.name.clone(), memory_bytes, capabilities)
}
