//! What the lanes, the memory and the programs of one device share.

use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::CUdevice_attribute;
use syncline_backend::Bridge;
use syncline_backend::driver::new_context_id;
use syncline_device::{DeviceError, DeviceSpec, Pool};

use crate::api::{EventPool, Pinned, Primary, refused};
use crate::program::Programs;

/// One opened device.
pub(crate) struct Context {
    /// Identity among all contexts of the process.
    pub(crate) id: u64,
    pub(crate) spec: DeviceSpec,
    pub(crate) bridge: Bridge,
    pub(crate) programs: Programs,
    pub(crate) events: Arc<EventPool>,
    /// Slots for copies between the device and memory that it does not reach by itself.
    pub(crate) pinned: Arc<Pool<Pinned>>,
    pub(crate) block_items_max: usize,
    pub(crate) primary: Arc<Primary>,
}

impl Context {
    /// Opens device number `spec.index` of the driver, which is loaded and initialised.
    pub(crate) fn open(spec: DeviceSpec) -> Result<Self, DeviceError> {
        let failed = |error| refused(spec, "the device", error);
        let device = result::device::get(spec.index as i32).map_err(failed)?;
        let ask = |what| {
            // SAFETY: the device exists.
            unsafe { result::device::get_attribute(device, what) }.map_err(failed)
        };
        let major = ask(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = ask(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let items = ask(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        let primary = Arc::new(Primary::retain(device).map_err(failed)?);
        Ok(Self {
            id: new_context_id(),
            spec,
            bridge: Bridge::start(&format!("{spec} bridge"), spec)?,
            programs: Programs::new(primary.clone(), format!("compute_{major}{minor}")),
            events: EventPool::new(primary.clone()),
            pinned: Arc::new(Pool::new(spec, u64::MAX)),
            block_items_max: items.max(1) as usize,
            primary,
        })
    }
}
