//! The port between lanes and the transport: what the host functions on the slot, send, receive and unpack lanes do.
//!
//! Where the transport has its slots in memory ([`Slots`]), lanes fill and empty those. Where it copies messages on the way,
//! the port has slots of its own, which a message is copied out of as it is sent and into as it comes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use syncline_device::{Buffer, DeviceError};

use super::super::pipeline::Run;
use super::super::program::{Message, Program, Segment};
use super::super::{Shards, verify};
use super::PipelineLanes;
use super::boxes::Memory;
use super::foreign::{Keep, foreign};
use crate::transport::{Arrival, Failure, Header, Phase, Slots, Transport, Wait};

/// One PE's side of the transport during one refit.
///
/// Its host functions borrow the transport for `'static`: see [`Port::new`].
pub(super) struct Port {
    transport: &'static dyn Transport,
    slots: Option<&'static dyn Slots>,
    wait: Wait<'static>,
    program: Arc<Program>,
    targets: Arc<Shards>,
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
    /// Position among the messages that this PE receives.
    pub at: usize,
    pub peer: usize,
    /// Counts the messages of this peer in this refit.
    pub number: u64,
    /// Which slot of the port it comes to, where it is copied.
    pub own_slot: usize,
}

/// Where the boxes of a message lie in its receiver's memory, of a message that has nothing but their checksums.
pub(super) struct Placed {
    pub starts: Vec<*const u8>,
    /// Keeps that memory mapped.
    pub _keep: Keep,
}

// SAFETY: addresses that are read by the one lane that is given them, while the refit keeps them valid.
unsafe impl Send for Placed {}

impl Port {
    /// A port for one refit.
    ///
    /// # Safety
    /// The caller keeps the transport and what the run's wait refers to until every lane that was given functions of the port has
    /// ended them.
    pub unsafe fn new(run: &Run<'_>, lanes: &PipelineLanes) -> Self {
        // SAFETY: only the lifetimes change, and the caller promises that nothing outlives them.
        let (transport, wait) = unsafe {
            (
                std::mem::transmute::<&dyn Transport, &'static dyn Transport>(run.transport),
                std::mem::transmute::<Wait<'_>, Wait<'static>>(run.control.wait),
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
            program: run.program.clone(),
            targets: run.targets.clone(),
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

    /// Waits until slot `slot`, whose last message was sent to `peer`, is free.
    pub fn wait_free(&self, slot: usize, peer: usize) -> Result<(), DeviceError> {
        // A slot of the port itself was copied out of as its message was sent.
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

    /// Sends message `at` from slot `slot`: what was packed into it, or the sums of what was placed.
    pub fn publish(
        &self,
        at: usize,
        slot: usize,
        placed: Option<&Placed>,
    ) -> Result<(), DeviceError> {
        let message = &self.program.sends[at];
        let (peer, bytes) = (message.peer as usize, message.slot_bytes(placed.is_some()));
        let start = self.start(&self.send_slot(slot)?);
        // SAFETY: the slot has room for every message, is this PE's until it is sent, and what was packed into it is
        // complete: the function that calls this waited for it.
        let packed = unsafe { std::slice::from_raw_parts_mut(start, bytes) };
        let header = match placed {
            None => message.seal_packed(packed),
            Some(placed) => {
                let sum = |segment| self.placed_sum(message, segment, placed);
                message.seal(packed, &message.segments.iter().map(sum).collect::<Vec<_>>())
            }
        };
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

    /// The sum of a segment that lies in its receiver's memory.
    fn placed_sum(&self, message: &Message, segment: &Segment, placed: &Placed) -> u32 {
        // SAFETY: who sends has waited until the boxes were written, who receives has the message that says so, and
        // nobody writes them after that.
        unsafe { verify::in_place(&self.program, message, segment, |at| placed.starts[at]) }
    }

    /// Waits for a message, verifies it, and says in which slot of its sender it is.
    pub fn receive(
        &self,
        expected: &Expected,
        placed: Option<&Placed>,
    ) -> Result<usize, DeviceError> {
        let peer = expected.peer;
        let Some(slots) = self.slots else {
            let target = self.start(&self.arrived_slot(expected, 0)?);
            let take = &mut |header: Header, message: &[u8]| {
                self.check(expected, placed, header, message)?;
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
                let checked = self.check(expected, placed, header, message);
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

    fn check(
        &self,
        expected: &Expected,
        placed: Option<&Placed>,
        header: Header,
        slot: &[u8],
    ) -> Result<(), Failure> {
        let (message, receiver) = (&self.program.receives[expected.at], self.transport.rank());
        let (is_placed, came) = (placed.is_some(), (header, slot));
        message.verify(&self.targets, receiver, is_placed, came, |segment| match placed {
            None => verify::in_slot(segment, slot),
            Some(placed) => self.placed_sum(message, segment, placed),
        })
    }
}

/// A failure of the group as lanes carry it; the group has the failure itself.
fn failed(failure: Failure) -> DeviceError {
    DeviceError::Cancelled { reason: failure.to_string().into() }
}
