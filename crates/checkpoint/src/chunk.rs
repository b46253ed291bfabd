//! Chunks: parts of a destination shard that are one run of bytes in its file and fit a slot.

use std::borrow::Cow;
use std::ops::Range;

use syncline_copy::convert::converter;
use syncline_copy::cut;
use syncline_layout::{CopyBox, Dims, NdBox, TransferPlan};
use syncline_tensor::Dtype;

use crate::source::{Checkpoint, Landing};

/// Cuts a shard of `shape` into boxes of at most `slot_bytes`, in the order of the file.
pub(crate) fn chunks(shape: &Dims, element_bytes: u64, slot_bytes: u64) -> Vec<NdBox> {
    let mut found = Vec::new();
    let dims = |values: &[u64]| Dims::from_slice(values).expect("as many as the shape has");
    cut::boxes(shape, slot_bytes / element_bytes, |start, size| {
        found.push(NdBox { start: dims(start), size: dims(size) });
    });
    found
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
        let parts = ops.iter().filter_map(|op| {
            let copy = self.cut_out(plan.copy_box(op))?;
            let element_bytes = (from.bytes(), to.bytes());
            let landing = Landing { start: copy.dst_start, shape: &self.part.size, element_bytes };
            Some((plan.tensor(op).from, op.src, copy.src_box(), landing))
        });
        if from == to
            && let Some((tensor, rank, area, landing)) = parts.clone().next()
            && let Some(run) = source.run_of(tensor, rank, &area, &landing, self.bytes())
        {
            return Cow::Borrowed(run);
        }
        slot.resize(self.bytes() as usize, 0);
        let stored =
            parts.clone().map(|(tensor, rank, area, _)| source.elements_in(tensor, rank, &area));
        // What no file has is zero.
        if stored.sum::<u64>() < self.part.volume() {
            slot.fill(0);
        }
        let convert =
            (from != to).then(|| converter(from, to).expect("the plan converts only what can be"));
        for (tensor, rank, area, landing) in parts {
            source.copy_box(tensor, rank, &area, &landing, convert, slot);
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
