//! Slots that are filled and emptied outside of a call: by lanes, which complete some time after they were told.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Failure, Header};

/// The slots of a group, where its PEs reach them in place.
///
/// [`Transport::try_send`](super::Transport::try_send) finds a slot, has it filled and sends it in one call. Here these are
/// steps of their own, in this order, with the same rules: one at a time sends for a PE, and one at a time receives from each
/// peer.
pub trait Slots: Send + Sync {
    /// Where slot `slot` of PE `rank` is; it stays there while [`SlotPlace::keep`] lives.
    fn place(&self, rank: usize, slot: usize) -> SlotPlace;

    /// Whether slot `slot` of this PE holds no message; asked also while another thread publishes another slot.
    fn is_free(&self, slot: usize) -> bool;

    /// Sends what was written to slot `slot`, which was free, as a message of `bytes` to `peer`.
    fn publish(&self, slot: usize, peer: usize, bytes: usize, header: Header);

    /// How many messages from `peer` were released.
    fn released(&self, peer: usize) -> u64;

    /// Message number `number` from `peer`, counted from the first ever, if it has come.
    fn arrived(&self, peer: usize, number: u64) -> Result<Option<Arrival>, Failure>;

    /// Gives the slot of the oldest message from `peer`, which was read, back to it.
    fn release(&self, peer: usize, slot: usize);
}

/// Where a slot is.
#[derive(Clone)]
pub struct SlotPlace {
    /// Its first byte, aligned to a page.
    pub start: NonNull<u8>,
    /// Keeps the memory mapped.
    pub keep: Arc<dyn Any + Send + Sync>,
}

impl std::fmt::Debug for SlotPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SlotPlace({:?})", self.start)
    }
}

/// A message that has come and was not released yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The sender's slot.
    pub slot: usize,
    /// Bytes of the message.
    pub bytes: usize,
    /// What travels beside them.
    pub header: Header,
}
