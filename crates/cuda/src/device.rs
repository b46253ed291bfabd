//! CUDA devices: lanes, memory and programs of one device.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use syncline_device::driver::{Closer, DriverLane};
use syncline_device::{Allocator, Deadline, Device, DeviceError, DeviceInfo, Lane, LaneKind};

use crate::context::Context;
use crate::memory::CudaAllocator;
use crate::prepare::Preparer;

/// How long a device that is dropped waits for what the driver has begun.
const CLOSING_TIME: Duration = Duration::from_secs(10);

/// One device of the driver.
pub(crate) struct CudaDevice {
    info: DeviceInfo,
    allocator: Arc<dyn Allocator>,
    preparer: Arc<Preparer>,
    lanes: Vec<Arc<dyn Lane>>,
    /// All lanes, those opened later included, which close with the device.
    opened: Mutex<Vec<Closer<Preparer>>>,
}

impl CudaDevice {
    /// The device of `info`, with two lanes for kernels and one for copies.
    pub(crate) fn open(info: DeviceInfo) -> Result<Arc<dyn Device>, DeviceError> {
        let context = Arc::new(Context::open(info.spec)?);
        let mut device = Self {
            allocator: Arc::new(CudaAllocator::new(&context, info.memory_bytes)),
            info,
            preparer: Arc::new(Preparer::new(context)),
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

impl Device for CudaDevice {
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

impl Drop for CudaDevice {
    fn drop(&mut self) {
        let opened = self.opened.get_mut().unwrap_or_else(PoisonError::into_inner);
        opened.iter().for_each(Closer::close);
        // What the driver has begun it ends.
        let deadline = Deadline::after(CLOSING_TIME);
        opened.iter().for_each(|lane| lane.drain(deadline));
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaDevice({}, {})", self.info.spec, self.info.name)
    }
}
