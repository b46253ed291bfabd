//! What an executor knows of one device.

use std::sync::Arc;

use syncline_device::{Deadline, Device, DeviceError, DeviceSpec, Lane, LaneKind, Point, wait_all};

use super::ExecutorError;

/// One device of an executor, and which of its lanes kernels go to.
#[derive(Debug)]
pub struct DeviceContext {
    device: Arc<dyn Device>,
    default_lane: usize,
}

impl DeviceContext {
    pub(super) fn new(device: Arc<dyn Device>) -> Self {
        Self { device, default_lane: 0 }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Its name.
    pub fn spec(&self) -> DeviceSpec {
        self.device.spec()
    }

    /// Its lanes.
    pub fn lanes(&self) -> &[Arc<dyn Lane>] {
        self.device.lanes()
    }

    /// The first lane of `kind`, or else the first of all.
    pub fn lane(&self, kind: LaneKind) -> &Arc<dyn Lane> {
        self.device.lane(kind)
    }

    /// The lane that kernels go to.
    #[inline]
    pub fn default_lane(&self) -> &Arc<dyn Lane> {
        &self.device.lanes()[self.default_lane]
    }

    /// Sends kernels to lane number `lane` from now on.
    pub fn set_default_lane(&mut self, lane: usize) -> Result<(), ExecutorError> {
        let lanes = self.lanes().len();
        if lane >= lanes {
            return Err(ExecutorError::NoSuchLane { device: self.spec(), lane, lanes });
        }
        self.default_lane = lane;
        Ok(())
    }

    /// Waits until all work submitted to this device so far has completed.
    pub fn synchronize(&self, deadline: Deadline) -> Result<(), DeviceError> {
        wait_all(&self.last().collect::<Vec<_>>(), deadline)
    }

    /// Makes lanes that failed usable again.
    pub fn recover(&self) {
        self.lanes().iter().for_each(|lane| lane.recover());
    }

    /// The last point of each lane.
    pub(super) fn last(&self) -> impl Iterator<Item = Point> {
        self.lanes().iter().map(|lane| lane.last())
    }
}
