//! Who uses a buffer at the moment: leases of work, maps and short accesses of the host, and the
//! stream that occupies it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{ThreadId, current};
use std::time::{Duration, Instant};

use syncline_sync::{ignore_poison, lock};

use super::Buffer;
use super::home::AtHome;
use crate::blocked::{self, LANES, Obstacle, Stopped};
use crate::{Deadline, DeviceError, Memory};

/// Counts of users, and a way to wait for them to go.
#[derive(Default)]
pub(super) struct Uses {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    device_readers: u32,
    device_writers: u32,
    /// The lanes whose work they are, and whether it writes.
    lanes: Vec<(u64, bool)>,
    host_readers: u32,
    host_writer: bool,
    /// Those of the host's that last as long as the caller likes: work is refused instead of
    /// waiting for them.
    maps: u32,
    /// The threads that made them: one of these that waited for a map to be dropped would wait for
    /// itself.
    mapped_by: Vec<ThreadId>,
    home: Option<AtHome>,
    /// The memory was lent, and is no longer.
    is_revoked: bool,
    sleepers: u32,
    /// Changes when those who wait are to look again.
    wakes: u64,
}

impl Counts {
    fn lease(&mut self, writes: bool, lane: u64) {
        match writes {
            true => self.device_writers += 1,
            false => self.device_readers += 1,
        }
        self.lanes.push((lane, writes));
    }

    fn end_lease(&mut self, writes: bool, lane: u64) {
        match writes {
            true => self.device_writers -= 1,
            false => self.device_readers -= 1,
        }
        let at = self.lanes.iter().position(|lease| *lease == (lane, writes));
        self.lanes.swap_remove(at.expect("noted when it was made"));
    }

    /// Returns `true` if other hosts keep off a host that uses the buffer like `host`.
    fn hosts_conflict(&self, host: HostUse) -> bool {
        self.host_writer || (host.writes && self.host_readers > 0)
    }

    fn conflict(&self, host: HostUse) -> bool {
        self.device_writers > 0
            || (host.writes && self.device_readers > 0)
            || self.hosts_conflict(host)
    }

    /// The lanes whose work keeps off a host that uses the buffer like `host`.
    fn lanes_in_conflict(&self, host: HostUse) -> impl Iterator<Item = u64> + '_ {
        let conflict = self.lanes.iter().filter(move |(_, writes)| *writes || host.writes);
        conflict.map(|(lane, _)| *lane)
    }
}

/// How the host uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostUse {
    pub(super) writes: bool,
    pub(super) is_map: bool,
    /// The bytes must be what they should be: no task that should have written them failed.
    pub(super) is_sound: bool,
    /// Who made it.
    pub(super) thread: ThreadId,
}

impl HostUse {
    pub(super) fn new(writes: bool, is_map: bool) -> Self {
        Self { writes, is_map, is_sound: true, thread: current().id() }
    }
}

/// A promise to work that uses a buffer: its memory exists, and the host keeps off until the lease
/// is dropped.
#[derive(Debug)]
pub struct Lease {
    buffer: Buffer,
    writes: bool,
    lane: u64,
}

impl Lease {
    pub(super) fn new(buffer: Buffer, writes: bool, lane: u64) -> Result<Self, DeviceError> {
        buffer.allocate()?;
        let uses = &buffer.0.uses;
        let mut counts = uses.lock();
        loop {
            counts = uses.vacate(&buffer, counts, Deadline::NEVER, true)?;
            let host_conflicts = counts.host_writer || (writes && counts.host_readers > 0);
            if !host_conflicts {
                break;
            }
            if counts.maps > 0 {
                return Err(DeviceError::Mapped { buffer: buffer.id() });
            }
            // A read or write of the host is under way: it ends by itself.
            counts = uses.sleep(counts, None);
        }
        counts.lease(writes, lane);
        drop(counts);
        Ok(Self { buffer, writes, lane })
    }

    /// A lease for work of whoever has claimed the buffer: the claim keeps everybody else off, so
    /// there is nobody to wait for.
    pub(super) fn under_claim(
        buffer: Buffer,
        writes: bool,
        lane: u64,
    ) -> Result<Self, DeviceError> {
        buffer.allocate()?;
        let mut counts = buffer.0.uses.lock();
        counts.lease(writes, lane);
        drop(counts);
        Ok(Self { buffer, writes, lane })
    }

    /// The buffer.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Whether the work may write.
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// The id of the lane whose work uses the buffer.
    pub fn lane(&self) -> u64 {
        self.lane
    }

    /// The buffer's memory.
    pub fn memory(&self) -> &dyn Memory {
        &**self.buffer.0.memory.get().expect("a lease is given only when there is memory")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let uses = &self.buffer.0.uses;
        let mut counts = uses.lock();
        counts.end_lease(self.writes, self.lane);
        uses.wake(counts);
    }
}

/// A host that waits for a buffer.
struct HostWait {
    buffer: Buffer,
    host: HostUse,
}

impl Obstacle for HostWait {
    fn is_stuck(&self, stopped: &Stopped<'_>) -> bool {
        let counts = self.buffer.0.uses.lock();
        let held_by = |thread: &ThreadId| stopped.contains(*thread);
        let runs = |lane: u64| stopped.tasks(LANES).any(|stopped| stopped == lane);
        (counts.hosts_conflict(self.host) && counts.mapped_by.iter().any(held_by))
            || counts.lanes_in_conflict(self.host).any(runs)
    }

