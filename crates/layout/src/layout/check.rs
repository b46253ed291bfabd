//! What makes a placement valid, and the merging of its adjacent pieces.

use super::{Piece, Placement, Shard};
use crate::boxes::{BoxTree, first_overlap, merge_boxes};
use crate::dims::{Dims, NdBox};
use crate::error::LayoutError;

/// PEs that a layout may speak of: data kept for each of them must not grow with a typing error.
pub(crate) const WORLD_MAX: u64 = 1 << 20;

/// Bytes that a tensor, a shard, and all shards of a layout may have: every offset and every sum of
/// them can be counted.
pub(crate) const BYTES_MAX: u64 = i64::MAX as u64;

/// Elements of an array of `shape` in which sizes of 0 count as 1: no stride and no product of some
/// of the sizes is larger, which cannot be said of the elements of an empty array.
pub(super) fn span(shape: &Dims) -> Option<u64> {
    shape.iter().try_fold(1u64, |span, &size| span.checked_mul(size.max(1)))
}

/// Refuses a placement with which a tensor of elements of `element_bytes` cannot be counted in
/// bytes.
pub(super) fn check_bytes(
    name: &str,
    placement: &Placement,
    element_bytes: u64,
) -> Result<(), LayoutError> {
    let fits = |elements: Option<u64>| {
        let bytes = elements.and_then(|elements| elements.checked_mul(element_bytes));
        bytes.is_some_and(|bytes| bytes <= BYTES_MAX)
    };
    if !fits(span(&placement.shape)) {
        let (tensor, shape) = (name.to_owned(), placement.shape.to_vec());
        return Err(LayoutError::TooLarge { tensor, shape });
    }
    if fits(Some(placement.shard_span_max)) {
        return Ok(());
    }
    let large = placement.shards.iter().find(|shard| !fits(span(&shard.shape)));
    large.map_or(Ok(()), |shard| Err(shard_too_large(name, shard)))
}

fn shard_too_large(name: &str, shard: &Shard) -> LayoutError {
    let (tensor, rank, shape) = (name.to_owned(), shard.rank, Box::new(shard.shape));
    LayoutError::ShardTooLarge { tensor, rank, shape }
}

/// Checks `shards`, sorted by rank, of the tensor `name`: every piece within the tensor and its
/// shard, no two of one shard overlapping, one shard a rank, no rank and no shard past all bounds.
pub(super) fn check_placement(
    name: &str,
    shape: &Dims,
    shards: &[Shard],
) -> Result<(), LayoutError> {
    for pair in shards.windows(2) {
        if pair[0].rank == pair[1].rank {
            let (tensor, rank) = (name.to_owned(), pair[0].rank);
            return Err(LayoutError::DuplicateShard { tensor, rank });
        }
    }
    shards.iter().try_for_each(|shard| check_shard(name, shape, shard))
}

fn check_shard(name: &str, shape: &Dims, shard: &Shard) -> Result<(), LayoutError> {
    let rank = shard.rank;
    if u64::from(rank) >= WORLD_MAX {
        return Err(LayoutError::RankTooHigh { tensor: name.to_owned(), rank });
    }
    // The element type is known with the tensor; no element is smaller than a byte.
    if span(&shard.shape).is_none_or(|span| span > BYTES_MAX) {
        return Err(shard_too_large(name, shard));
    }
    let same_dims = |what, dims: &Dims| {
        if dims.len() == shape.len() {
            return Ok(());
        }
        let (found, expected) = (dims.len(), shape.len());
        Err(LayoutError::DimsMismatch { tensor: name.to_owned(), rank, what, found, expected })
    };
    same_dims("the shard's shape", &shard.shape)?;
    for piece in &shard.pieces {
        same_dims("a piece", &piece.global.start)?;
        same_dims("a piece", &piece.global.size)?;
        same_dims("a piece's place", &piece.local)?;
        check_inside(name, rank, "tensor", &piece.global, shape)?;
        check_inside(name, rank, "shard", &piece.local_box(), &shard.shape)?;
    }
    check_apart(name, rank, "shard", shard.pieces.iter().map(Piece::local_box).collect())?;
    check_apart(name, rank, "tensor", shard.pieces.iter().map(|piece| piece.global).collect())
}

fn check_inside(
    name: &str,
    rank: u32,
    what: &'static str,
    piece: &NdBox,
    shape: &Dims,
) -> Result<(), LayoutError> {
    let inside = |dim: usize| {
        piece.start[dim].checked_add(piece.size[dim]).is_some_and(|stop| stop <= shape[dim])
    };
    if (0..shape.len()).all(inside) {
        return Ok(());
    }
    // A stop that overflows cannot be printed as one.
    let mut piece = *piece;
    for dim in 0..shape.len() {
        piece.size[dim] = piece.size[dim].min(u64::MAX - piece.start[dim]);
    }
    let tensor = name.to_owned();
    Err(LayoutError::OutOfBounds {
        tensor,
        rank,
        piece: Box::new(piece),
        what,
        shape: Box::new(*shape),
    })
}

fn check_apart(
    name: &str,
    rank: u32,
    what: &'static str,
    boxes: Vec<NdBox>,
) -> Result<(), LayoutError> {
    if boxes.len() < 2 {
        return Ok(());
    }
    match first_overlap(&boxes, &BoxTree::new(&boxes)) {
        None => Ok(()),
        Some((first, second)) => {
            let tensor = name.to_owned();
            let (first, second) = (Box::new(boxes[first]), Box::new(boxes[second]));
            Err(LayoutError::OverlappingPieces { tensor, rank, first, second, what })
        }
    }
}

/// Drops empty pieces and joins pieces that are adjacent both in the tensor and in the shard.
pub(super) fn merge_pieces(pieces: &mut Vec<Piece>) {
    pieces.retain(|piece| !piece.global.is_empty());
    merge_boxes(
        pieces,
        |piece| piece.global.size,
        |piece| [piece.local, piece.global.start],
        |piece, size| piece.global.size = size,
    );
}
