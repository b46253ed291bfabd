//! Views: how an argument lies in its buffer.
//!
//! A [`View`] is a dtype, a shape, strides in bytes and an offset in bytes. Slicing, splitting and
//! transposing change these numbers only; no element moves.
//!
//! ```
//! use syncline_tensor::{Dtype, View};
//!
//! let matrix = View::contiguous(Dtype::F32, &[64, 64])?;
//! let tile = matrix.slice(0, 16..32)?.slice(1, 0..16)?;
//! assert_eq!(tile.shape(), [16, 16]);
//! assert_eq!(tile.strides(), [256, 4]);
//! assert_eq!(tile.span(), Some((16 * 256, 31 * 256 + 64)));
//! # Ok::<(), syncline_tensor::ViewError>(())
//! ```

use std::fmt;
use std::ops::Range;

use crate::Dtype;

/// The largest number of dimensions that a view may have.
pub const MAX_DIMS: usize = 8;

/// Which bytes of a buffer an argument means, and in which order.
///
/// Every view that exists has been checked: at most [`MAX_DIMS`] dimensions, no byte before the
/// buffer's start, and no arithmetic that overflows. Whether it ends inside its buffer is checked
/// where the two meet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct View {
    offset: u64,
    // Dimensions past `rank` are zero, so that the derived comparisons are right.
    shape: [u64; MAX_DIMS],
    strides: [i64; MAX_DIMS],
    rank: u8,
    dtype: Dtype,
}

/// Why a view cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ViewError {
    #[error("a view of {dims} dimensions: at most {MAX_DIMS} are supported")]
    TooManyDims { dims: usize },
    #[error("a shape of {shape} dimensions with {strides} strides: there must be as many of both")]
    RankMismatch { shape: usize, strides: usize },
    #[error("the view's size or place does not fit in 63 bits")]
    Overflow,
    #[error("the view begins {bytes} bytes before its buffer")]
    BeforeStart { bytes: u64 },
    #[error("dimension {dim} of a view that has {dims}")]
    NoSuchDim { dim: usize, dims: usize },
    #[error("range {start}..{end} of dimension {dim}, which has {size} elements")]
    OutOfRange { dim: usize, start: u64, end: u64, size: u64 },
    #[error("{parts} equal parts of dimension {dim}, which has {size} elements")]
    UnevenSplit { dim: usize, parts: u64, size: u64 },
    #[error("{order:?} is not an order of {dims} dimensions")]
    NotAPermutation { order: Vec<usize>, dims: usize },
    #[error("a view of {from} elements cannot take a shape of {to}")]
    ReshapeCount { from: u64, to: u64 },
    #[error("this shape would need elements to move: copy the view to a contiguous one first")]
    ReshapeNeedsCopy,
}

impl View {
    /// All elements one after the other from the start of a buffer, the last dimension fastest.
    pub fn contiguous(dtype: Dtype, shape: &[u64]) -> Result<Self, ViewError> {
        if shape.len() > MAX_DIMS {
            return Err(ViewError::TooManyDims { dims: shape.len() });
        }
        let mut strides = [0i64; MAX_DIMS];
        let mut stride = dtype.bytes();
        for dim in (0..shape.len()).rev() {
            strides[dim] = i64::try_from(stride).map_err(|_| ViewError::Overflow)?;
            stride = stride.checked_mul(shape[dim].max(1)).ok_or(ViewError::Overflow)?;
        }
        Self::strided(dtype, 0, shape, &strides[..shape.len()])
    }

    /// `bytes` bytes from `offset` on.
    pub fn bytes_at(offset: u64, bytes: u64) -> Result<Self, ViewError> {
        Self::strided(Dtype::U8, offset, &[bytes], &[1])
    }

    /// Any view: the byte offset of its first element, its shape, and its strides in bytes.
    pub fn strided(
        dtype: Dtype,
        offset: u64,
        shape: &[u64],
        strides: &[i64],
    ) -> Result<Self, ViewError> {
        if shape.len() > MAX_DIMS {
            return Err(ViewError::TooManyDims { dims: shape.len() });
        }
        if shape.len() != strides.len() {
            return Err(ViewError::RankMismatch { shape: shape.len(), strides: strides.len() });
        }
        let mut view = Self {
            offset,
            shape: [0; MAX_DIMS],
            strides: [0; MAX_DIMS],
            rank: shape.len() as u8,
            dtype,
        };
        view.shape[..shape.len()].copy_from_slice(shape);
        view.strides[..strides.len()].copy_from_slice(strides);
        view.checked_elements()?;
        view.checked_span()?;
        Ok(view)
    }

