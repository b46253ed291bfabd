//! The geometry of one transfer: a box of a sender's shard that becomes a box of a receiver's.

use std::ops::Range;

use syncline_copy::{CopyError, CopyPlan, Strides};

use crate::dims::{Dims, NdBox};

/// A box to copy between two dense row-major shards; shared by all transfers of the same shape.
///
/// Its elements are numbered in row-major order of the box. That order is the packed form, so any
/// range of numbers can be packed, sent and unpacked by itself.
///
/// ```
/// use syncline_layout::{CopyBox, Dims};
///
/// let dims = |values: &[u64]| Dims::from_slice(values).unwrap();
/// // Columns 2..4 of a 2x4 shard become the whole of a 2x2 one.
/// let copy = CopyBox {
///     src_start: dims(&[0, 2]), dst_start: dims(&[0, 0]), size: dims(&[2, 2]),
///     src_shape: dims(&[2, 4]), dst_shape: dims(&[2, 2]),
/// };
/// let runs = |copy: CopyBox| {
///     let (mut runs, plan) = (Vec::new(), copy.plan(1, 1).unwrap());
///     plan.for_each_run(|from, to| runs.push((from, to, plan.run_bytes())));
///     runs
/// };
/// assert_eq!(runs(copy.pack()), [(2, 0, 2), (6, 2, 2)]);
/// assert_eq!(runs(copy.unpack()), [(0, 0, 4)]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyBox {
    /// First element in the sender's shard.
    pub src_start: Dims,
    /// First element in the receiver's shard.
    pub dst_start: Dims,
    /// Elements in each dimension, on both sides.
    pub size: Dims,
    /// Shape of the sender's shard.
    pub src_shape: Dims,
    /// Shape of the receiver's shard.
    pub dst_shape: Dims,
}

impl CopyBox {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.size.volume()
    }

    /// Makes every unit `unit` elements along each dimension.
    pub(super) fn scale(&mut self, unit: &Dims) {
        self.for_each_value(unit, |value, unit| value * unit);
    }

    /// Undoes [`scale`](Self::scale).
    pub(super) fn unscale(&mut self, unit: &Dims) {
        self.for_each_value(unit, |value, unit| value / unit);
    }

    fn for_each_value(&mut self, unit: &Dims, change: impl Fn(u64, u64) -> u64) {
        let Self { src_start, dst_start, size, src_shape, dst_shape } = self;
        for dims in [src_start, dst_start, size, src_shape, dst_shape] {
            dims.iter_mut()
                .zip(unit.iter())
                .for_each(|(value, &unit)| *value = change(*value, unit));
        }
    }

    /// The box in the sender's shard.
    pub fn src_box(&self) -> NdBox {
        NdBox { start: self.src_start, size: self.size }
    }

    /// The box in the receiver's shard.
    pub fn dst_box(&self) -> NdBox {
        NdBox { start: self.dst_start, size: self.size }
    }

    /// The part `part` of this box, in the same shards.
    pub fn part(&self, part: &NdBox) -> Self {
        let mut copy = Self { size: part.size, ..*self };
        for dim in 0..part.start.len() {
            copy.src_start[dim] += part.start[dim];
            copy.dst_start[dim] += part.start[dim];
        }
        copy
    }

    /// The same box from the sender's shard to its packed form.
    pub fn pack(&self) -> Self {
        Self { dst_start: self.size.zeros(), dst_shape: self.size, ..*self }
    }

    /// The same box from its packed form to the receiver's shard.
    pub fn unpack(&self) -> Self {
        Self { src_start: self.size.zeros(), src_shape: self.size, ..*self }
    }

    /// How the box is copied, if an element has that many bytes in each shard. Offsets count from
    /// the first bytes of the shards.
    ///
    /// # Errors
    /// If a shard has more bytes than can be counted, which shards of a [`Layout`](crate::Layout)
    /// never have.
    pub fn plan(&self, source_element: u64, target_element: u64) -> Result<CopyPlan, CopyError> {
        let source = self.src_shape.row_major_strides(source_element).to_signed();
        let target = self.dst_shape.row_major_strides(target_element).to_signed();
        let dims = self.size.len();
        self.plan_strided(
            Strides { strides: &source[..dims], element_bytes: source_element },
            Strides { strides: &target[..dims], element_bytes: target_element },
        )
    }

    /// How the box is copied if elements lie at these strides in the two shards. Offsets count from
    /// the first elements of the shards, from which negative strides reach back.
    ///
    /// # Errors
    /// As [`plan`](Self::plan); and if the target's elements interleave.
    pub fn plan_strided(
        &self,
        source: Strides<'_>,
        target: Strides<'_>,
    ) -> Result<CopyPlan, CopyError> {
        let plan = CopyPlan::strided(&self.size, source, target)?;
        let offset = |start: &Dims, side: Strides<'_>| {
            start.iter().zip(side.strides).map(|(&start, stride)| start as i64 * stride).sum()
        };
        Ok(plan.shifted(offset(&self.src_start, source), offset(&self.dst_start, target)))
    }

    /// The elements with numbers in `range` as boxes of this box, at most `2 * dims - 1` of them,
    /// in order.
    pub fn boxes(&self, range: Range<u64>) -> Vec<NdBox> {
        let mut boxes = Vec::new();
        let stop = range.end.min(self.elements());
        let strides = self.size.row_major_strides(1);
        let mut first = range.start;
        while first < stop {
            boxes.push(self.largest_box(&strides, first, stop));
            first += boxes.last().map_or(1, NdBox::volume);
        }
        boxes
    }

    /// The largest box of consecutive elements that starts at `first` and ends by `stop`.
    fn largest_box(&self, strides: &Dims, first: u64, stop: u64) -> NdBox {
        let mut found = NdBox { start: self.size.zeros(), size: self.size.zeros() };
        let mut rest = first;
        for dim in 0..self.size.len() {
            found.start[dim] = rest / strides[dim];
            rest %= strides[dim];
            found.size[dim] = 1;
        }
        for dim in 0..self.size.len() {
            let aligned = found.start[dim + 1..].iter().all(|&start| start == 0);
            let rows = ((stop - first) / strides[dim]).min(self.size[dim] - found.start[dim]);
            if aligned && rows > 0 {
                found.size[dim] = rows;
                found.size[dim + 1..].copy_from_slice(&self.size[dim + 1..]);
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
