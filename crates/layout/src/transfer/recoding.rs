//! What becomes of a tensor's elements on the way: nothing, a conversion of each, or of blocks with
//! a shared scale.
//!
//! Tensors that are quantised in blocks ([`mx`]) are planned in units of a block: their placements
//! are divided by 32 along the last dimension, and everything else (covering, merging, cutting to
//! slots) goes on as for any other tensor. Restoring needs no units: the scale of any element is
//! known to its sender.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use syncline_tensor::Dtype;

use super::PlanTensor;
use crate::dims::Dims;
use crate::error::LayoutError;
use crate::layout::{Layout, Piece, Placement, Shard};
use rustc_hash::FxHashMap;
use syncline_copy::convert::mx;

/// How the elements of a tensor change on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Recoding {
    /// Each by itself, if at all.
    #[default]
    Elements,
    /// Blocks of 32 become eight-bit elements, scaled by what [`Recoding::BlockScales`] sends to
    /// another tensor.
    BlockElements,
    /// Of each block of 32, only the scale is sent.
    BlockScales {
        /// The format of the elements that the scales are for.
        elements: Dtype,
    },
    /// Blocks of eight-bit elements are restored with their scales, by the sender, who holds both.
    Restored {
        /// Position of the scales among the tensors of the source layout.
        scales: u32,
    },
}

const BLOCK: u64 = mx::BLOCK as u64;

impl PlanTensor {
    /// Elements that the plan counts as one, in the source and in the destination: 32 where blocks
    /// are quantised.
    pub fn unit_elements(&self) -> (u64, u64) {
        match self.recoding {
            Recoding::Elements | Recoding::Restored { .. } => (1, 1),
            Recoding::BlockElements => (BLOCK, BLOCK),
            Recoding::BlockScales { .. } => (BLOCK, 1),
        }
    }

    /// Bytes of such a unit: in the source, on the way, and in the destination.
    pub fn unit_bytes(&self) -> [u64; 3] {
        let (source, target) = self.unit_elements();
        // Blocks are recoded by their sender: the bytes on the way are the bytes that arrive.
        [
            source * self.src_dtype.bytes(),
            target * self.wire_dtype().bytes(),
            target * self.dst_dtype.bytes(),
        ]
    }
}

pub(super) fn refused(tensor: &str, cause: String) -> LayoutError {
    LayoutError::Blocks { tensor: tensor.to_owned(), cause }
}

pub(super) fn check_scale_shape(
    name: &str,
    elements: &Dims,
    scales: &Dims,
) -> Result<(), LayoutError> {
    let mut expected = *elements;
    if let Some(last) = expected.last_mut()
        && last.is_multiple_of(BLOCK)
    {
        *last /= BLOCK;
        if expected == *scales {
            return Ok(());
        }
    }
    let cause = format!(
        "scales of shape {scales} for elements of shape {elements}: one for every {BLOCK} along the last dimension"
    );
    Err(refused(name, cause))
}

/// The placement in units of blocks; refuses one that cuts a block.
pub(super) fn in_blocks(name: &str, placement: &Placement) -> Result<Placement, LayoutError> {
    let divided = |dims: &Dims, rank: Option<u32>| -> Result<Dims, LayoutError> {
        let mut dims = *dims;
        match dims.last_mut() {
            Some(last) if last.is_multiple_of(BLOCK) => *last /= BLOCK,
            _ => {
                let holder =
                    rank.map_or("it".to_owned(), |rank| format!("its shard on rank {rank}"));
                let cause = format!(
                    "{holder} cuts a block: blocks are {BLOCK} elements along the last dimension, from a multiple of {BLOCK} on"
                );
                return Err(refused(name, cause));
            }
        }
        Ok(dims)
    };
    let shard = |shard: &Shard| {
        let rank = Some(shard.rank);
        let piece = |piece: &Piece| -> Result<Piece, LayoutError> {
            let mut piece = *piece;
            piece.global.start = divided(&piece.global.start, rank)?;
            piece.global.size = divided(&piece.global.size, rank)?;
            piece.local = divided(&piece.local, rank)?;
            Ok(piece)
        };
        let pieces = shard.pieces.iter().map(piece).collect::<Result<_, _>>()?;
        Ok(Shard { rank: shard.rank, shape: divided(&shard.shape, rank)?, pieces })
    };
    let shards = placement.shards.iter().map(shard).collect::<Result<_, LayoutError>>()?;
    Ok(Placement::plain(divided(&placement.shape, None)?, shards, placement.hash))
}

/// Placements in units of blocks, made once for each that is needed.
#[derive(Default)]
pub(super) struct BlockPlacements(FxHashMap<*const Placement, Arc<Placement>>);

impl BlockPlacements {
    pub(super) fn new(
        from: &Layout,
        to: &Layout,
        tensors: &[PlanTensor],
    ) -> Result<Self, LayoutError> {
        let mut made = Self::default();
        for tensor in tensors {
            let (source, target) = tensor.unit_elements();
            if source > 1 {
                made.add(&tensor.name, from.tensors()[tensor.from as usize].placement())?;
            }
            if target > 1 {
                made.add(&tensor.name, to.tensors()[tensor.to as usize].placement())?;
            }
        }
        Ok(made)
    }

    fn add(&mut self, name: &str, placement: &Arc<Placement>) -> Result<(), LayoutError> {
        if let Entry::Vacant(new) = self.0.entry(Arc::as_ptr(placement)) {
            new.insert(Arc::new(in_blocks(name, placement)?));
        }
        Ok(())
    }

    /// `placement` in units of `unit` elements.
    pub(super) fn of<'a>(&'a self, placement: &'a Arc<Placement>, unit: u64) -> &'a Placement {
        match unit {
            1 => placement,
            _ => &self.0[&Arc::as_ptr(placement)],
        }
    }
}
