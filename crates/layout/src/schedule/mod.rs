//! Schedules: transfers cut to slots, batched per peer, and put into rounds.
//!
//! A transfer is a run of numbered elements ([`CopyBox`](crate::CopyBox)), and a slot takes any
//! part of that run whose bytes are a multiple of [`SLOT_ALIGN`]. So every batch but the last of a
//! pair is full: the number and the sizes of all batches follow from [`Traffic`](crate::Traffic)
//! alone, and every PE can compute all rounds while packing only its own batches.

mod fit;
mod pack;
mod rounds;

use crate::error::LayoutError;
use crate::transfer::TransferPlan;

/// Alignment of every segment in a slot, in bytes: a cache line, which also keeps copies off slow
/// paths.
pub const SLOT_ALIGN: u64 = 64;

/// Slot size where nothing else is asked for.
pub const DEFAULT_SLOT_BYTES: u64 = 16 << 20;

/// Bytes that a checksum of a segment takes in a slot.
pub const SUM_BYTES: usize = size_of::<u32>();

/// What segments may take of a slot that also has room for a checksum of each.
///
/// The first segment's travels beside the slot, so that the smallest slot still takes a segment.
fn checked_bytes(slot_bytes: u64) -> u64 {
    let sum_bytes = SUM_BYTES as u64;
    (slot_bytes + sum_bytes) / (SLOT_ALIGN + sum_bytes) * SLOT_ALIGN
}

/// A part of a transfer, at its place in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Position in [`TransferPlan::ops`].
    pub op: u32,
    /// Number of the first element, in row-major order of the op's box.
    pub first: u64,
    /// How many elements.
    pub count: u64,
    /// Where it starts in the slot, in bytes; a multiple of [`SLOT_ALIGN`].
    pub offset: u64,
}

/// What one PE sends to another in one round: it fits one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Sender.
    pub src: u32,
    /// Receiver.
    pub dst: u32,
    /// Counts the batches from `src` to `dst`.
    pub number: u32,
    /// The round it is sent in.
    pub round: u32,
    /// Bytes of the slot that it takes.
    pub bytes: u64,
    /// What it carries, in order.
    pub segments: Vec<Segment>,
}

/// Batches in rounds: in each, every PE sends to at most one and receives from at most one.
#[derive(Clone, Debug)]
pub struct Schedule {
    slot_bytes: u64,
    rounds: u32,
    rounds_lower_bound: u32,
    round_bytes_max: Vec<u64>,
    batches: Vec<Batch>,
}

impl Schedule {
    /// The schedule of `plan` with slots of `slot_bytes`; of one PE's part, only that PE's batches.
    pub fn new(plan: &TransferPlan, slot_bytes: u64) -> Result<Self, LayoutError> {
        Self::build(plan, slot_bytes, slot_bytes)
    }

    /// The same with room behind the segments of every batch for their checksums.
    pub fn with_checksums(plan: &TransferPlan, slot_bytes: u64) -> Result<Self, LayoutError> {
        Self::build(plan, slot_bytes, checked_bytes(slot_bytes))
    }

    /// `filled_bytes` of each slot are for segments.
    fn build(plan: &TransferPlan, slot_bytes: u64, filled_bytes: u64) -> Result<Self, LayoutError> {
        if slot_bytes < SLOT_ALIGN || !slot_bytes.is_multiple_of(SLOT_ALIGN) {
            return Err(LayoutError::BadSlot { slot_bytes });
        }
        let sizes = pack::batch_sizes(plan.traffic(), filled_bytes);
        let colouring = rounds::colour(plan.world(), &sizes);
        let mut round_bytes_max = vec![0; colouring.rounds as usize];
        for (size, &round) in sizes.iter().zip(&colouring.round_of) {
            let most: &mut u64 = &mut round_bytes_max[round as usize];
            *most = size.bytes.max(*most);
        }
        let batches = pack::pack(plan, filled_bytes, &sizes, &colouring.round_of);
        Ok(Self {
            slot_bytes,
            rounds: colouring.rounds,
            rounds_lower_bound: colouring.degree_max,
            round_bytes_max,
            batches,
        })
    }

    /// Size of a slot.
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// Number of rounds of the whole group.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The most batches that any PE has to send, or to receive: no schedule has fewer rounds.
    pub fn rounds_lower_bound(&self) -> u32 {
        self.rounds_lower_bound
    }

    /// The largest batch of each round: what the round takes on links that are alike.
    pub fn round_bytes_max(&self) -> &[u64] {
        &self.round_bytes_max
    }

    /// The batches, by round, then sender.
    pub fn batches(&self) -> &[Batch] {
        &self.batches
    }

    /// What `rank` sends, by round.
    pub fn sends(&self, rank: u32) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(move |batch| batch.src == rank)
    }

    /// What `rank` receives, by round.
    pub fn receives(&self, rank: u32) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(move |batch| batch.dst == rank)
    }
}
