//! CUDA devices: lanes, memory and programs of one device.

use std::sync::Arc;

use syncline_backend::driver::DriverDevice;
use syncline_device::{Device, DeviceError, DeviceInfo};

use crate::context::Context;
use crate::memory::CudaAllocator;
use crate::prepare::Preparer;

/// The device of `info`.
pub(crate) fn open(info: DeviceInfo) -> Result<Arc<dyn Device>, DeviceError> {
    let context = Arc::new(Context::open(info.spec)?);
    let allocator = CudaAllocator::new(&context, info.memory_bytes);
    DriverDevice::open(info, Arc::new(allocator), Arc::new(Preparer::new(context)))
}
