//! Who uses a buffer at the moment: leases of work, maps and short accesses of the host.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{ThreadId, current};
use std::time::{Duration, Instant};

use super::Buffer;
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
    host_readers: u32,
    host_writer: bool,
    /// Those of the host's that last as long as the caller likes: work is refused instead of waiting for them.
    maps: u32,
    /// The threads that made them: one of these that waited for a map to be dropped would wait for itself.
    mapped_by: Vec<ThreadId>,
    sleepers: u32,
}

/// How the host uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostUse {
    pub(super) writes: bool,
    pub(super) is_map: bool,
    /// Who made it.
    pub(super) thread: ThreadId,
}

impl HostUse {
    pub(super) fn new(writes: bool, is_map: bool) -> Self {
        Self { writes, is_map, thread: current().id() }
    }
}

/// A promise to work that uses a buffer: its memory exists, and the host keeps off until the lease is dropped.
#[derive(Debug)]
pub struct Lease {
    buffer: Buffer,
    writes: bool,
}

impl Lease {
    pub(super) fn new(buffer: Buffer, writes: bool) -> Result<Self, DeviceError> {
        buffer.allocate()?;
        let uses = &buffer.0.uses;
        let mut counts = uses.lock();
        loop {
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
        match writes {
            true => counts.device_writers += 1,
            false => counts.device_readers += 1,
        }
        drop(counts);
        Ok(Self { buffer, writes })
    }

    /// A lease for work of whoever has claimed the buffer: the claim keeps everybody else off, so there is nobody to
    /// wait for.
    pub(super) fn under_claim(buffer: Buffer, writes: bool) -> Result<Self, DeviceError> {
        buffer.allocate()?;
        let mut counts = buffer.0.uses.lock();
        match writes {
            true => counts.device_writers += 1,
            false => counts.device_readers += 1,
        }
        drop(counts);
        Ok(Self { buffer, writes })
    }

    /// The buffer.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Whether the work may write.
    pub fn writes(&self) -> bool {
        self.writes
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
        match self.writes {
            true => counts.device_writers -= 1,
            false => counts.device_readers -= 1,
        }
        uses.wake(counts);
    }
}

impl Uses {
    /// Waits for work that conflicts with `host`, then keeps new such work off until [`Uses::leave`].
    pub(super) fn enter(
        &self,
        buffer: &Buffer,
        host: HostUse,
        deadline: Deadline,
    ) -> Result<(), DeviceError> {
        let began = Instant::now();
        let mut counts = self.lock();
        while counts.device_writers > 0
            || counts.host_writer
            || (host.writes && (counts.device_readers > 0 || counts.host_readers > 0))
        {
            let host_conflicts = counts.host_writer || (host.writes && counts.host_readers > 0);
            if host_conflicts && counts.mapped_by.contains(&host.thread) {
                return Err(DeviceError::MappedByCaller { buffer: buffer.id() });
            }
            if deadline.has_passed() {
                let (buffer, waited) = (buffer.id(), began.elapsed());
                return Err(DeviceError::BufferBusy { buffer, waited });
            }
            let left = deadline.instant().map(|at| at.saturating_duration_since(Instant::now()));
            counts = self.sleep(counts, left);
        }
        match host.writes {
            true => counts.host_writer = true,
            false => counts.host_readers += 1,
        }
        if host.is_map {
            counts.maps += 1;
            counts.mapped_by.push(host.thread);
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
        }
        self.wake(counts);
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'a>(
        &self,
        mut counts: MutexGuard<'a, Counts>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, Counts> {
        counts.sleepers += 1;
        let mut counts = match left {
            None => self.changed.wait(counts).unwrap_or_else(PoisonError::into_inner),
            Some(left) => {
                let woken = self.changed.wait_timeout(counts, left);
                woken.unwrap_or_else(PoisonError::into_inner).0
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
