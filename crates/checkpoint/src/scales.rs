//! Scales of quantized weights: they lie with the blocks of their weights.

use syncline_layout::{Dims, NdBox, Piece, ShardRule, TensorLayout};

/// How the tensors with scales are called, after the names of their weights.
const ENDINGS: [&str; 2] = ["_scale_inv", "_scale"];

/// The name of the weight that the scales `name` are of: `x.weight` for `x.weight_scale_inv`.
pub(crate) fn weight_of(name: &str) -> Option<&str> {
    let weight = ENDINGS.iter().find_map(|end| name.strip_suffix(end))?;
    (!weight.is_empty() && !weight.ends_with('.')).then_some(weight)
}

/// Elements of a weight that share a scale, in each dimension of the scales; `None` where shapes
/// and `said`, the sizes of blocks by the configuration, do not tell.
pub(crate) fn scale_blocks(weight: &Dims, scales: &Dims, said: &[u64]) -> Option<Dims> {
    let mut blocks = scales.zeros();
    for dim in 0..scales.len() {
        let (elements, count) = (*weight.get(dim)?, scales[dim]);
        // The configuration speaks of the last dimensions.
        let block = (dim + said.len()).checked_sub(weight.len()).map(|at| said[at]);
        let fits = |block: &u64| *block > 0 && elements.div_ceil(*block) == count;
        blocks[dim] = match count {
            1 => elements.max(1),
            _ if count == elements => 1,
            _ => block.filter(fits)?,
        };
    }
    Some(blocks)
}

/// Returns `true` if every rank has the scales of its part of the weight, and no others: the splits
/// of the weight fall on its blocks.
pub(crate) fn lie_with(scales: &TensorLayout, weight: &TensorLayout, blocks: &Dims) -> bool {
    let (held, of_weight) = (scales.placement().shards(), weight.placement().shards());
    held.len() == of_weight.len()
        && held.iter().zip(of_weight).all(|(held, shard)| {
            let scaled = shard.pieces.iter().map(|piece| scaled(piece, weight.shape(), blocks));
            let Some(mut expected) = scaled.collect::<Option<Vec<Piece>>>() else { return false };
            let order = |piece: &Piece| (piece.global, piece.local);
            expected.sort_by_key(order);
            expected.dedup();
            let mut pieces = held.pieces.clone();
            pieces.sort_by_key(order);
            held.rank == shard.rank && pieces == expected
        })
}

/// The scales of a piece of a weight; `None` if it cuts through a block.
fn scaled(piece: &Piece, weight: &Dims, blocks: &Dims) -> Option<Piece> {
    let mut global = NdBox { start: blocks.zeros(), size: blocks.zeros() };
    let mut local = blocks.zeros();
    for dim in 0..blocks.len() {
        let (block, all) = (blocks[dim], weight[dim]);
        if block >= all {
            // One scale for all: every rank has it.
            global.size[dim] = 1;
            continue;
        }
        let (start, stop) = (piece.global.start[dim], piece.global.stop(dim));
        let falls = |at: u64| at.is_multiple_of(block);
        if !falls(start) || !falls(piece.local[dim]) || !(falls(stop) || stop == all) {
            return None;
        }
        global.start[dim] = start / block;
        global.size[dim] = stop.div_ceil(block) - start / block;
        local[dim] = piece.local[dim] / block;
    }
    Some(Piece { global, local })
}

/// How scales are split whose weight is split by `rules`.
pub(crate) fn scale_rules(rules: &[ShardRule], scales: &Dims, blocks: &Dims) -> Vec<ShardRule> {
    let scaled = |rule: &ShardRule| {
        let dim = usize::try_from(rule.dim).ok().filter(|&dim| dim < scales.len())?;
        if scales[dim] == 1 {
            return None;
        }
        // Units that are no whole blocks: where the splits fall on blocks all the same is for the
        // proof to find out.
        let unit = |unit: Option<u64>| {
            unit.filter(|unit| unit.is_multiple_of(blocks[dim])).map(|unit| unit / blocks[dim])
        };
        let mut rule = ShardRule { unit: unit(rule.unit), ..rule.clone() };
        for part in rule.blocks.iter_mut().flatten() {
            part.size = part.size.div_ceil(blocks[dim]);
            part.unit = unit(part.unit);
        }
        Some(rule)
    };
    rules.iter().filter_map(scaled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_by_shapes_or_by_the_configuration_or_not_at_all() {
        let dims = |values: &[u64]| Dims::from_slice(values).unwrap();
        let blocks = |weight: &[u64], scales: &[u64], said: &[u64]| {
            scale_blocks(&dims(weight), &dims(scales), said).map(|blocks| blocks.to_vec())
        };
        assert_eq!(blocks(&[256, 130], &[2, 2], &[128, 128]), Some(vec![128, 128]));
        assert_eq!(blocks(&[256, 130], &[2, 2], &[]), None);
        assert_eq!(blocks(&[256, 130], &[2, 2], &[64, 64]), None);
        assert_eq!(blocks(&[256, 130], &[256, 1], &[]), Some(vec![1, 130]));
        assert_eq!(blocks(&[256, 130], &[256], &[]), Some(vec![1]));
        assert_eq!(blocks(&[3, 256, 128], &[3, 2, 1], &[128, 128]), Some(vec![1, 128, 128]));
        assert_eq!(blocks(&[256], &[256, 1], &[]), None);
        assert_eq!(weight_of("a.weight_scale_inv"), Some("a.weight"));
        assert_eq!(weight_of("a.weight_scale"), Some("a.weight"));
        assert_eq!((weight_of("a._scale"), weight_of("a.scales")), (None, None));
    }
}