    /// The view that had these numbers: they were checked then.
    #[inline]
    pub(crate) fn unpacked(
        dtype: Dtype,
        offset: u64,
        dims: impl ExactSizeIterator<Item = (u64, i64)>,
    ) -> Self {
        let rank = dims.len() as u8;
        let mut view = Self { offset, shape: [0; MAX_DIMS], strides: [0; MAX_DIMS], rank, dtype };
        for (dim, (size, stride)) in dims.enumerate() {
            (view.shape[dim], view.strides[dim]) = (size, stride);
        }
        view
    }

    /// Becomes equal to `other`. Cheaper than a copy where the two have few dimensions, as most
    /// have.
    #[inline]
    pub fn assign(&mut self, other: &Self) {
        const FEW: usize = 2;
        // Every number past both ranks is zero in both.
        let dims = usize::from(self.rank.max(other.rank));
        (self.offset, self.rank, self.dtype) = (other.offset, other.rank, other.dtype);
        if dims <= FEW {
            for dim in 0..FEW {
                (self.shape[dim], self.strides[dim]) = (other.shape[dim], other.strides[dim]);
            }
        } else {
            (self.shape, self.strides) = (other.shape, other.strides);
        }
    }

    /// The element type.
    #[inline]
    pub const fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Byte offset of the element whose indices are all zero.
    #[inline]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Elements along each dimension.
    #[inline]
    pub fn shape(&self) -> &[u64] {
        &self.shape[..self.rank as usize]
    }

    /// Bytes from one element to the next along each dimension.
    #[inline]
    pub fn strides(&self) -> &[i64] {
        &self.strides[..self.rank as usize]
    }

    /// Shape and strides as they are stored: zero past the rank.
    #[inline]
    pub const fn stored(&self) -> (&[u64; MAX_DIMS], &[i64; MAX_DIMS]) {
        (&self.shape, &self.strides)
    }

    /// Number of dimensions.
    #[inline]
    pub const fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Number of elements.
    #[inline]
    pub fn elements(&self) -> u64 {
        // Beside a size of zero, others may be of any size.
        if self.is_empty() { 0 } else { self.shape().iter().product() }
    }

