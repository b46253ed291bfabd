//! Delta refits: what has changed since the last refit, instead of everything.
//!
//! Sender and receiver of a message both keep it as it was sent last: packed, in the element types
//! used on the way. So the sender compares with exactly what the receiver has, whatever the layouts
//! and conversions, and sends the units that differ; the receiver changes its copy and unpacks all
//! of it. A message whose changes would be no shorter is sent whole.
//!
//! What both keep is of one refit, which every PE has committed; its number goes with the ticket.
//! Where two PEs have other numbers, because one was not there, messages between them come whole.
//! After a refit that failed no PE keeps anything.

mod encode;

use std::sync::Mutex;

use syncline_sync::lock;
use syncline_transport::{Failure, Header, Transport};

use super::Shards;
use super::program::{Message, Program};
use crate::sums;
use encode::Compared;

/// Tags of messages that have changes only have this bit, which numbers of batches leave free.
const CHANGES: u64 = 1 << 63;

/// The messages of one PE as they were last.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The refit that they are of, counted from 1; 0 if of none.
    version: u64,
    sent: Vec<Mutex<Vec<u8>>>,
    received: Vec<Mutex<Vec<u8>>>,
}

impl Kept {
    /// The refit that everything kept is of; 0 if nothing is kept.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.sent.iter().chain(&self.received).map(|kept| lock(kept).len()).sum()
    }
}

/// A delta refit under way.
#[derive(Debug)]
pub(crate) struct Delta {
    kept: Kept,
    /// By PE: the refit that it keeps the messages of.
    versions: Vec<u64>,
}

/// The form in which a message is sent.
#[derive(Debug)]
pub(super) enum Wanted {
    Whole,
    Changes { encoded: Vec<u8>, sums: Vec<u32> },
}

impl Wanted {
    /// Bytes of the slot that it takes.
    pub fn slot_bytes(&self, message: &Message) -> usize {
        match self {
            Self::Whole => message.slot_bytes(false),
            Self::Changes { encoded, sums } => encoded.len() + sums::bytes_behind(sums.len()),
        }
    }
}

impl Delta {
    /// The refit that every member of `transport` has entered, with what this PE keeps.
    pub fn new(kept: Kept, program: &Program, transport: &dyn Transport) -> Self {
        let mut versions = vec![0; transport.shape().size];
        for member in transport.members() {
            versions[member] = transport.ticket(member).version;
        }
        let is_of_program = kept.version > 0;
        let kept = if is_of_program { kept } else { Kept::of(program) };
        Self { kept, versions }
    }

    /// Returns the messages to keep, once the refit is committed.
    pub fn commit(self) -> Kept {
        // The same on every PE, also on a PE that keeps something for the first time.
        let version = self.versions.iter().max().copied().unwrap_or(0) + 1;
        Kept { version, ..self.kept }
    }

    /// Returns `true` if this PE and `peer` keep the same.
    fn is_kept_with(&self, peer: u32) -> bool {
        let version = self.kept.version;
        version > 0 && self.versions[peer as usize] == version
    }

    /// Decides what to send of message `at`, which `fill` packs, and keeps it.
    pub(super) fn prepare(
        &self,
        at: usize,
        message: &Message,
        fill: impl FnOnce(&mut [u8]),
    ) -> (Wanted, Compared) {
        let mut kept = lock(&self.kept.sent[at]);
        let is_new = kept.is_empty();
        kept.resize(message.bytes, 0);
        let whole = Compared { changed_bytes: message.bytes as u64, is_dense: true };
        if is_new || !self.is_kept_with(message.peer) {
            fill(&mut kept);
            return (Wanted::Whole, whole);
        }
        // The gaps between the pieces stay zero.
        let (mut packed, mut encoded) = (vec![0; message.bytes], Vec::new());
        fill(&mut packed);
        let compared = encode::take_changes(&packed, &mut kept, message.unit_bytes, &mut encoded);
        if compared.is_dense {
            return (Wanted::Whole, compared);
        }
        let sums = message.segments.iter().map(|each| super::verify::in_slot(each, &packed));
        let sums = sums.collect();
        (Wanted::Changes { encoded, sums }, compared)
    }

    /// Writes message `at` into `slot`, in the form that was chosen, and returns its header.
    pub(super) fn write(
        &self,
        at: usize,
        message: &Message,
        wanted: &Wanted,
        slot: &mut [u8],
    ) -> Header {
        match wanted {
            Wanted::Whole => {
                slot[..message.bytes].copy_from_slice(&lock(&self.kept.sent[at]));
                message.seal_packed(slot)
            }
            Wanted::Changes { encoded, sums } => {
                slot[..encoded.len()].copy_from_slice(encoded);
                let header = message.seal(slot, sums);
                Header { tag: header.tag | CHANGES, ..header }
            }
        }
    }

    /// Takes message `at`, and has `empty` unpack all of it. Returns the bytes that changed.
    pub(super) fn take(
        &self,
        at: usize,
        message: &Message,
        (targets, receiver): (&Shards, usize),
        (header, slot): (Header, &[u8]),
        empty: impl FnOnce(&[u8]),
    ) -> Result<Compared, Failure> {
        let mut kept = lock(&self.kept.received[at]);
        if header.tag & CHANGES == 0 {
            let sum = |segment: &_| super::verify::in_slot(segment, slot);
            message.verify(targets, receiver, false, (header, slot), sum)?;
            kept.clear();
            kept.extend_from_slice(&slot[..message.bytes]);
            empty(&kept);
            let changed_bytes = message.bytes as u64;
            return Ok(Compared { changed_bytes, is_dense: true });
        }
        let header = Header { tag: header.tag & !CHANGES, ..header };
        let behind = sums::bytes_behind(message.segments.len());
        let encoded = slot.len().checked_sub(behind).map(|end| &slot[..end]);
        let is_expected = header.tag == message.tag
            && self.is_kept_with(message.peer)
            && kept.len() == message.bytes;
        let applied = encoded
            .filter(|_| is_expected)
            .and_then(|encoded| encode::apply(encoded, message.unit_bytes, &mut kept));
        let Some(changed_bytes) = applied else {
            let message = format!(
                "PE {} has sent changes ({} bytes) that do not fit what this PE keeps",
                message.peer,
                slot.len()
            );
            return Err(Failure::Local { rank: receiver, message });
        };
        message.verify_sums(
            targets,
            receiver,
            sums::sent(header, slot, message.segments.len()),
            |segment| super::verify::in_slot(segment, &kept),
        )?;
        empty(&kept);
        Ok(Compared { changed_bytes, is_dense: false })
    }
}

impl Kept {
    /// Nothing yet, with a place for each message.
    fn of(program: &Program) -> Self {
        let places = |messages: &[Message]| messages.iter().map(|_| Mutex::default()).collect();
        Self { version: 0, sent: places(&program.sends), received: places(&program.receives) }
    }
}
