//! Forms: what placements have in common when everything along a dimension is a multiple of one
//! number.
//!
//! A matrix of 4,096 rows over four PEs and one of 640 rows lie alike, but for a factor. Their
//! common form has four rows, and the unit of the first is 1,024 rows, that of the other 160. What
//! follows from the form is worked out once for all placements that share it.

use std::sync::Arc;

use super::{Piece, Placement, Shard};
use crate::dims::Dims;

/// A placement's form, and the elements that one of its units has along each dimension.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) placement: Arc<Placement>,
    pub(crate) unit: Dims,
}

/// The largest number along each dimension that every position and size is a multiple of; at
/// least 1.
pub(super) fn unit_of(shape: &Dims, shards: &[Shard]) -> Dims {
    let mut unit = *shape;
    let mut include = |dims: &Dims| {
        for (unit, &value) in unit.iter_mut().zip(dims.iter()) {
            *unit = gcd(*unit, value);
        }
    };
    for shard in shards {
        include(&shard.shape);
        for piece in &shard.pieces {
            include(&piece.global.start);
            include(&piece.global.size);
            include(&piece.local);
        }
    }
    unit.iter_mut().for_each(|unit| *unit = (*unit).max(1));
    unit
}

/// `shape` and `shards` with every number along a dimension replaced by `change` of it and the
/// dimension's `unit`.
pub(crate) fn scaled(
    shape: &Dims,
    shards: &[Shard],
    unit: &Dims,
    change: fn(u64, u64) -> u64,
) -> (Dims, Vec<Shard>) {
    let change = |dims: &Dims| {
        let mut dims = *dims;
        dims.iter_mut().zip(unit.iter()).for_each(|(value, &unit)| *value = change(*value, unit));
        dims
    };
    let shard = |shard: &Shard| {
        let piece = |piece: &Piece| {
            let mut piece = *piece;
            piece.global.start = change(&piece.global.start);
            piece.global.size = change(&piece.global.size);
            piece.local = change(&piece.local);
            piece
        };
        let pieces = shard.pieces.iter().map(piece).collect();
        Shard { rank: shard.rank, shape: change(&shard.shape), pieces }
    };
    (change(shape), shards.iter().map(shard).collect())
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
