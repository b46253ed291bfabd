//! Lanes of a CPU device: batches in order, which workers run.

use std::fmt;
use std::sync::Arc;

use super::queue::Queue;
use super::ready::ReadyLanes;
use super::run;
use crate::{Backend, DeviceError, DeviceSpec, Lane, LaneInfo, Point, Timeline, Work};

/// A queue that the device's workers serve.
pub(super) struct CpuLane(Arc<Queue>);

impl CpuLane {
    /// A lane that is put on `ready` while it has something to run.
    pub(super) fn new(info: LaneInfo, ready: &Arc<ReadyLanes>) -> Self {
        Self(Queue::new(info, ready))
    }

    /// Waits until no other thread runs the lane, which was closed.
    pub(super) fn join(&self) {
        self.0.join();
    }
}

// SAFETY: one worker at a time takes items out of one queue and runs each to its end, after all
// before it; memory of CPU devices is the host's.
unsafe impl Lane for CpuLane {
    fn info(&self) -> &LaneInfo {
        &self.0.info
    }

    fn timeline(&self) -> Timeline {
        self.0.last().timeline().clone()
    }

    fn last(&self) -> Point {
        self.0.last()
    }

    fn can_access(&self, device: DeviceSpec) -> bool {
        device.backend == Backend::Cpu
    }

    unsafe fn enqueue(&self, work: &mut Work) -> Result<Point, DeviceError> {
        self.0.push(work)
    }

    fn recover(&self) {
        self.0.recover();
    }

    fn close(&self) {
        if let Some(left) = self.0.close() {
            run::give_up(&self.0, left);
        }
    }
}

impl Drop for CpuLane {
    fn drop(&mut self) {
        self.close();
        self.join();
    }
}

impl fmt::Debug for CpuLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuLane({:?})", self.0.last())
    }
}
