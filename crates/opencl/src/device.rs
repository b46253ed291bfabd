//! OpenCL devices: lanes, memory and programs of one device of a context.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use syncline_device::driver::{Closer, DriverLane};
use syncline_device::{
    Allocator, Capabilities, Deadline, Device, DeviceError, DeviceInfo, DeviceSpec, Lane, LaneKind,
};

use crate::context::Context;
use crate::describe::Traits;
use crate::memory::OpenClAllocator;
use crate::prepare::Preparer;

/// How long a device that is dropped waits for what the driver has begun.
const CLOSING_TIME: Duration = Duration::from_secs(10);

/// One device of a driver, or a part of one.
pub(crate) struct OpenClDevice {
    info: DeviceInfo,
    allocator: Arc<dyn Allocator>,
    preparer: Arc<Preparer>,
    lanes: Vec<Arc<dyn Lane>>,
    /// All lanes, those opened later included, which close with the device.
    opened: Mutex<Vec<Closer<Preparer>>>,
}

impl OpenClDevice {
    /// Device number `at` of `context`, with two lanes for kernels and one for copies.
    pub(crate) fn open(
        context: &Arc<Context>,
        at: usize,
        info: DeviceInfo,
    ) -> Result<Arc<dyn Device>, DeviceError> {
        let allocator = OpenClAllocator::new(context, at, info.memory_bytes)?;
        let mut device = Self {
            info,
            allocator: Arc::new(allocator),
            preparer: Arc::new(Preparer::new(context.clone(), at)?),
            lanes: Vec::new(),
            opened: Mutex::default(),
        };
        for (kind, name) in [
            (LaneKind::Compute, "compute 0"),
            (LaneKind::Compute, "compute 1"),
            (LaneKind::Copy, "copy 0"),
        ] {
            let lane = device.open_lane(kind, name)?;
            device.lanes.push(lane);
        }
        Ok(Arc::new(device))
    }
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

impl Device for OpenClDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn lanes(&self) -> &[Arc<dyn Lane>] {
        &self.lanes
    }

    fn open_lane(&self, kind: LaneKind, name: &str) -> Result<Arc<dyn Lane>, DeviceError> {
        let lane = DriverLane::open(&self.preparer, kind, name)?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|lane| !lane.is_gone());
        opened.push(lane.closer());
        Ok(Arc::new(lane))
    }

    fn allocator(&self) -> &Arc<dyn Allocator> {
        &self.allocator
    }
}

impl Drop for OpenClDevice {
    fn drop(&mut self) {
        let opened = self.opened.get_mut().unwrap_or_else(PoisonError::into_inner);
        opened.iter().for_each(Closer::close);
        // What the driver has begun it ends; a program that exits meanwhile would pull the ground from under it. Work
        // that waits for a lane of another device of this context may be long in coming, and keeps what it needs.
        let deadline = Deadline::after(CLOSING_TIME);
        opened.iter().for_each(|lane| lane.drain(deadline));
    }
}

impl fmt::Debug for OpenClDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenClDevice({}, {})", self.info.spec, self.info.name)
    }
}
