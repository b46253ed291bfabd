//! The port between lanes and the transport: what the host functions on the slot, send, receive and
//! unpack lanes do.
//!
//! Where the transport has its slots in memory ([`Slots`]), lanes fill and empty those. Where it
//! copies messages on the way, the port has slots of its own, which a message is copied out of as
//! it is sent and into as it comes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use syncline_device::{Buffer, DeviceError};
use syncline_sync::{blocking, lock};

use super::super::pipeline::Run;
use super::super::program::{Message, Program, Segment};
use super::super::{Shards, verify};
use super::PipelineLanes;
use super::boxes::Memory;
use super::foreign::{Keep, foreign};
use syncline_transport::{
    Arrival, Failure, FreeSlot, Header, Phase, SlotMemory, Slots, Transport, Wait,
};

/// One PE's side of the transport during one refit.
///
/// Its host functions borrow the transport for `'static`: see [`Port::new`].
pub(super) struct Port {
    transport: &'static dyn Transport,
    slots: Option<&'static dyn Slots>,
    wait: Wait<'static>,
    program: Arc<Program>,
    targets: Arc<Shards>,
    /// Where the transport has none that can be filled in place: slots to send from, then slots to
    /// receive into.
    own: Vec<Buffer>,
    slots_in_use: Mutex<SlotsInUse>,
}

/// The transport's slots that a run has claimed.
#[derive(Default)]
struct SlotsInUse {
    /// Buffers over slots, by address.
    buffers: HashMap<usize, Buffer>,
    /// Slots that messages are packed into, by the position of the message.
    free: HashMap<usize, FreeSlot>,
    /// Messages that have come, by position.
    arrived: HashMap<usize, Arrival>,
}

/// What a receiver expects next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// Position among the messages that this PE receives.
    pub at: usize,
    pub peer: usize,
    /// Which slot of the port it comes to, where it is copied.
    pub own_slot: usize,
}

/// Where the boxes of a message lie in its receiver's memory, of a message that has nothing but
/// their checksums.
pub(super) struct Placed {
    pub starts: Vec<*const u8>,
    /// Keeps that memory mapped.
    pub _keep: Keep,
}

// SAFETY: addresses that are read by the one lane that is given them, while the refit keeps them
// valid.
unsafe impl Send for Placed {}

