//! The lanes of a pipeline: streams of the device layer on which a PE packs, sends, receives,
//! unpacks and copies.
//!
//! | lane | of | does |
//! | --- | --- | --- |
//! | slots | the host | waits for slots to become free |
//! | pack | every device that holds tensors | copies parts of tensors into slots |
//! | send | the host | hands full slots to the transport |
//! | receive | the host | waits for messages, verifies them |
//! | unpack | every device that holds tensors | copies slots into tensors, and gives them back |
//! | copy | every device that holds tensors | self moves, and moves into memory of peers |
//!
//! The slot, send and receive lanes are the bridge between the transport's board and the timelines
//! of this process: their host functions sleep on the board's bell, and the points at which they
//! complete are "slot free", "sent" and "data ready". No other lane ever waits for another PE, so
//! that whatever order work on shared buffers has, all of it ends. Slots are waited for on a lane
//! of their own: on the send lane, a message that is packed would wait behind a slot that is not
//! free yet.

mod boxes;
mod foreign;
mod port;
mod run;

use std::sync::Arc;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{Device, DeviceError, DeviceSpec, Lane, LaneKind};

pub(crate) use run::LaneRun;

/// The lanes that one PE's pipeline runs on: those of the host, and of every device added.
///
/// ```
/// use syncline_device::cpu::{CpuDevice, CpuOptions};
/// use syncline_reshard::PipelineLanes;
///
/// let device = CpuDevice::open(CpuOptions::new(1).compute_lanes(1))?;
/// let mut lanes = PipelineLanes::new()?;
/// lanes.add(&device)?;
/// assert!(lanes.covers(device.spec()));
/// # Ok::<(), syncline_device::DeviceError>(())
/// ```
#[derive(Debug)]
pub struct PipelineLanes {
    /// For host memory, and for what the transport does.
    host: Arc<dyn Device>,
    pub(crate) slots: Arc<dyn Lane>,
    pub(crate) send: Arc<dyn Lane>,
    pub(crate) receive: Arc<dyn Lane>,
    pub(crate) host_lanes: Lanes,
    devices: Vec<(Arc<dyn Device>, Lanes)>,
}

/// The lanes on which one device moves bytes.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    pub pack: Arc<dyn Lane>,
    pub unpack: Arc<dyn Lane>,
    pub copy: Arc<dyn Lane>,
}

impl Lanes {
    fn open(device: &Arc<dyn Device>) -> Result<Self, DeviceError> {
        Ok(Self {
            pack: open(device, LaneKind::Pack, "pack")?,
            unpack: open(device, LaneKind::Unpack, "unpack")?,
            copy: open(device, LaneKind::Copy, "reshard copy")?,
        })
    }

    pub fn of(&self, kind: LaneKind) -> &Arc<dyn Lane> {
        match kind {
            LaneKind::Pack => &self.pack,
            LaneKind::Unpack => &self.unpack,
            _ => &self.copy,
        }
    }

    fn all(&self) -> [&Arc<dyn Lane>; 3] {
        [&self.pack, &self.unpack, &self.copy]
    }
}

/// A lane of its own where the device can open one, or else one that it has.
fn open(
    device: &Arc<dyn Device>,
    kind: LaneKind,
    name: &str,
) -> Result<Arc<dyn Lane>, DeviceError> {
    match device.info().capabilities.open_lanes {
        true => device.open_lane(kind, name),
        false => Ok(device.lane(kind).clone()),
    }
}

impl PipelineLanes {
    /// Lanes of the host: enough for tensors in host memory and in buffers of CPU devices.
    pub fn new() -> Result<Self, DeviceError> {
        // Packing and unpacking at a time. The lanes that wait for peers say so while they do.
        let mut options = CpuOptions::new(0).compute_lanes(1).workers(2);
        // Its own lane is never used.
        options.copy_lanes = 0;
        let host = CpuDevice::open(options)?;
        Ok(Self {
            slots: open(&host, LaneKind::Send, "slots")?,
            send: open(&host, LaneKind::Send, "send")?,
            receive: open(&host, LaneKind::Send, "receive")?,
            host_lanes: Lanes::open(&host)?,
            host,
            devices: Vec::new(),
        })
    }

    /// Opens lanes on `device`, if that has not happened yet.
    ///
    /// Tensors in its buffers are then moved by the device itself. Buffers of a CPU device need no
    /// lanes of that device: without them, the host's do it.
    pub fn add(&mut self, device: &Arc<dyn Device>) -> Result<(), DeviceError> {
        if !self.covers(device.spec()) {
            self.devices.push((device.clone(), Lanes::open(device)?));
        }
        Ok(())
    }

    /// Whether lanes of `device` were added.
    pub fn covers(&self, device: DeviceSpec) -> bool {
        self.device(device).is_some()
    }

    pub(crate) fn device(&self, spec: DeviceSpec) -> Option<&(Arc<dyn Device>, Lanes)> {
        self.devices.iter().find(|(device, _)| device.spec() == spec)
    }

    /// Memory of the host for what has to be put together on the way.
    pub(crate) fn staging(&self, bytes: usize) -> syncline_device::Buffer {
        self.host.buffer(bytes as u64)
    }

    /// Every lane, those first on which others wait.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn Lane>> {
        let devices = self.devices.iter().flat_map(|(_, lanes)| lanes.all());
        let bridge = [&self.slots, &self.send, &self.receive];
        bridge.into_iter().chain(self.host_lanes.all()).chain(devices)
    }
}
