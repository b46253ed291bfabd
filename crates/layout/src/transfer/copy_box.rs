//! The geometry of one transfer: a box of a sender's shard that becomes a box of a receiver's.

use std::ops::Range;

use crate::dims::{Dims, NdBox};

/// A box to copy between two dense row-major shards; shared by all transfers of the same shape.
///
/// Its elements are numbered in row-major order of the box. That order is the packed form, so any
/// range of numbers can be packed, sent and unpacked by itself.
///
/// ```
/// use syncline_layout::{CopyBox, Dims, Side};
///
/// let dims = |values: &[u64]| Dims::from_slice(values).unwrap();
/// // Columns 2..4 of a 2x4 shard become the whole of a 2x2 one.
/// let copy = CopyBox {
///     src_start: dims(&[0, 2]), dst_start: dims(&[0, 0]), size: dims(&[2, 2]),
///     src_shape: dims(&[2, 4]), dst_shape: dims(&[2, 2]),
/// };
/// let pack: Vec<_> = copy.runs(Side::Src, 0..4).map(|run| (run.src, run.count)).collect();
/// assert_eq!(pack, [(2, 2), (6, 2)]);
/// let unpack: Vec<_> = copy.runs(Side::Dst, 1..4).map(|run| (run.dst, run.count)).collect();
/// assert_eq!(unpack, [(1, 3)]);
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

/// Which shards a [`Run`] has to be contiguous in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The sender's: what packing needs.
    Src,
    /// The receiver's: what unpacking needs.
    Dst,
    /// Both: what a copy from shard to shard needs.
    Both,
}

/// Elements that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Position of the first in the sender's shard, in elements.
    pub src: u64,
    /// Position of the first in the receiver's shard, in elements.
    pub dst: u64,
    /// Position of the first in the packed form, in elements after the start of the range asked
    /// for.
    pub packed: u64,
    /// How many.
    pub count: u64,
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

    /// The elements with numbers in `range`, as the longest runs that are contiguous on `side`, in
    /// order.
    pub fn runs(&self, side: Side, range: Range<u64>) -> Runs {
        Runs::new(self, side, range)
    }

    /// True if the whole box is one run on `side`.
    pub fn is_contiguous(&self, side: Side) -> bool {
        self.run_dims(side).1 >= self.elements()
    }

    /// How many leading dimensions have to be stepped through, and the elements of a run.
    fn run_dims(&self, side: Side) -> (usize, u64) {
        let full = |dim: usize| {
            let size = self.size[dim];
            (side == Side::Dst || size == self.src_shape[dim])
                && (side == Side::Src || size == self.dst_shape[dim])
        };
        let mut outer = self.size.len();
        let mut run = 1;
        while outer > 0 {
            outer -= 1;
            run *= self.size[outer];
            if !full(outer) {
                break;
            }
        }
        // Dimensions of one element outside a run are no steps: they extend it.
        while outer > 0 && self.size[outer - 1] == 1 {
            outer -= 1;
        }
        (outer, run)
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

/// Iterator over the [`Run`]s of a range of a [`CopyBox`].
#[derive(Clone, Debug)]
pub struct Runs {
    size: Dims,
    src_strides: Dims,
    dst_strides: Dims,
    /// Dimensions before this one are stepped through.
    outer: usize,
    run: u64,
    at: Dims,
    /// Shard positions of the current run's first element.
    src: u64,
    dst: u64,
    /// Elements of the current run that lie before the range.
    skip: u64,
    packed: u64,
    left: u64,
}

impl Runs {
    fn new(copy: &CopyBox, side: Side, range: Range<u64>) -> Self {
        let (outer, run) = copy.run_dims(side);
        let src_strides = copy.src_shape.row_major_strides(1);
        let dst_strides = copy.dst_shape.row_major_strides(1);
        let stop = range.end.min(copy.elements());
        let left = stop.saturating_sub(range.start);
        let mut at = copy.size.zeros();
        let mut row = if left == 0 { 0 } else { range.start / run };
        for dim in (0..outer).rev() {
            at[dim] = row % copy.size[dim].max(1);
            row /= copy.size[dim].max(1);
        }
        let place = |start: &Dims, strides: &Dims| {
            (0..start.len()).map(|dim| (start[dim] + at[dim]) * strides[dim]).sum()
        };
        Self {
            size: copy.size,
            src: place(&copy.src_start, &src_strides),
            dst: place(&copy.dst_start, &dst_strides),
            src_strides,
            dst_strides,
            outer,
            run,
            at,
            skip: if left == 0 { 0 } else { range.start % run },
            packed: 0,
            left,
        }
    }

    fn step(&mut self) {
        for dim in (0..self.outer).rev() {
            self.at[dim] += 1;
            self.src += self.src_strides[dim];
            self.dst += self.dst_strides[dim];
            if self.at[dim] < self.size[dim] {
                return;
            }
            self.at[dim] = 0;
            self.src -= self.size[dim] * self.src_strides[dim];
            self.dst -= self.size[dim] * self.dst_strides[dim];
        }
    }
}

impl Iterator for Runs {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        if self.left == 0 {
            return None;
        }
        let count = (self.run - self.skip).min(self.left);
        let (src, dst) = (self.src + self.skip, self.dst + self.skip);
        let run = Run { src, dst, packed: self.packed, count };
        self.packed += count;
        self.left -= count;
        self.skip = 0;
        if self.left > 0 {
            self.step();
        }
        Some(run)
    }
}

#[cfg(test)]
mod tests;