    /// Bytes of all elements together.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.elements() * self.dtype.bytes()
    }

    /// Whether there is no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }

    /// Whether one byte may belong to several elements because a dimension does not advance.
    #[inline]
    pub fn is_broadcast(&self) -> bool {
        self.shape().iter().zip(self.strides()).any(|(&size, &stride)| size > 1 && stride == 0)
    }

    /// Whether some byte may belong to several elements. `false` is always right; `true` may also
    /// mean that the strides interleave in a way that is not analysed, which slices of a
    /// contiguous tensor never do.
    pub fn shares_bytes(&self) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut dims = [(0u64, 0u64); MAX_DIMS];
        let mut rank = 0;
        for (&size, &stride) in self.shape().iter().zip(self.strides()) {
            if size > 1 {
                dims[rank] = (stride.unsigned_abs(), size);
                rank += 1;
            }
        }
        dims[..rank].sort_unstable();
        // The bytes from the first element to the end of the last, over the smaller strides.
        let mut reach = self.dtype.bytes();
        dims[..rank].iter().any(|&(stride, size)| {
            let shares = stride < reach;
            // Inside the span of a checked view.
            reach += if shares { 0 } else { stride * (size - 1) };
            shares
        })
    }

    /// Whether the elements follow one another without a gap, the last dimension fastest.
    pub fn is_contiguous(&self) -> bool {
        let mut stride = self.dtype.bytes();
        for dim in (0..self.rank()).rev() {
            if self.shape[dim] != 1 && self.strides[dim] != stride as i64 && !self.is_empty() {
                return false;
            }
            stride = stride.saturating_mul(self.shape[dim]);
        }
        true
    }

    /// First byte touched and the byte after the last one; `None` for an empty view.
    pub fn span(&self) -> Option<(u64, u64)> {
        self.checked_span().expect("checked when the view was made")
    }

    /// Elements `range` of dimension `dim`.
    pub fn slice(&self, dim: usize, range: Range<u64>) -> Result<Self, ViewError> {
        self.check_dim(dim)?;
        let size = self.shape[dim];
        if range.start > range.end || range.end > size {
            return Err(ViewError::OutOfRange { dim, start: range.start, end: range.end, size });
        }
        let mut view = *self;
        view.shape[dim] = range.end - range.start;
        if !view.is_empty() {
            // In range of a checked view: the sum is the place of one of its elements.
            let place = self.offset as i128 + range.start as i128 * self.strides[dim] as i128;
            view.offset = u64::try_from(place).map_err(|_| ViewError::Overflow)?;
        }
        Ok(view)
    }

    /// The part of dimension `dim` at `index`, without that dimension.
    pub fn index(&self, dim: usize, index: u64) -> Result<Self, ViewError> {
        let end = index.checked_add(1).ok_or(ViewError::Overflow)?;
        let one = self.slice(dim, index..end)?;
        let mut view = one;
        view.rank -= 1;
        for after in dim..MAX_DIMS {
            view.shape[after] = *one.shape.get(after + 1).unwrap_or(&0);
            view.strides[after] = *one.strides.get(after + 1).unwrap_or(&0);
        }
        Ok(view)
    }

    /// Part `part` of `parts` equal ones along dimension `dim`.
    pub fn split(&self, dim: usize, parts: u64, part: u64) -> Result<Self, ViewError> {
        self.check_dim(dim)?;
        let size = self.shape[dim];
        if parts == 0 || !size.is_multiple_of(parts) {
            return Err(ViewError::UnevenSplit { dim, parts, size });
        }
        let step = size / parts;
        let start = part.checked_mul(step).ok_or(ViewError::Overflow)?;
        self.slice(dim, start..start.checked_add(step).ok_or(ViewError::Overflow)?)
    }

    /// The same elements with dimensions `a` and `b` exchanged.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Self, ViewError> {
        self.check_dim(a)?;
        self.check_dim(b)?;
        let mut view = *self;
        view.shape.swap(a, b);
        view.strides.swap(a, b);
        Ok(view)
    }

    /// The same elements, dimension `i` of the result being dimension `order[i]` of this view.
    pub fn permute(&self, order: &[usize]) -> Result<Self, ViewError> {
        let refused = || ViewError::NotAPermutation { order: order.to_vec(), dims: self.rank() };
        if order.len() != self.rank() {
            return Err(refused());
        }
        let (mut view, mut seen) = (*self, [false; MAX_DIMS]);
        for (to, &from) in order.iter().enumerate() {
            if from >= self.rank() || seen[from] {
                return Err(refused());
            }
            seen[from] = true;
            view.shape[to] = self.shape[from];
            view.strides[to] = self.strides[from];
        }
        Ok(view)
    }

    /// The same elements in the same order under another shape, where strides can say so.
    pub fn reshape(&self, shape: &[u64]) -> Result<Self, ViewError> {
        if shape.len() > MAX_DIMS {
            return Err(ViewError::TooManyDims { dims: shape.len() });
        }
        let to = checked_product(shape)?;
        if to != self.elements() {
            return Err(ViewError::ReshapeCount { from: self.elements(), to });
        }
        if self.is_empty() {
            let strides = [self.dtype.bytes() as i64; MAX_DIMS];
            return Self::strided(self.dtype, self.offset, shape, &strides[..shape.len()]);
        }
        let strides = self.reshaped_strides(shape).ok_or(ViewError::ReshapeNeedsCopy)?;
        Self::strided(self.dtype, self.offset, shape, &strides[..shape.len()])
    }

    /// Walks both shapes from the last dimension on: every run of old dimensions that is taken
    /// together by a run of new ones must advance evenly.
    fn reshaped_strides(&self, shape: &[u64]) -> Option<[i64; MAX_DIMS]> {
        let old: Vec<(u64, i64)> =
            (self.shape().iter().copied().zip(self.strides().iter().copied()))
                .filter(|&(size, _)| size != 1)
                .collect();
        let mut strides = [self.dtype.bytes() as i64; MAX_DIMS];
        let (mut old_end, mut new_end) = (old.len(), shape.len());
        while new_end > 0 {
            if old_end == 0 {
                // The rest has one element: any stride will do.
                new_end -= 1;
                continue;
            }
            let (mut old_at, mut new_at) = (old_end - 1, new_end - 1);
            let (mut old_count, mut new_count) = (old[old_at].0, shape[new_at]);
            while old_count != new_count {
                if old_count < new_count {
                    old_at = old_at.checked_sub(1)?;
                    if old[old_at].1 != old[old_at + 1].1.checked_mul(old[old_at + 1].0 as i64)? {
                        return None;
                    }
                    old_count *= old[old_at].0;
                } else {
                    new_at = new_at.checked_sub(1)?;
                    new_count *= shape[new_at];
                }
            }
            let mut stride = old[old_end - 1].1;
            for dim in (new_at..new_end).rev() {
                strides[dim] = stride;
                stride = stride.checked_mul(shape[dim] as i64)?;
            }
            (old_end, new_end) = (old_at, new_at);
        }
        Some(strides)
    }

    fn check_dim(&self, dim: usize) -> Result<(), ViewError> {
        if dim >= self.rank() {
            return Err(ViewError::NoSuchDim { dim, dims: self.rank() });
        }
        Ok(())
    }

    fn checked_elements(&self) -> Result<u64, ViewError> {
        let elements = checked_product(self.shape())?;
        let bytes = elements.checked_mul(self.dtype.bytes()).ok_or(ViewError::Overflow)?;
        i64::try_from(bytes).map(|_| elements).map_err(|_| ViewError::Overflow)
    }

    fn checked_span(&self) -> Result<Option<(u64, u64)>, ViewError> {
        if self.is_empty() {
            return Ok(None);
        }
        let (mut low, mut high) = (i128::from(self.offset), i128::from(self.offset));
        for (&size, &stride) in self.shape().iter().zip(self.strides()) {
            // At most 8 summands below 2^127 / 8 cannot be had: each factor is below 2^64 and 2^63.
            let reach =
                i128::from(size - 1).checked_mul(stride.into()).ok_or(ViewError::Overflow)?;
            let end = if reach < 0 { &mut low } else { &mut high };
            *end = end.checked_add(reach).ok_or(ViewError::Overflow)?;
        }
        if low < 0 {
            let bytes = u64::try_from(-low).unwrap_or(u64::MAX);
            return Err(ViewError::BeforeStart { bytes });
        }
        let end = i64::try_from(high + i128::from(self.dtype.bytes()))
            .map_err(|_| ViewError::Overflow)?;
        Ok(Some((low as u64, end as u64)))
    }
}

