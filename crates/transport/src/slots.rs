//! Slots that are filled and emptied outside of a call, by lanes, which complete later.
//!
//! A claimed slot is a value: [`FreeSlot`] is the exclusive right to write one, [`Arrival`] the
//! right to read one. Only an endpoint makes them, each slot is behind at most one of them, and
//! sending or dropping one ends its right. So no order of calls lets two threads or two PEs use a
//! slot at once.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::board::{Board, CLAIMED, FREE};
use super::{Failure, Header};

/// The slots of a group, where its PEs reach them in place.
///
/// [`DataPlane::try_send`](super::DataPlane::try_send) and
/// [`try_receive`](super::DataPlane::try_receive) claim a slot, use it and end the claim in one
/// call. Here these are steps of their own.
pub trait Slots: Send + Sync {
    /// Claims a slot of this PE that holds no message; `None` if there is none.
    fn claim_free(&self) -> Option<FreeSlot>;

    /// Sends the first `bytes` bytes of `slot` to `peer`.
    ///
    /// # Panics
    /// If the slot is another endpoint's or shorter than `bytes`, or there is no such peer.
    fn publish(&self, slot: FreeSlot, peer: usize, bytes: usize, header: Header);

    /// Returns the number of messages from `peer` that have arrived and are not claimed.
    fn waiting(&self, peer: usize) -> u64;

    /// Claims the next message from `peer`, if it has arrived. Messages are claimed in the order in
    /// which they were sent.
    fn claim_arrived(&self, peer: usize) -> Result<Option<Arrival>, Failure>;
}

/// A slot of this PE that is claimed and holds no message.
///
/// Dropping it makes the slot free again.
pub struct FreeSlot {
    pub(crate) board: Board,
    pub(crate) rank: usize,
    pub(crate) slot: usize,
    /// Whether its message was sent: the slot is then its receiver's.
    pub(crate) is_sent: bool,
}

impl FreeSlot {
    /// Returns where the slot is.
    pub fn memory(&self) -> SlotMemory {
        SlotMemory::new(&self.board, self.rank, self.slot)
    }

    /// The whole slot.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the slot lies within the board, which this value keeps mapped; it is claimed by
        // this value alone and holds no message, so nobody else touches it.
        unsafe {
            let SlotMemory { start, bytes, .. } = self.memory();
            std::slice::from_raw_parts_mut(start.as_ptr(), bytes)
        }
    }
}

impl Drop for FreeSlot {
    fn drop(&mut self) {
        if !self.is_sent {
            // Release: the next claim happens after the last write of this one.
            self.board.busy(self.rank, self.slot).store(FREE, Ordering::Release);
            self.board.member(self.rank).event.wake_all();
        }
    }
}

impl fmt::Debug for FreeSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FreeSlot({} of PE {})", self.slot, self.rank)
    }
}

/// A message that has arrived and is claimed.
///
/// Dropping it gives the slot back to the sender.
pub struct Arrival {
    pub(crate) board: Board,
    pub(crate) sender: usize,
    pub(crate) slot: usize,
    pub(crate) bytes: usize,
    pub(crate) header: Header,
}

impl Arrival {
    /// What travels beside the bytes.
    pub fn header(&self) -> Header {
        self.header
    }

    /// Returns where the slot is.
    pub fn memory(&self) -> SlotMemory {
        SlotMemory::new(&self.board, self.sender, self.slot)
    }

    /// The bytes of the message.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the slot lies within the board, which this value keeps mapped; the length was
        // checked when the message was claimed; the sender leaves the slot alone until this value
        // is dropped.
        unsafe { std::slice::from_raw_parts(self.memory().start.as_ptr(), self.bytes) }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        // Release: the sender writes the slot after this PE has read the last byte.
        self.board.busy(self.sender, self.slot).store(FREE, Ordering::Release);
        self.board.member(self.sender).event.wake_all();
    }
}

impl fmt::Debug for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arrival({} bytes from PE {}, {:?})", self.bytes, self.sender, self.header)
    }
}

/// Where a slot is.
pub struct SlotMemory {
    /// Its first byte, aligned to a page.
    pub start: NonNull<u8>,
    /// Its size.
    pub bytes: usize,
    /// Keeps it mapped.
    pub keep: Arc<dyn Any + Send + Sync>,
}

impl SlotMemory {
    fn new(board: &Board, rank: usize, slot: usize) -> Self {
        let start = NonNull::new(board.slot(rank, slot)).expect("a board is never at address zero");
        Self { start, bytes: board.shape().slot_bytes, keep: board.keep() }
    }
}

/// Claims a slot of `rank` that is free.
pub(crate) fn claim(board: &Board, rank: usize) -> Option<FreeSlot> {
    let is_claimed = |slot: &usize| {
        let busy = board.busy(rank, *slot);
        // Read first: a failed exchange would take the line from the receiver that is about to
        // clear it. Acquire: the receiver has read the last byte before it cleared the flag.
        busy.load(Ordering::Relaxed) == FREE
            && busy.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    let slot = (0..board.shape().depth).find(is_claimed)?;
    Some(FreeSlot { board: board.clone(), rank, slot, is_sent: false })
}
