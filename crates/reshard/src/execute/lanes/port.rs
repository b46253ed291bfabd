//! The port between lanes and the transport: what the host functions on the send, receive and unpack lanes do.
//!
//! Where the transport has its slots in memory ([`Slots`]), lanes fill and empty those. Where it copies messages on the way,
//! the port has slots of its own, which a message is copied out of as it is sent and into as it comes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use syncline_device::{Buffer, DeviceError};

use super::PipelineLanes;
use super::boxes::Memory;
use super::foreign::foreign;
use crate::transport::{Arrival, Failure, Header, Phase, Slots, Transport, Wait};

/// One PE's side of the transport during one refit.
///
/// Its host functions borrow the transport for `'static`: see [`Port::new`].
pub(super) struct Port {
    transport: &'static dyn Transport,
    slots: Option<&'static dyn Slots>,
    wait: Wait<'static>,
    checksums: bool,
    /// Where the transport has none that can be filled in place: slots to send from, then slots to receive into.
    own: Vec<Buffer>,
    /// Buffers over the transport's slots, by PE and slot.
    places: Mutex<HashMap<(usize, usize), Buffer>>,
    /// Messages of each peer that were released before this refit.
    released: Vec<u64>,
}

/// What a receiver expects next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub peer: usize,
    /// Counts the messages of this peer in this refit.
    pub number: u64,
    pub bytes: usize,
    pub tag: u64,
    /// Which slot of the port it comes to, where it is copied.
    pub own_slot: usize,
}

impl Port {
    /// A port for one refit.
    ///
    /// # Safety
    /// The caller keeps the transport and what `wait` refers to until every lane that was given functions of the port has
    /// ended them.
    pub unsafe fn new(
        transport: &dyn Transport,
        wait: Wait<'_>,
        checksums: bool,
        lanes: &PipelineLanes,
    ) -> Self {
        // SAFETY: only the lifetimes change, and the caller promises that nothing outlives them.
        let (transport, wait) = unsafe {
            (
                std::mem::transmute::<&dyn Transport, &'static dyn Transport>(transport),
                std::mem::transmute::<Wait<'_>, Wait<'static>>(wait),
            )
        };
        let shape = transport.shape();
        let slots = transport.slots();
        let own = if slots.is_some() { 0 } else { 2 * shape.depth };
        let released = |peer| slots.map_or(0, |slots| slots.released(peer));
        Self {
            transport,
            slots,
            wait,
            checksums,
            own: (0..own).map(|_| lanes.staging(shape.slot_bytes)).collect(),
            places: Mutex::default(),
            released: (0..shape.size).map(released).collect(),
        }
    }

    /// The memory of slot `slot` to send from.
    pub fn send_slot(&self, slot: usize) -> Result<Memory, DeviceError> {
        match self.own.get(slot) {
            Some(own) => Memory::private(own),
            None => self.place(self.transport.rank(), slot),
        }
    }

    /// The memory of a message that has come.
    pub fn arrived_slot(&self, expected: &Expected, slot: usize) -> Result<Memory, DeviceError> {
        match self.own.get(self.transport.shape().depth + expected.own_slot) {
            Some(own) => Memory::private(own),
            None => self.place(expected.peer, slot),
        }
    }

