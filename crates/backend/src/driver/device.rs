//! Devices over a driver: lanes for kernels and copies, which close with the device.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Driver;
use super::lane::DriverLane;
use super::queue::LaneQueue;
use syncline_device::{
    Allocator, Deadline, Device, DeviceError, DeviceInfo, Lane, LaneKind, OpenLanes,
};

/// How long a device that is dropped waits for what the driver has begun.
const CLOSING_TIME: Duration = Duration::from_secs(10);

/// The lanes that a device has from the start.
const LANES: [(LaneKind, &str); 3] = [
    (LaneKind::Compute, "compute 0"),
    (LaneKind::Compute, "compute 1"),
    (LaneKind::Copy, "copy 0"),
];

/// One device of a driver.
pub struct DriverDevice<D: Driver> {
    info: DeviceInfo,
    allocator: Arc<dyn Allocator>,
    driver: Arc<D>,
    lanes: Vec<Arc<dyn Lane>>,
    /// All lanes, those opened later included, which close with the device.
    opened: OpenLanes<LaneQueue<D>>,
}

impl<D: Driver> DriverDevice<D> {
    /// The device of `info`, with two lanes for kernels and one for copies.
    ///
    /// # Errors
    /// The driver's, where it gives no queue.
    pub fn open(
        info: DeviceInfo,
        allocator: Arc<dyn Allocator>,
        driver: Arc<D>,
    ) -> Result<Arc<dyn Device>, DeviceError> {
        let mut device =
            Self { info, allocator, driver, lanes: Vec::new(), opened: OpenLanes::new() };
        for (kind, name) in LANES {
            let lane = device.open_lane(kind, name)?;
            device.lanes.push(lane);
        }
        Ok(Arc::new(device))
    }
}

// SAFETY: lanes and allocator are of the driver's device; it has at least one lane from the start.
unsafe impl<D: Driver> Device for DriverDevice<D> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn lanes(&self) -> &[Arc<dyn Lane>] {
        &self.lanes
    }

    fn open_lane(&self, kind: LaneKind, name: &str) -> Result<Arc<dyn Lane>, DeviceError> {
        let lane = DriverLane::open(&self.driver, kind, name)?;
        self.opened.add(lane.queue());
        Ok(Arc::new(lane))
    }

    fn allocator(&self) -> &Arc<dyn Allocator> {
        &self.allocator
    }
}

impl<D: Driver> Drop for DriverDevice<D> {
    fn drop(&mut self) {
        let opened = self.opened.living();
        opened.iter().for_each(|lane| lane.close());
        // What the driver has begun it ends; a program that exits meanwhile would pull the ground
        // from under it. Work that waits for a lane of another device of the same context may be
        // long in coming, and keeps what it needs.
        let deadline = Deadline::after(CLOSING_TIME);
        opened.iter().for_each(|lane| lane.drain(deadline));
    }
}

impl<D: Driver> fmt::Debug for DriverDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriverDevice({}, {})", self.info.spec, self.info.name)
    }
}
