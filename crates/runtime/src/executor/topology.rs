//! What devices can do together, found by trying: the only source for routes.
//!
//! A lane says which memory it reaches ([`Lane::can_access`]). That is a claim: a link is used only
//! after bytes that one device wrote were copied over it, in order, and arrived as they were.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_device::{
    Allocator, Backend, Batch, Buffer, Command, Deadline, Device, DeviceError, DeviceSpec, Lane,
    LaneKind, Pattern,
};
use syncline_tensor::View;

/// How bytes get from one device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Both ends are one device: its own lanes copy.
    Local,
    /// One copy, by a lane of the target's device, which waits for work of the source's device.
    Pull,
    /// One copy, by a lane of the source's device, which waits for work of the target's device.
    Push,
    /// Two copies, through host memory.
    Staged,
    /// None was found: one of the two devices does not exchange bytes with host memory.
    Unconnected,
}

/// What a set of devices can do together.
///
/// ```
/// use syncline_device::cpu::{CpuDevice, CpuOptions};
/// use syncline_runtime::executor::{Path, Topology};
///
/// let open = |index| CpuDevice::open(CpuOptions::new(index).compute_lanes(1));
/// let devices = [open(0)?, open(1)?];
/// let topology = Topology::probe(&devices);
/// assert_eq!(topology.path(devices[0].spec(), devices[1].spec()), Path::Pull);
/// # Ok::<(), syncline_device::DeviceError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// Whether lanes of a device exchange bytes with host memory.
    devices: Vec<(DeviceSpec, bool)>,
    /// The pairs between which one copy is enough.
    links: Vec<DirectLink>,
}

/// A copy between two devices that was tried, and worked.
#[derive(Clone, Copy, Debug)]
struct DirectLink {
    source: DeviceSpec,
    target: DeviceSpec,
    path: Path,
    speed: Option<Speed>,
}

/// How fast copies over a link went when they were tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    pub(super) bytes_per_us: u64,
    pub(super) latency_ns: u64,
}

/// How long one copy may take; a pair of devices that takes longer is staged.
const PROBE_TIME: Duration = Duration::from_secs(10);
/// Several pages.
const PROBE_BYTES: u64 = 16 << 10;
/// Large enough for the speed to show beside the time that a copy takes to begin.
const TIMED_BYTES: u64 = 1 << 20;
const TIMED_COPIES: usize = 3;
/// Host memory that is enough for probing.
const HOST_BYTES: u64 = 1 << 20;

impl Topology {
    /// Tries every pair of `devices` in both directions.
    ///
    /// A copy that fails, delivers other bytes, or takes longer than ten seconds makes its pair
    /// [`Path::Staged`].
    pub fn probe(devices: &[Arc<dyn Device>]) -> Self {
        let mut topology = Self::default();
        for (at, device) in devices.iter().enumerate() {
            topology.add(&**device, devices[..at].iter().map(|other| &**other));
        }
        topology
    }

    /// Tries `device` together with each of `others`, which were added before.
    pub(super) fn add<'a>(
        &mut self,
        device: &dyn Device,
        others: impl Iterator<Item = &'a (dyn Device + 'static)>,
    ) {
        self.devices.push((device.spec(), reaches_host(device)));
        for other in others {
            self.links.extend(DirectLink::find(device, other));
            self.links.extend(DirectLink::find(other, device));
        }
    }

    /// How bytes get from `source` to `target`. Devices that were not tried are
    /// [`Path::Unconnected`].
    pub fn path(&self, source: DeviceSpec, target: DeviceSpec) -> Path {
        match self.link(source, target) {
            _ if source == target => Path::Local,
            Some(link) => link.path,
            None => self.staged(source, target),
        }
    }

    /// How bytes get from `source` to another device, `target`, without direct copies.
    pub(super) fn staged(&self, source: DeviceSpec, target: DeviceSpec) -> Path {
        match self.devices.contains(&(source, true)) && self.devices.contains(&(target, true)) {
            true => Path::Staged,
            false => Path::Unconnected,
        }
    }

    /// How fast direct copies went, where that was measured.
    pub(super) fn speed(&self, source: DeviceSpec, target: DeviceSpec) -> Option<Speed> {
        self.link(source, target)?.speed
    }

    fn link(&self, source: DeviceSpec, target: DeviceSpec) -> Option<&DirectLink> {
        self.links.iter().find(|link| (link.source, link.target) == (source, target))
    }
}

