//! Verifying messages: their size, and the checksum of each segment.
//!
//! A segment's sum is of its bytes as they were sent. Through a slot that is in the element type
//! used on the way; where the sender writes the receiver's memory itself, in the receiver's. Such a
//! message has the sums alone: it says that the segments lie in their places, and the receiver sums
//! what it finds there, so that whatever happened to it since is noticed.

use super::Shards;
use super::program::{Message, Program, Segment};
use crate::sums;
use syncline_transport::{Corrupted, Failure, Header};

impl Message {
    /// Bytes of the slot that it takes; where its segments lie in the receiver's memory, those of
    /// their sums.
    pub fn slot_bytes(&self, is_placed: bool) -> usize {
        let segments = if is_placed { 0 } else { self.bytes };
        segments + sums::bytes_behind(self.segments.len())
    }

    /// Compares what `receiver` was sent with what it expects.
    ///
    /// `sum` computes the sum of a segment as it arrived.
    pub fn verify(
        &self,
        targets: &Shards,
        receiver: usize,
        is_placed: bool,
        (header, slot): (Header, &[u8]),
        sum: impl FnMut(&Segment) -> u32,
    ) -> Result<(), Failure> {
        let sender = self.peer as usize;
        let (sent_bytes, expected_bytes) = (slot.len() as u64, self.slot_bytes(is_placed) as u64);
        if sent_bytes != expected_bytes || header.tag != self.tag {
            let tag = header.tag;
            let mismatch =
                Failure::SizeMismatch { sender, receiver, tag, sent_bytes, expected_bytes };
            return Err(mismatch);
        }
        let sent = sums::sent(header, slot, self.segments.len());
        self.verify_sums(targets, receiver, sent, sum)
    }

    /// Compares the sums of the segments alone.
    pub fn verify_sums(
        &self,
        targets: &Shards,
        receiver: usize,
        sent: impl Iterator<Item = u32>,
        mut sum: impl FnMut(&Segment) -> u32,
    ) -> Result<(), Failure> {
        let sender = self.peer as usize;
        for ((number, segment), expected) in (0..).zip(&self.segments).zip(sent) {
            let got = sum(segment);
            if got != expected {
                let tensor = targets.name(segment.tensor as usize).to_owned();
                let round = self.tag as u32;
                let what = Corrupted::Segment { tensor, round, segment: number };
                return Err(Failure::Corrupt { what, sender, receiver, expected, got });
            }
        }
        Ok(())
    }

    /// The header of this message, which was packed into `slot`; its sums are put there too.
    pub fn seal_packed(&self, slot: &mut [u8]) -> Header {
        let sums: Vec<u32> = self.segments.iter().map(|each| in_slot(each, slot)).collect();
        self.seal(slot, &sums)
    }

    /// The header of this message with these sums of its segments.
    pub fn seal(&self, slot: &mut [u8], sums: &[u32]) -> Header {
        Header { tag: self.tag, checksum: sums::seal(slot, sums) }
    }
}

/// The sum of a segment that lies in `slot`.
pub(super) fn in_slot(segment: &Segment, slot: &[u8]) -> u32 {
    sums::sum(&slot[segment.slot_offset..][..segment.bytes])
}

/// The sum of a segment in its receiver's memory, in which box `at` of the message starts at
/// `start(at)`.
///
/// # Safety
/// All boxes of the segment are readable there, and nobody writes them meanwhile.
pub(super) unsafe fn in_place(
    program: &Program,
    message: &Message,
    segment: &Segment,
    start: impl Fn(usize) -> *const u8,
) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for at in segment.boxes.clone() {
        let (shape, start) = (&program.shape(message.target_shape(at)).copy, start(at));
        let run_bytes = shape.run_bytes() as usize;
        shape.for_each_run(|_, to| {
            // SAFETY: each run lies within its box, which the caller vouches for.
            let run = unsafe { std::slice::from_raw_parts(start.add(to as usize), run_bytes) };
            hasher.update(run);
        });
    }
    hasher.finalize()
}
