//! Cutting transfers to slots and batching them per pair of PEs.
//!
//! Transfers of a pair are laid end to end, each at the next aligned place, and cut where a slot
//! ends. As a transfer may be cut at any multiple of the alignment, every slot but the last is
//! full: no packing needs fewer slots or wastes less. The order remains to be chosen, on which
//! the number of cuts depends: [`fit`](super::fit) chooses it.

use syncline_copy::cut;

use super::fit;
use super::{Batch, SLOT_ALIGN, Segment};
use crate::transfer::{Traffic, TransferPlan};

/// A batch before it is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchSize {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) number: u32,
    pub(super) bytes: u64,
}

/// The batches of every pair, in the order of the pairs.
pub(super) fn batch_sizes(traffic: &Traffic, slot_bytes: u64) -> Vec<BatchSize> {
    let mut sizes = Vec::with_capacity(traffic.pairs().len());
    for pair in traffic.pairs() {
        for (number, part) in (0..).zip(cut::ranges(pair.padded_bytes, slot_bytes)) {
            let bytes = part.end - part.start;
            sizes.push(BatchSize { src: pair.src, dst: pair.dst, number, bytes });
        }
    }
    sizes
}

/// Fills the batches that concern the plan's rank, or all; by round, then sender.
pub(super) fn pack(
    plan: &TransferPlan,
    slot_bytes: u64,
    sizes: &[BatchSize],
    round_of: &[u32],
) -> Vec<Batch> {
    let mut sends: Vec<u32> =
        (0u32..).zip(plan.ops()).filter(|(_, op)| !op.is_self_move()).map(|(at, _)| at).collect();
    // Stable: sender and receiver have the transfers of a pair in the same order, and choose from
    // it alike.
    sends.sort_by_key(|&at| {
        let op = &plan.ops()[at as usize];
        (op.src, op.dst)
    });
    let padded = |at: u32| {
        let op = &plan.ops()[at as usize];
        let bytes = plan.copy_box(op).elements() * plan.tensor(op).unit_bytes()[1];
        bytes.next_multiple_of(SLOT_ALIGN)
    };
    let pair = |at: u32| {
        let op = &plan.ops()[at as usize];
        (op.src, op.dst)
    };
    for of_pair in sends.chunk_by_mut(|&one, &next| pair(one) == pair(next)) {
        fit::order(of_pair, padded, slot_bytes);
    }
    let mut batches = Vec::new();
    let mut next = sends.iter().copied().peekable();
    let mut filler = Filler { plan, slot_bytes, open: None };
    for (size, &round) in sizes.iter().zip(round_of) {
        let concerns = |rank: u32| rank == size.src || rank == size.dst;
        if !plan.rank().is_none_or(concerns) {
            continue;
        }
        let mut segments = Vec::new();
        let pair = (size.src, size.dst);
        filler.fill(&mut segments, || {
            next.next_if(|&at| {
                let op = &plan.ops()[at as usize];
                (op.src, op.dst) == pair
            })
        });
        let BatchSize { src, dst, number, bytes } = *size;
        batches.push(Batch { src, dst, number, round, bytes, segments });
    }
    assert!(next.next().is_none() && filler.open.is_none(), "every transfer is in a batch");
    batches.sort_by_key(|batch| (batch.round, batch.src));
    batches
}

/// Lays transfers end to end, slot after slot.
struct Filler<'a> {
    plan: &'a TransferPlan,
    slot_bytes: u64,
    /// A transfer that the last slot could not take whole: its number and its elements that are
    /// packed.
    open: Option<(u32, u64)>,
}

impl Filler<'_> {
    /// Fills one slot from the open transfer and then from `next`.
    fn fill(&mut self, segments: &mut Vec<Segment>, mut next: impl FnMut() -> Option<u32>) {
        let mut offset = 0;
        while offset < self.slot_bytes {
            let Some((op, first)) = self.open.take().or_else(|| next().map(|op| (op, 0))) else {
                return;
            };
            let transfer = &self.plan.ops()[op as usize];
            let element_bytes = self.plan.tensor(transfer).unit_bytes()[1];
            // So that a slot is always filled to its end.
            assert!(SLOT_ALIGN.is_multiple_of(element_bytes), "units of {element_bytes} bytes");
            let elements = self.plan.copy_box(transfer).elements();
            let count = (elements - first).min((self.slot_bytes - offset) / element_bytes);
            segments.push(Segment { op, first, count, offset });
            offset += (count * element_bytes).next_multiple_of(SLOT_ALIGN);
            if first + count < elements {
                self.open = Some((op, first + count));
            }
        }
    }
}