impl DirectLink {
    /// The first way from `from` to `to` that works, if there is one.
    fn find(from: &dyn Device, to: &dyn Device) -> Option<Self> {
        let (source, target) = (from.spec(), to.spec());
        [(Path::Pull, to), (Path::Push, from)].into_iter().find_map(|(path, copier)| {
            let far = if path == Path::Pull { source } else { target };
            if !copier.lane(LaneKind::Copy).can_access(far) {
                return None;
            }
            let speed = Self::try_out(copier, from, to).ok()?;
            Some(Self { source, target, path, speed })
        })
    }

    /// Copies by a lane of `copier`, and returns the speed, if it was measured.
    fn try_out(
        copier: &dyn Device,
        from: &dyn Device,
        to: &dyn Device,
    ) -> Result<Option<Speed>, DeviceError> {
        // Between CPU devices the planner's guess is as good as a measurement.
        let is_timed = [from, to].iter().any(|device| device.spec().backend != Backend::Cpu);
        let bytes = if is_timed { TIMED_BYTES } else { PROBE_BYTES };
        let (writer, copier) = (Scratch::open(from)?, Scratch::open(copier)?);
        let (source, target) = (from.buffer(bytes), to.buffer(bytes));
        deliver(Some(&writer), &copier, &source, &target)?;
        is_timed.then(|| measure(&copier, &source, &target)).transpose()
    }
}

/// Returns `true` if a lane of `device` copies from and to host memory.
fn reaches_host(device: &dyn Device) -> bool {
    let host: Arc<dyn Allocator> = syncline_device::cpu::host_memory(HOST_BYTES);
    let there = || Buffer::new(Arc::clone(&host), PROBE_BYTES);
    let round_trip = || {
        let (lane, here) = (Scratch::open(device)?, device.buffer(PROBE_BYTES));
        deliver(None, &lane, &there(), &here)?;
        deliver(Some(&lane), &lane, &here, &there())
    };
    round_trip().is_ok()
}

/// Has `copier` copy from `source` to `target`, and compares the bytes.
///
/// One half is written by the host. The other one is written by `writer`, and the copy waits for
/// that on the device.
///
/// # Errors
/// The copy fails, takes too long, or delivers other bytes.
fn deliver(
    writer: Option<&Scratch>,
    copier: &Scratch,
    source: &Buffer,
    target: &Buffer,
) -> Result<(), DeviceError> {
    const FILLED: u8 = 0xa5;
    let bytes = source.bytes() as usize;
    let mixed = |at: usize| ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    let mut expected: Vec<u8> = (0..bytes).map(mixed).collect();
    source.write(0, &expected)?;
    if writer.is_some() {
        expected[..bytes / 2].fill(FILLED);
    }
    // No byte may be right before it was copied.
    let wrong: Vec<u8> = expected.iter().map(|byte| !byte).collect();
    target.write(0, &wrong)?;
    let mut copy = Batch::from(Command::copy(source.all(), target.all()));
    if let Some(writer) = writer {
        let half = View::bytes_at(0, bytes as u64 / 2).expect("a part of the buffer");
        let fill = Command::fill(source.view(half)?, Pattern::new(&[FILLED])?);
        copy = copy.wait(writer.lane.submit(fill.into())?);
    }
    copier.lane.submit(copy)?.wait(Deadline::after(PROBE_TIME))?;
    match target.read::<u8>(0, bytes)? == expected {
        true => Ok(()),
        false => Err(DeviceError::Backend {
            device: copier.lane.info().device,
            message: format!("a copy to {} delivered other bytes", target.device()).into(),
        }),
    }
}

fn measure(copier: &Scratch, source: &Buffer, target: &Buffer) -> Result<Speed, DeviceError> {
    let best_ns = |bytes: u64| -> Result<u64, DeviceError> {
        let mut best = u64::MAX;
        for _ in 0..TIMED_COPIES {
            let view = View::bytes_at(0, bytes).expect("inside the buffer");
            let copy = Command::copy(source.view(view)?, target.view(view)?);
            let began = Instant::now();
            copier.lane.submit(Batch::from(copy))?.wait(Deadline::after(PROBE_TIME))?;
            best = best.min(began.elapsed().as_nanos() as u64);
        }
        Ok(best)
    };
    let latency_ns = best_ns(64)?;
    let moving_ns = best_ns(TIMED_BYTES)?.saturating_sub(latency_ns).max(1);
    Ok(Speed { bytes_per_us: (TIMED_BYTES * 1000 / moving_ns).max(1), latency_ns })
}

/// A lane to try things on: a failure takes no other work along where the device can open lanes.
struct Scratch {
    lane: Arc<dyn Lane>,
}

impl Scratch {
    fn open(device: &dyn Device) -> Result<Self, DeviceError> {
        Ok(Self { lane: device.lane_for(LaneKind::Copy, "probe", 0)? })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may be a lane that others use. Does nothing to one that has not failed.
        self.lane.recover();
    }
}