impl Port {
    /// A port for one refit.
    ///
    /// # Safety
    /// The caller keeps the transport and what the run's wait refers to until every lane that was
    /// given functions of the port has ended them.
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
        Self {
            transport,
            slots,
            wait,
            program: run.program.clone(),
            targets: run.targets.clone(),
            own: (0..own).map(|_| lanes.staging(shape.slot_bytes)).collect(),
            slots_in_use: Mutex::default(),
        }
    }

    /// The memory that message `at` is sent from: a slot that was claimed for it, or the port's own
    /// number `own_slot`.
    pub fn send_slot(&self, at: usize, own_slot: usize) -> Result<Memory, DeviceError> {
        if let Some(own) = self.own.get(own_slot) {
            return Memory::private(own);
        }
        let mut slots = self.slots_in_use();
        let slot = slots.free.get(&at).expect("claimed before the message is packed");
        let memory = slot.memory();
        Self::buffer(&mut slots, memory)
    }

    /// The memory of a message that has come.
    pub fn arrived_slot(&self, expected: &Expected) -> Result<Memory, DeviceError> {
        if let Some(own) = self.own.get(self.transport.shape().depth + expected.own_slot) {
            return Memory::private(own);
        }
        let mut slots = self.slots_in_use();
        let arrival = slots.arrived.get(&expected.at).expect("claimed before it is unpacked");
        let memory = arrival.memory();
        Self::buffer(&mut slots, memory)
    }

    fn slots_in_use(&self) -> MutexGuard<'_, SlotsInUse> {
        lock(&self.slots_in_use)
    }

    fn buffer(slots: &mut SlotsInUse, memory: SlotMemory) -> Result<Memory, DeviceError> {
        let SlotMemory { start, bytes, keep } = memory;
        let buffer = slots.buffers.entry(start.addr().get()).or_insert_with(|| {
            // SAFETY: `keep` keeps the slot mapped; it is used while it is claimed, and on this PE
            // in the order of the points between the lanes.
            unsafe { foreign(start, bytes, Some(keep)) }
        });
        Memory::private(buffer)
    }

    /// Gives back what is still claimed, when no lane uses it any more.
    pub fn give_back(&self) {
        let mut slots = self.slots_in_use();
        let claimed = (std::mem::take(&mut slots.free), std::mem::take(&mut slots.arrived));
        drop(slots);
        drop(claimed);
    }

    /// Waits for a slot for message `at`, while `peer` has all of them.
    pub fn wait_free(&self, at: usize, peer: usize) -> Result<(), DeviceError> {
        // A slot of the port itself was copied out of as its message was sent.
        let Some(slots) = self.slots else { return Ok(()) };
        loop {
            let seen = self.transport.bell();
            if let Some(slot) = slots.claim_free() {
                self.refuse_small(&slot)?;
                self.slots_in_use().free.insert(at, slot);
                return Ok(());
            }
            self.park(seen, peer)?;
        }
    }

    /// Fails the group where a slot is smaller than the shape says: lanes write it by its address.
    fn refuse_small(&self, slot: &FreeSlot) -> Result<(), DeviceError> {
        let (bytes, needed) = (slot.memory().bytes, self.transport.shape().slot_bytes);
        if bytes >= needed {
            return Ok(());
        }
        let message = format!("the transport has a slot of {bytes} bytes, not of {needed}");
        let rank = self.transport.rank();
        Err(failed(self.transport.fail(Failure::Local { rank, message })))
    }

    fn park(&self, seen: u32, peer: usize) -> Result<(), DeviceError> {
        let wait = self.wait.until(Phase::Transfer, peer);
        let _blocks = blocking::section();
        self.transport.park(seen, &wait).map_err(failed)
    }

    /// Sends message `at`: what was packed for it, or the sums of what was placed.
    pub fn publish(
        &self,
        at: usize,
        own_slot: usize,
        placed: Option<&Placed>,
    ) -> Result<(), DeviceError> {
        let message = &self.program.sends[at];
        let (peer, bytes) = (message.peer as usize, message.slot_bytes(placed.is_some()));
        let seal = |packed: &mut [u8]| match placed {
            None => message.seal_packed(packed),
            Some(placed) => {
                let sum = |segment| self.placed_sum(message, segment, placed);
                message.seal(packed, &message.segments.iter().map(sum).collect::<Vec<_>>())
            }
        };
        if let Some(slots) = self.slots {
            let slot = self.slots_in_use().free.remove(&at);
            let mut slot = slot.expect("claimed before the message was packed");
            // What was packed is complete: the function that calls this waited for it.
            let header = seal(&mut slot.bytes_mut()[..bytes]);
            slots.publish(slot, peer, bytes, header);
            return Ok(());
        }
        let start = self.start(&self.send_slot(at, own_slot)?);
        // SAFETY: the port's slot has room for every message, and what was packed into it is
        // complete, as above; the next message is packed into it after this one is sent.
        let packed = unsafe { std::slice::from_raw_parts_mut(start, bytes) };
        let header = seal(packed);
        let fill = &mut |place: &mut [u8]| {
            place.copy_from_slice(packed);
            header
        };
        let _blocks = blocking::section();
        self.transport.send(peer, bytes, fill, &self.wait).map_err(failed)
    }

    /// The sum of a segment that lies in its receiver's memory.
    fn placed_sum(&self, message: &Message, segment: &Segment, placed: &Placed) -> u32 {
        // SAFETY: who sends has waited until the boxes were written, who receives has the message
        // that says so, and nobody writes them after that.
        unsafe { verify::in_place(&self.program, message, segment, |at| placed.starts[at]) }
    }

    /// Waits for a message, and verifies it.
    pub fn receive(&self, expected: &Expected, placed: Option<&Placed>) -> Result<(), DeviceError> {
        let peer = expected.peer;
        let Some(slots) = self.slots else {
            let target = self.start(&self.arrived_slot(expected)?);
            let take = &mut |header: Header, message: &[u8]| {
                self.check(expected, placed, header, message)?;
                // SAFETY: the message has the size that was checked, for which the port's slot has
                // room, and the slot is free: the unpacking of the message before has ended before
                // this was submitted.
                unsafe {
                    std::ptr::copy_nonoverlapping(message.as_ptr(), target, message.len());
                }
                Ok(())
            };
            let _blocks = blocking::section();
            return self.transport.receive(peer, take, &self.wait).map_err(failed);
        };
        loop {
            let seen = self.transport.bell();
            if let Some(arrival) = slots.claim_arrived(peer).map_err(failed)? {
                let checked = self.check(expected, placed, arrival.header(), arrival.bytes());
                checked.map_err(|failure| failed(self.transport.fail(failure)))?;
                self.slots_in_use().arrived.insert(expected.at, arrival);
                return Ok(());
            }
            self.park(seen, peer)?;
        }
    }

    /// Gives a message's slot back to its sender.
    pub fn release(&self, at: usize) {
        let arrival = self.slots_in_use().arrived.remove(&at);
        drop(arrival);
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
