//! Inboxes: where others put messages for this PE.
//!
//! Every PE has `depth` places for each sender, so that a sender knows by its own count which place
//! is free. Places that nobody uses cost address space and no memory.

use std::sync::Arc;

use syncline_sync::lock;

use crate::call::{Comm, RemoteMemory};
use crate::world::Shared;
use syncline_transport::{Failure, Shape};

/// Address space for inboxes on each PE; larger groups send messages.
const BYTES_MAX: usize = 8 << 30;

/// This PE's inbox, and the way into those of the others.
pub(crate) struct Inbox {
    pub memory: Arc<RemoteMemory>,
    depth: usize,
    stride: usize,
}

impl Inbox {
    /// The bytes that a group of this shape needs, unless that is too much.
    fn bytes(shape: Shape) -> Option<usize> {
        let stride = shape.slot_bytes.checked_next_multiple_of(4096)?;
        let bytes = stride.checked_mul(shape.depth)?.checked_mul(shape.size)?;
        (bytes <= BYTES_MAX).then_some(bytes)
    }

    /// Inboxes for a group, in memory that an earlier one has left if that is enough; all must call
    /// it. `None` where the library has no such memory on some PE, or the group is too large for
    /// it.
    pub(crate) fn open(
        world: &Shared,
        comm: Comm,
        shape: Shape,
        gather: impl Fn(u64) -> Result<Vec<u64>, Failure>,
    ) -> Result<Option<Self>, Failure> {
        let Some(bytes) = Self::bytes(shape) else { return Ok(None) };
        let mut kept = lock(&world.inbox);
        // Everyone has made the same ones before, and decides alike.
        let memory = match kept.clone().filter(|memory| memory.bytes >= bytes) {
            Some(memory) => Some(memory),
            None => RemoteMemory::allocate(comm, bytes, &world.turn()).ok().map(Arc::new),
        };
        let everyone = gather(memory.is_some().into())?;
        if everyone.contains(&0) {
            return Ok(None);
        }
        *kept = memory.clone();
        let stride = shape.slot_bytes.next_multiple_of(4096);
        Ok(memory.map(|memory| Self { memory, depth: shape.depth, stride }))
    }

    /// Where `sender` puts its message number `index`, in everyone's inbox.
    pub(crate) fn place(&self, sender: usize, index: u64) -> usize {
        (sender * self.depth + (index % self.depth as u64) as usize) * self.stride
    }
}