/// The product of the sizes, zero if any is zero, however large the others are.
fn checked_product(shape: &[u64]) -> Result<u64, ViewError> {
    if shape.contains(&0) {
        return Ok(0);
    }
    shape
        .iter()
        .try_fold(1u64, |product, &size| product.checked_mul(size))
        .ok_or(ViewError::Overflow)
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}@{}/{:?}", self.dtype, self.shape(), self.offset, self.strides())
    }
}

#[cfg(test)]
mod tests {
    use syncline_testing::for_seeds;

    use super::*;

    #[test]
    fn shared_bytes_are_found() {
        let mut disjoint = 0;
        for_seeds("shared_bytes_are_found", 500, |rng| {
            let rank = rng.range(0..4) as usize;
            let shape: Vec<u64> = (0..rank).map(|_| rng.range(0..4)).collect();
            let strides: Vec<i64> = (0..rank).map(|_| rng.range(0..41) as i64 - 20).collect();
            let dtype = *rng.pick(&[Dtype::U8, Dtype::F16, Dtype::F32]);
            let view = View::strided(dtype, 400, &shape, &strides).expect("small");
            let mut bytes = vec![0; 800];
            let mut shared = false;
            for element in 0..view.elements() {
                let (mut rest, mut place) = (element, view.offset() as i64);
                for (&size, &stride) in shape.iter().zip(&strides).rev() {
                    place += (rest % size) as i64 * stride;
                    rest /= size;
                }
                for byte in &mut bytes[place as usize..][..dtype.bytes() as usize] {
                    shared |= *byte == 1;
                    *byte = 1;
                }
            }
            assert!(!shared || view.shares_bytes(), "{view:?}");
            disjoint += u32::from(!view.shares_bytes());
        });
        assert!(disjoint > 50, "{disjoint}");
        let matrix = View::contiguous(Dtype::F32, &[6, 5, 4]).expect("small");
        let part = matrix.slice(1, 1..3).and_then(|view| view.transpose(0, 2)).expect("inside");
        assert!(!matrix.shares_bytes() && !part.shares_bytes());
    }

    #[test]
    fn an_assigned_view_equals_the_other_whatever_it_was_before() {
        let mut view = View::contiguous(Dtype::F32, &[2, 3]).expect("small");
        for_seeds("an_assigned_view_equals_the_other_whatever_it_was_before", 300, |rng| {
            let rank = rng.range(0..1 + MAX_DIMS as u64) as usize;
            let shape: Vec<u64> = (0..rank).map(|_| rng.range(1..4)).collect();
            let other = View::contiguous(*rng.pick(&Dtype::ALL), &shape).expect("small");
            view.assign(&other);
            // The derived comparison also compares the numbers past the rank.
            assert_eq!(view, other);
        });
    }
}
