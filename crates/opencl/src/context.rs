//! Contexts: what the devices that can reach each other's memory share.

use std::ptr;

use opencl3::command_queue::{CL_QUEUE_PROFILING_ENABLE, create_command_queue};
use opencl3::context::Context as ClContext;
use opencl3::types::{cl_context, cl_device_id};
use syncline_backend::Bridge;
use syncline_backend::driver::new_context_id;
use syncline_device::{DeviceError, DeviceSpec};

use crate::api::{Code, Queue};
use crate::describe::Traits;
use crate::program::Programs;

/// One driver context: its devices, which copy from and to each other directly, its programs, and
/// the bridge between its events and the timelines of everybody else.
pub(crate) struct Context {
    /// Identity among all contexts of the process.
    pub(crate) id: u64,
    pub(crate) bridge: Bridge,
    /// The programs of each device.
    pub(crate) programs: Vec<Programs>,
    /// Whether the host and the device can work on the same memory at the same time, and the device
    /// calls functions of the host: then copies are made by our own code.
    pub(crate) direct: bool,
    /// What each device can do, and the names under which they are known, in one order.
    pub(crate) devices: Vec<(DeviceSpec, Traits)>,
    cl: ClContext,
}

impl Context {
    /// A context of `devices`.
    pub(crate) fn open(
        devices: Vec<(DeviceSpec, Traits)>,
        direct: bool,
        cache: Option<std::path::PathBuf>,
    ) -> Result<Self, DeviceError> {
        let spec = devices[0].0;
        let ids: Vec<cl_device_id> = devices.iter().map(|(_, of)| of.id.0).collect();
        let made = ClContext::from_devices(&ids, &[], None, ptr::null_mut());
        let cl = made.map_err(|error| refused(spec, "a context", error.into()))?;
        let programs = |(at, (_, of)): (usize, &(_, Traits))| Programs::new(at, of, cache.clone());
        let programs = devices.iter().enumerate().map(programs).collect();
        let direct = direct && devices.iter().all(|(_, of)| of.is_direct());
        let bridge = Bridge::start(&format!("{spec} bridge"), spec)?;
        Ok(Self { id: new_context_id(), bridge, programs, direct, devices, cl })
    }

    /// The driver's handle.
    pub(crate) fn cl(&self) -> cl_context {
        self.cl.get()
    }

    /// A queue of device number `at` of this context, which runs its commands in order.
    pub(crate) fn queue(&self, at: usize) -> Result<Queue, DeviceError> {
        let (spec, device) = &self.devices[at];
        // SAFETY: the device is one of the context's.
        let made =
            unsafe { create_command_queue(self.cl(), device.id.0, CL_QUEUE_PROFILING_ENABLE) };
        made.map(Queue).map_err(|code| refused(*spec, "a command queue", Code(code)))
    }

    /// Whether `device` is one of this context's.
    pub(crate) fn has(&self, device: DeviceSpec) -> bool {
        self.devices.iter().any(|(spec, _)| *spec == device)
    }
}

/// The driver would not give something.
pub(crate) fn refused(device: DeviceSpec, what: &str, code: Code) -> DeviceError {
    DeviceError::Backend { device, message: format!("the driver refuses {what}: {code}").into() }
}