    fn place(&self, rank: usize, slot: usize) -> Result<Memory, DeviceError> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = self.slots.expect("without slots in memory the port has its own");
        let buffer = places.entry((rank, slot)).or_insert_with(|| {
            let place = slots.place(rank, slot);
            // SAFETY: `keep` keeps the slot mapped; who sends and who receives use it in turns, by the protocol of
            // slots, and on this PE by the points between the lanes.
            unsafe { foreign(place.start, self.transport.shape().slot_bytes, Some(place.keep)) }
        });
        Memory::private(buffer)
    }

    /// Waits until slot `slot`, whose last message went to `peer`, is free.
    pub fn wait_free(&self, slot: usize, peer: usize) -> Result<(), DeviceError> {
        let Some(slots) = self.slots else { return Ok(()) };
        loop {
            let seen = self.transport.bell();
            if slots.is_free(slot) {
                return Ok(());
            }
            self.park(seen, peer)?;
        }
    }

    fn park(&self, seen: u32, peer: usize) -> Result<(), DeviceError> {
        let wait = self.wait.until(Phase::Transfer, peer);
        self.transport.park(seen, &wait).map_err(failed)
    }

    /// Sends what was packed into slot `slot`.
    pub fn publish(
        &self,
        slot: usize,
        peer: usize,
        bytes: usize,
        tag: u64,
    ) -> Result<(), DeviceError> {
        let start = self.start(&self.send_slot(slot)?);
        // SAFETY: the slot has room for every message, and what was packed into it is complete: the function that
        // calls this waited for it.
        let packed = unsafe { std::slice::from_raw_parts(start, bytes) };
        let header = Header { tag, checksum: self.checksum(packed) };
        match self.slots {
            Some(slots) => slots.publish(slot, peer, bytes, header),
            None => {
                let fill = &mut |place: &mut [u8]| {
                    place.copy_from_slice(packed);
                    header
                };
                self.transport.send(peer, bytes, fill, &self.wait).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Waits for a message, verifies it, and says in which slot of its sender it is.
    pub fn receive(&self, expected: &Expected) -> Result<usize, DeviceError> {
        let peer = expected.peer;
        let Some(slots) = self.slots else {
            let target = self.start(&self.arrived_slot(expected, 0)?);
            let take = &mut |header: Header, message: &[u8]| {
                self.check(expected, header, message)?;
                // SAFETY: the port's slot has room for every message, and is free: the unpacking of the message before
                // has ended before this was submitted.
                unsafe {
                    std::ptr::copy_nonoverlapping(message.as_ptr(), target, message.len());
                }
                Ok(())
            };
            self.transport.receive(peer, take, &self.wait).map_err(failed)?;
            return Ok(0);
        };
        loop {
            let seen = self.transport.bell();
            let number = self.released[peer] + expected.number;
            if let Some(Arrival { slot, bytes, header }) =
                slots.arrived(peer, number).map_err(failed)?
            {
                let start = self.start(&self.place(peer, slot)?);
                // SAFETY: the transport checked that the message fits its slot, which its sender does not write
                // until it is released.
                let message = unsafe { std::slice::from_raw_parts(start, bytes) };
                let checked = self.check(expected, header, message);
                checked.map_err(|failure| failed(self.transport.fail(failure)))?;
                return Ok(slot);
            }
            self.park(seen, peer)?;
        }
    }

    /// Gives a message's slot back to its sender.
    pub fn release(&self, peer: usize, slot: usize) {
        if let Some(slots) = self.slots {
            slots.release(peer, slot);
        }
    }

    fn start(&self, memory: &Memory) -> *mut u8 {
        match memory {
            Memory::Host { start, .. } => *start,
            Memory::Device { .. } => unreachable!("slots are in host memory"),
        }
    }

    fn checksum(&self, bytes: &[u8]) -> u32 {
        if self.checksums { crc32fast::hash(bytes) } else { 0 }
    }

    fn check(&self, expected: &Expected, header: Header, message: &[u8]) -> Result<(), Failure> {
        let (sender, receiver) = (expected.peer, self.transport.rank());
        if message.len() != expected.bytes || header.tag != expected.tag {
            return Err(Failure::SizeMismatch {
                sender,
                receiver,
                tag: header.tag,
                sent_bytes: message.len() as u64,
                expected_bytes: expected.bytes as u64,
            });
        }
        let got = self.checksum(message);
        if got != header.checksum {
            let (tag, expected) = (header.tag, header.checksum);
            return Err(Failure::Corrupt { sender, receiver, tag, expected, got });
        }
        Ok(())
    }
}

/// A failure of the group as lanes carry it; the group has the failure itself.
fn failed(failure: Failure) -> DeviceError {
    DeviceError::Cancelled { reason: failure.to_string().into() }
}
