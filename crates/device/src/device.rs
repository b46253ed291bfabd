//! Devices: memory, and lanes that work on it.

use std::fmt;
use std::sync::Arc;

use crate::cpu::Workers;
use crate::{Allocator, Buffer, DeviceError, DeviceSpec, Lane, LaneKind, MemoryUse};

/// One device. Dropping the last handle closes its lanes: work that has not begun fails with
/// [`DeviceError::Closed`].
///
/// # Safety
/// Its lanes and its allocator belong to the device that [`Device::info`] names, which is always
/// the same. There is at least one lane.
pub unsafe trait Device: Send + Sync + fmt::Debug {
    /// What the device is and can do.
    fn info(&self) -> &DeviceInfo;

    /// The lanes that exist from the start: compute lanes first, then copy lanes.
    fn lanes(&self) -> &[Arc<dyn Lane>];

    /// One more lane, for whoever needs its own order of work. It closes when its last handle is
    /// dropped, or with the device.
    fn open_lane(&self, kind: LaneKind, name: &str) -> Result<Arc<dyn Lane>, DeviceError>;

    /// Where its memory comes from.
    fn allocator(&self) -> &Arc<dyn Allocator>;

    /// The threads of a CPU device, for plans and streams that run on it.
    fn workers(&self) -> Option<&Arc<Workers>> {
        None
    }
}

/// What a device is and can do, as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its name in commands and files.
    pub spec: DeviceSpec,
    /// What the driver calls it.
    pub name: String,
    /// The most memory that buffers may take.
    pub memory_bytes: u64,
    /// What it can do beyond the least that every device does.
    pub capabilities: Capabilities,
}

impl DeviceInfo {
    /// A description.
    pub fn new(
        spec: DeviceSpec,
        name: String,
        memory_bytes: u64,
        capabilities: Capabilities,
    ) -> Self {
        Self { spec, name, memory_bytes, capabilities }
    }
}

/// What a device can do beyond the least that every device does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The host reaches its memory directly: buffers can be mapped.
    pub host_visible: bool,
    /// Its lanes run host functions in order with other work.
    pub host_functions: bool,
    /// A lane can wait for a value that work submitted later will signal.
    pub wait_before_signal: bool,
    /// More lanes can be opened.
    pub open_lanes: bool,
}

impl dyn Device + '_ {
    /// Its name in commands and files.
    pub fn spec(&self) -> DeviceSpec {
        self.info().spec
    }

    /// A buffer of `bytes` bytes; memory is taken at its first use.
    pub fn buffer(&self, bytes: u64) -> Buffer {
        Buffer::new(self.allocator().clone(), bytes)
    }

    /// The first lane of `kind`, or else the first of all: every device has at least one lane.
    pub fn lane(&self, kind: LaneKind) -> &Arc<dyn Lane> {
        let lanes = self.lanes();
        lanes.iter().find(|lane| lane.info().kind == kind).unwrap_or(&lanes[0])
    }

    /// A lane of its own where the device can open one, called `name`; else one of those that
    /// everybody shares, of `kind` where there is one, chosen by `number`.
    pub fn lane_for(
        &self,
        kind: LaneKind,
        name: &str,
        number: usize,
    ) -> Result<Arc<dyn Lane>, DeviceError> {
        if self.info().capabilities.open_lanes {
            return self.open_lane(kind, name);
        }
        let shared: Vec<_> = self.lanes().iter().filter(|lane| lane.info().kind == kind).collect();
        Ok(Arc::clone(match shared.len() {
            0 => self.lane(kind),
            count => shared[number % count],
        }))
    }

    /// What is in use of its memory.
    pub fn memory_use(&self) -> MemoryUse {
        self.allocator().memory_use()
    }
}
