//! Chunks: parts of a destination shard that are one run of bytes in its file and fit a slot.

use std::borrow::Cow;
use std::ops::Range;

use syncline_copy::convert::convert_slice;
use syncline_layout::{CopyBox, Dims, NdBox, Side, TransferOp, TransferPlan};
use syncline_tensor::Dtype;

use crate::source::Checkpoint;

/// Cuts a shard of `shape` into boxes of at most `slot_bytes`, in the order of the file.
pub(crate) fn chunks(shape: &Dims, element_bytes: u64, slot_bytes: u64) -> Vec<NdBox> {
    let mut found = Vec::new();
    if shape.volume() > 0 {
        cut(NdBox::whole(*shape), 0, element_bytes, slot_bytes.max(element_bytes), &mut found);
    }
    found
}

/// Dimensions before `dim` have one element left, those after it are whole: so every cut is one
/// run.
fn cut(part: NdBox, dim: usize, element_bytes: u64, slot_bytes: u64, found: &mut Vec<NdBox>) {
    if part.volume() * element_bytes <= slot_bytes || dim == part.size.len() {
        found.push(part);
        return;
    }
    let row_bytes = part.size[dim + 1..].iter().product::<u64>() * element_bytes;
    let rows = (slot_bytes / row_bytes).max(1);
    let mut start = part.start[dim];
    while start < part.stop(dim) {
        let mut rows_of = part;
        rows_of.start[dim] = start;
        rows_of.size[dim] = rows.min(part.stop(dim) - start);
        start += rows_of.size[dim];
        cut(rows_of, dim + 1, element_bytes, slot_bytes, found);
    }
}

/// A chunk, with the transfers that its shard is made of.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    /// Where it goes: the file and the first byte in it.
    pub(crate) file: usize,
    pub(crate) offset: u64,
    /// The box, in the shard's coordinates.
    pub(crate) part: NdBox,
    /// Transfers of the shard, by their places in the plan.
    pub(crate) ops: Range<usize>,
    pub(crate) dtypes: (Dtype, Dtype),
}

impl Chunk {
    pub(crate) fn bytes(&self) -> u64 {
        self.part.volume() * self.dtypes.1.bytes()
    }

    /// The chunk's bytes: taken from the source where they lie there as one run, else put together
    /// in `slot`.
    pub(crate) fn read<'a>(
        &self,
        plan: &TransferPlan,
        source: &'a Checkpoint,
        slot: &'a mut Vec<u8>,
    ) -> Cow<'a, [u8]> {
        let (from, to) = self.dtypes;
        let ops = &plan.ops()[self.ops.clone()];
        let parts = ops.iter().filter_map(|op| Some((op, self.cut_out(plan.copy_box(op))?)));
        if from == to
            && let Some((op, copy)) = parts.clone().find(|(_, copy)| copy.size == self.part.size)
            && copy.is_contiguous(Side::Src)
        {
            let run = copy.runs(Side::Src, 0..copy.elements()).next().expect("it has elements");
            let bytes = from.bytes() as usize;
            let shard = shard_bytes(plan, source, op);
            return Cow::Borrowed(&shard[run.src as usize * bytes..][..run.count as usize * bytes]);
        }
        slot.resize(self.bytes() as usize, 0);
        for (op, copy) in parts {
            let shard = shard_bytes(plan, source, op);
            let (from_bytes, to_bytes) = (from.bytes() as usize, to.bytes() as usize);
            for run in copy.runs(Side::Both, 0..copy.elements()) {
                let (src, dst, count) = (run.src as usize, run.dst as usize, run.count as usize);
                let read = &shard[src * from_bytes..][..count * from_bytes];
                let write = &mut slot[dst * to_bytes..][..count * to_bytes];
                convert_slice(from, to, read, write).expect("the plan allows what can be done");
            }
        }
        Cow::Borrowed(slot)
    }

    /// What of `copy` lies in the chunk, as a copy into the chunk itself.
    fn cut_out(&self, copy: &CopyBox) -> Option<CopyBox> {
        let part = copy.dst_box().intersection(&self.part)?;
        let (mut src_start, mut dst_start) = (copy.src_start, part.start);
        for dim in 0..part.start.len() {
            src_start[dim] += part.start[dim] - copy.dst_start[dim];
            dst_start[dim] -= self.part.start[dim];
        }
        let (src_shape, dst_shape) = (copy.src_shape, self.part.size);
        Some(CopyBox { src_start, dst_start, size: part.size, src_shape, dst_shape })
    }
}

fn shard_bytes<'a>(plan: &TransferPlan, source: &'a Checkpoint, op: &TransferOp) -> &'a [u8] {
    let tensor = plan.tensor(op);
    source.shard(tensor.from, op.src).expect("the plan was made from this checkpoint's layout")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_runs_that_fit_and_fill_the_shard() {
        for (shape, slot) in [
            (&[7, 5][..], 24),
            (&[7, 5], 4),
            (&[3, 4, 5], 100),
            (&[1000], 64),
            (&[], 4),
            (&[2, 0], 8),
        ] {
            let shape = Dims::from_slice(shape).unwrap();
            let strides = shape.row_major_strides(1);
            let mut next = 0;
            for part in chunks(&shape, 4, slot) {
                assert!(part.volume() * 4 <= slot);
                let first: u64 =
                    part.start.iter().zip(&strides[..]).map(|(at, step)| at * step).sum();
                assert_eq!(first, next);
                next += part.volume();
            }
            assert_eq!(next, shape.volume());
        }
    }
}
