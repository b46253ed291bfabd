//! Made-up values: every byte of every tensor follows from its name in the source layout and its
//! place in the whole tensor.

use syncline::layout::{Layout, TensorLayout};

/// The shards that `rank` holds of `layout`, by name; empty ones are left out.
///
/// Tied tensors of `source` have one value, whatever it is called and however often it is stored in
/// `layout`.
pub(super) fn shards(layout: &Layout, source: &Layout, rank: usize) -> Vec<(String, Vec<u8>)> {
    let held = layout.tensors().iter().map(|tensor| {
        let found = tensor.names().find_map(|name| source.tensor(name));
        let value = found.map_or(tensor.name(), TensorLayout::name);
        (tensor.name().to_owned(), shard(tensor, value, rank))
    });
    held.filter(|(_, bytes)| !bytes.is_empty()).collect()
}

/// The shard that `rank` holds of a tensor whose values are those of `value`.
fn shard(tensor: &TensorLayout, value: &str, rank: usize) -> Vec<u8> {
    let Some(shard) = tensor.placement().shard(rank as u32) else { return Vec::new() };
    let element = tensor.dtype().bytes();
    let mut bytes = vec![0; (shard.shape.volume() * element) as usize];
    let seed = value.bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let (local_steps, global_steps) =
        (shard.shape.row_major_strides(element), tensor.shape().row_major_strides(element));
    for piece in &shard.pieces {
        let size = &piece.global.size;
        let dims = size.len();
        // A scalar is one run of one element; otherwise runs go along the last dimension.
        let run_bytes = element * size.last().copied().unwrap_or(1);
        let runs: u64 = size[..dims.saturating_sub(1)].iter().product();
        for run in 0..runs {
            let (mut to, mut from, mut rest) = (0, 0, run);
            for dim in (0..dims).rev() {
                let at = if dim + 1 == dims { 0 } else { rest % size[dim] };
                rest = if dim + 1 == dims { rest } else { rest / size[dim] };
                to += (piece.local[dim] + at) * local_steps[dim];
                from += (piece.global.start[dim] + at) * global_steps[dim];
            }
            let place = &mut bytes[to as usize..(to + run_bytes) as usize];
            for (byte, at) in place.iter_mut().zip(from..) {
                *byte = (seed.wrapping_add(at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
            }
        }
    }
    bytes
}
