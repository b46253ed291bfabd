//! Transfer plans: which box of which tensor goes from which PE to which.
//!
//! Every PE computes the plan from the two layouts alone. What a PE already holds stays on it; what
//! several PEs hold is taken from the one that has least to send so far. (PEs are replicas of each
//! other where their shards are the same; of shards that only overlap, the one that covers most is
//! taken.) Work is done once per pair of placements, not per tensor, and choosing among replicas is
//! the only step that reads every tensor and every PE: that is why [`TransferPlan::for_rank`] is
//! cheap and yet agrees with everyone.

mod balance;
mod blocks;
mod build;
mod copy_box;
mod options;
mod recoding;
mod source;
mod template;
mod traffic;

use syncline_tensor::Dtype;

use crate::dims::{Dims, NdBox};
use crate::error::LayoutError;
use crate::layout::Layout;

pub use copy_box::CopyBox;
pub use options::{BlockScales, Conversions, PlanOptions};
pub use recoding::Recoding;
pub use traffic::{PairTraffic, Traffic};

/// A tensor that a plan moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanTensor {
    /// Its name in the destination layout.
    pub name: String,
    /// Position among the tensors of the source layout.
    pub from: u32,
    /// Position among the tensors of the destination layout.
    pub to: u32,
    /// Element type in the source.
    pub src_dtype: Dtype,
    /// Element type in the destination.
    pub dst_dtype: Dtype,
    /// How the one becomes the other.
    pub recoding: Recoding,
}

impl PlanTensor {
    /// Element type on the way: the smaller of the two, so that the sender converts when elements
    /// shrink and the receiver when they grow. Blocks are always recoded by the sender.
    pub fn wire_dtype(&self) -> Dtype {
        if self.recoding != Recoding::Elements || self.dst_dtype.bytes() <= self.src_dtype.bytes() {
            self.dst_dtype
        } else {
            self.src_dtype
        }
    }
}

/// One box that moves from one PE to another, or within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferOp {
    /// Position in [`TransferPlan::tensors`].
    pub tensor: u32,
    /// The PE that holds it.
    pub src: u32,
    /// The PE that needs it.
    pub dst: u32,
    copy: u32,
}

impl TransferOp {
    /// True if the box stays on its PE.
    pub fn is_self_move(&self) -> bool {
        self.src == self.dst
    }
}

/// Every transfer that turns one layout into another, or one PE's part of them.
///
/// ```
/// use syncline_layout::{Layout, PlanOptions, TransferPlan};
///
/// let layout = |rank: u32| {
///     Layout::from_json(&format!(
///         r#"{{"format": "syncline-layout", "version": 1,
///             "tensors": [{{"name": "w", "dtype": "f32", "shape": [8],
///               "shards": [{{"rank": {rank}, "shape": [8],
///                            "pieces": [{{"global": [[0, 8]], "local": [0]}}]}}]}}]}}"#
///     ))
/// };
/// let plan = TransferPlan::new(&layout(0)?, &layout(1)?, &PlanOptions::default())?;
/// assert_eq!((plan.ops().len(), plan.bytes_moved()), (1, 32));
/// # Ok::<(), syncline_layout::LayoutError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TransferPlan {
    tensors: Vec<PlanTensor>,
    ops: Vec<TransferOp>,
    copies: Vec<CopyBox>,
    traffic: Traffic,
    bytes_total: u64,
    world: u32,
    rank: Option<u32>,
    fingerprint: u64,
}

impl TransferPlan {
    /// The whole plan.
    pub fn new(from: &Layout, to: &Layout, options: &PlanOptions) -> Result<Self, LayoutError> {
        build::build(from, to, options, None)
    }

    /// The part that concerns `rank`: what it sends, receives and keeps, in the order of the whole
    /// plan.
    ///
    /// Refuses what [`new`](Self::new) refuses, on every rank alike.
    pub fn for_rank(
        from: &Layout,
        to: &Layout,
        options: &PlanOptions,
        rank: u32,
    ) -> Result<Self, LayoutError> {
        build::build(from, to, options, Some(rank))
    }

    /// The tensors, in the order of the destination layout.
    pub fn tensors(&self) -> &[PlanTensor] {
        &self.tensors
    }

    /// The transfers, by tensor, then receiver; those between two given PEs have the same order
    /// everywhere.
    pub fn ops(&self) -> &[TransferOp] {
        &self.ops
    }

    /// Where the elements of `op` lie on both sides, in units of [`PlanTensor::unit_elements`].
    pub fn copy_box(&self, op: &TransferOp) -> &CopyBox {
        &self.copies[op.copy as usize]
    }

    /// The part `part` of what `op` moves, in elements of the sender's shard and of the receiver's.
    pub fn boxes(&self, op: &TransferOp, part: &NdBox) -> (NdBox, NdBox) {
        let (copy, (source, target)) = (self.copy_box(op), self.tensor(op).unit_elements());
        let place = |start: &Dims, unit: u64| {
            let mut place = *part;
            place.start.iter_mut().zip(start.iter()).for_each(|(at, by)| *at += by);
            for dims in [&mut place.start, &mut place.size] {
                dims.last_mut().into_iter().for_each(|last| *last *= unit);
            }
            place
        };
        (place(&copy.src_start, source), place(&copy.dst_start, target))
    }

    /// The tensor that `op` is of.
    pub fn tensor(&self, op: &TransferOp) -> &PlanTensor {
        &self.tensors[op.tensor as usize]
    }

    /// Bytes that `op` moves, in the element type used on the way.
    pub fn bytes(&self, op: &TransferOp) -> u64 {
        self.copy_box(op).elements() * self.tensor(op).unit_bytes()[1]
    }

    /// What moves between every two PEs of the group, also where this is one PE's part.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Bytes written to all destinations, of the whole plan.
    pub fn bytes_total(&self) -> u64 {
        self.bytes_total
    }

    /// Bytes that move between different PEs, of the whole plan.
    pub fn bytes_moved(&self) -> u64 {
        self.traffic.bytes()
    }

    /// One more than the highest rank of either layout.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// The PE whose part this is; `None` for the whole plan.
    pub fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// Equal on all PEs that planned from the same layouts and options: compare it before moving
    /// anything.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}