    fn wake(&self) {
        let uses = &self.buffer.0.uses;
        let mut counts = uses.lock();
        counts.wakes += 1;
        uses.wake(counts);
    }
}

impl Uses {
    /// Makes room for `count` leases at a time.
    pub(super) fn reserve(&self, count: usize) {
        let mut counts = self.lock();
        let missing = count.saturating_sub(counts.lanes.len());
        counts.lanes.reserve(missing);
    }

    /// Waits for work that conflicts with `host`, then keeps new such work off until
    /// [`Uses::leave`].
    pub(super) fn enter(
        &self,
        buffer: &Buffer,
        host: HostUse,
        deadline: Deadline,
    ) -> Result<(), DeviceError> {
        let began = Instant::now();
        let mut counts = self.lock();
        loop {
            counts = self.vacate(buffer, counts, deadline, host.is_sound)?;
            if !counts.conflict(host) {
                break;
            }
            // A run of a plan waits for its lanes, and so does the thread that made it.
            let principal = blocked::acts_for();
            let own = |thread: &ThreadId| *thread == host.thread || Some(*thread) == principal;
            if counts.hosts_conflict(host) && counts.mapped_by.iter().any(own) {
                return Err(DeviceError::MappedByCaller { buffer: buffer.id() });
            }
            // Work of a lane runs in order: what is queued behind the work that asks cannot end
            // before it.
            let own = |lane: &u64| blocked::runs(|held| held == (LANES, *lane));
            if let Some(lane) = counts.lanes_in_conflict(host).find(own) {
                return Err(DeviceError::UsedByCaller { buffer: buffer.id(), lane });
            }
            if deadline.has_passed() {
                let (buffer, waited) = (buffer.id(), began.elapsed());
                return Err(DeviceError::BufferBusy { buffer, waited });
            }
            let left = deadline.instant().map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some() || (counts.maps == 0 && !blocked::holds_anything()) {
                counts = self.sleep(counts, left);
                continue;
            }
            let seen = counts.wakes;
            drop(counts);
            let wait = Arc::new(HostWait { buffer: buffer.clone(), host });
            let id = buffer.id();
            let entered =
                blocked::block(wait).map_err(|_| DeviceError::WaitsInCircle { buffer: id })?;
            counts = self.lock();
            if counts.conflict(host) && counts.wakes == seen {
                counts = self.sleep(counts, None);
            }
            drop(counts);
            drop(entered);
            counts = self.lock();
        }
        match host.writes {
            true => counts.host_writer = true,
            false => counts.host_readers += 1,
        }
        if host.is_map {
            counts.maps += 1;
            counts.mapped_by.push(host.thread);
            blocked::guard_opened();
        }
        Ok(())
    }

    /// Ends what [`Uses::enter`] began.
    pub(super) fn leave(&self, host: HostUse) {
        let mut counts = self.lock();
        match host.writes {
            true => counts.host_writer = false,
            false => counts.host_readers -= 1,
        }
        if host.is_map {
            counts.maps -= 1;
            let maker = counts.mapped_by.iter().position(|&thread| thread == host.thread);
            counts.mapped_by.swap_remove(maker.expect("noted when it was made"));
            blocked::guard_dropped();
        }
        self.wake(counts);
    }

    /// Has the buffer vacated where its home occupies it, which takes until no task uses it.
    fn vacate<'a>(
        &'a self,
        buffer: &Buffer,
        mut counts: MutexGuard<'a, Counts>,
        deadline: Deadline,
        is_sound: bool,
    ) -> Result<MutexGuard<'a, Counts>, DeviceError> {
        if counts.is_revoked {
            return Err(DeviceError::LoanEnded { buffer: buffer.id() });
        }
        while let Some(at_home) = counts.home.as_ref().filter(|at_home| at_home.is_occupied) {
            let (home, number) = (at_home.home.clone(), at_home.number);
            drop(counts);
            home.vacate(buffer.id(), number, deadline, is_sound)?;
            counts = self.lock();
        }
        Ok(counts)
    }

    /// Returns `false` if there is a home already.
    pub(super) fn set_home(&self, at_home: AtHome) -> bool {
        let mut counts = self.lock();
        let is_free = counts.home.is_none();
        if is_free {
            counts.home = Some(at_home);
        }
        is_free
    }

    /// Refuses every use from now on.
    pub(super) fn revoke(&self) {
        self.lock().is_revoked = true;
    }

    pub(super) fn is_bound(&self) -> bool {
        self.lock().home.as_ref().is_some_and(|at_home| at_home.is_bound)
    }

    pub(super) fn is_occupied(&self) -> bool {
        self.lock().home.as_ref().is_some_and(|at_home| at_home.is_occupied)
    }

    pub(super) fn take_home(&self) -> Option<AtHome> {
        self.lock().home.take()
    }

    pub(super) fn set_occupied(&self, is_occupied: bool) {
        if let Some(at_home) = &mut self.lock().home {
            at_home.is_occupied = is_occupied;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        lock(&self.counts)
    }

    fn sleep<'a>(
        &self,
        mut counts: MutexGuard<'a, Counts>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, Counts> {
        counts.sleepers += 1;
        let mut counts = match left {
            None => ignore_poison(self.changed.wait(counts)),
            Some(left) => {
                let woken = self.changed.wait_timeout(counts, left);
                ignore_poison(woken).0
            }
        };
        counts.sleepers -= 1;
        counts
    }

    fn wake(&self, counts: MutexGuard<'_, Counts>) {
        let anybody = counts.sleepers > 0;
        drop(counts);
        if anybody {
            self.changed.notify_all();
        }
    }
}
