//! How work on one device is ordered behind work on another: found out by trying.

use std::time::Duration;

use syncline_device::{
    Batch, Command, Deadline, Device, DeviceError, DeviceSpec, LaneKind, Pattern,
};

/// How work on one device waits for work on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncStrategy {
    /// One device: its lanes order it.
    None,
    /// The waiting device's lane waits for the other's point and reaches its memory.
    PeerToPeer,
    /// The host stands between the two: data is staged through its memory.
    HostMediated,
}

/// What was found for each ordered pair of devices.
#[derive(Debug, Default)]
pub(super) struct Strategies(Vec<(DeviceSpec, DeviceSpec, SyncStrategy)>);

/// A probe moves some bytes; a pair of devices that takes longer is not used as peers.
const PROBE_TIME: Duration = Duration::from_secs(10);
const PROBE_BYTES: u64 = 256;

impl Strategies {
    /// Tries both directions between two devices.
    pub(super) fn probe(&mut self, one: &dyn Device, other: &dyn Device) {
        for (signaller, waiter) in [(one, other), (other, one)] {
            let strategy = match copies_as_peer(signaller, waiter) {
                Ok(true) => SyncStrategy::PeerToPeer,
                Ok(false) | Err(_) => SyncStrategy::HostMediated,
            };
            self.0.push((signaller.spec(), waiter.spec(), strategy));
        }
    }

    pub(super) fn get(&self, signaller: DeviceSpec, waiter: DeviceSpec) -> SyncStrategy {
        if signaller == waiter {
            return SyncStrategy::None;
        }
        let pair = self.0.iter().find(|(from, to, _)| (*from, *to) == (signaller, waiter));
        pair.map_or(SyncStrategy::HostMediated, |&(_, _, strategy)| strategy)
    }
}

/// Fills a buffer of `signaller` and has a lane of `waiter` copy it as soon as it is filled: true if what arrives is
/// what was written.
fn copies_as_peer(signaller: &dyn Device, waiter: &dyn Device) -> Result<bool, DeviceError> {
    let reader = waiter.lane(LaneKind::Copy);
    if !reader.can_access(signaller.spec()) {
        return Ok(false);
    }
    let (source, target) = (signaller.buffer(PROBE_BYTES), waiter.buffer(PROBE_BYTES));
    source.write(0, &[0u8; PROBE_BYTES as usize])?;
    target.write(0, &[0u8; PROBE_BYTES as usize])?;
    let fill = Command::fill(source.all(), Pattern::new(&[0xa5])?);
    let filled = signaller.lane(LaneKind::Compute).submit(fill.into())?;
    let copy = Command::copy(source.all(), target.all());
    let copied = reader.submit(Batch::from(copy).wait(filled))?;
    copied.wait(Deadline::after(PROBE_TIME))?;
    let arrived: Vec<u8> = target.read(0, PROBE_BYTES as usize)?;
    Ok(arrived.iter().all(|&byte| byte == 0xa5))
}
