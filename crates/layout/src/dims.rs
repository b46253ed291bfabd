//! Small vectors of sizes and positions, and the boxes they span.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

use syncline_tensor::MAX_DIMS;

/// One number per dimension, at most [`MAX_DIMS`] of them, kept inline.
///
/// ```
/// use syncline_layout::Dims;
///
/// let shape = Dims::from_slice(&[4, 6]).unwrap();
/// assert_eq!(shape.volume(), 24);
/// assert_eq!(&shape[..], [4, 6]);
/// assert!(Dims::from_slice(&[1; 9]).is_none());
/// ```
#[derive(Clone, Copy, Eq, PartialOrd, Ord)]
pub struct Dims {
    count: u8,
    // Positions past `count` stay zero, so that the derived order holds.
    values: [u64; MAX_DIMS],
}

impl Dims {
    /// `count` times `value`; `None` past [`MAX_DIMS`].
    pub fn splat(count: usize, value: u64) -> Option<Self> {
        let mut dims = Self { count: u8::try_from(count).ok()?, values: [0; MAX_DIMS] };
        dims.values.get_mut(..count)?.fill(value);
        Some(dims)
    }

    /// The numbers of `values`; `None` if there are more than [`MAX_DIMS`].
    pub fn from_slice(values: &[u64]) -> Option<Self> {
        let mut dims = Self::splat(values.len(), 0)?;
        dims.copy_from_slice(values);
        Some(dims)
    }

    /// As many zeros as `self` has numbers.
    pub fn zeros(&self) -> Self {
        Self { count: self.count, values: [0; MAX_DIMS] }
    }

    /// The product; 1 without dimensions. Layouts are checked so that it cannot overflow there.
    pub fn volume(&self) -> u64 {
        self.iter().product()
    }

    /// The product, or `None` where it does not fit.
    pub fn checked_volume(&self) -> Option<u64> {
        if self.contains(&0) {
            return Some(0);
        }
        self.iter().try_fold(1u64, |volume, &size| volume.checked_mul(size))
    }

    /// Strides of a dense row-major array of this shape, in units of `element` (bytes, or 1 for
    /// elements).
    pub fn row_major_strides(&self, element: u64) -> Self {
        let mut strides = self.zeros();
        let mut stride = element;
        for dim in (0..self.len()).rev() {
            strides[dim] = stride;
            stride *= self[dim];
        }
        strides
    }

    /// Returns the numbers as signed ones, the largest possible where they do not fit. Those past
    /// the last are 0.
    pub fn to_signed(&self) -> [i64; MAX_DIMS] {
        self.values.map(|value| i64::try_from(value).unwrap_or(i64::MAX))
    }
}

// Comparing and hashing the dimensions, not the room for more: most tensors have one or two
// dimensions.
impl PartialEq for Dims {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Hash for Dims {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.len());
        self.iter().for_each(|&value| state.write_u64(value));
    }
}

impl Deref for Dims {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.values[..usize::from(self.count)]
    }
}

impl DerefMut for Dims {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.values[..usize::from(self.count)]
    }
}

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self[..], f)
    }
}

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self[..], f)
    }
}

/// A box of elements: where it starts and how far it reaches in every dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NdBox {
    /// First element.
    pub start: Dims,
    /// Number of elements in each dimension.
    pub size: Dims,
}

impl NdBox {
    /// The whole of an array of `shape`.
    pub fn whole(shape: Dims) -> Self {
        Self { start: shape.zeros(), size: shape }
    }

    /// One past the last element of `dim`.
    pub fn stop(&self, dim: usize) -> u64 {
        self.start[dim] + self.size[dim]
    }

    /// Number of elements.
    pub fn volume(&self) -> u64 {
        self.size.volume()
    }

    /// True if it holds no element.
    pub fn is_empty(&self) -> bool {
        self.size.contains(&0)
    }

    /// What both hold, or `None` if that is nothing.
    pub fn intersection(&self, other: &NdBox) -> Option<NdBox> {
        let mut both = *self;
        for dim in 0..self.start.len() {
            let start = self.start[dim].max(other.start[dim]);
            let stop = self.stop(dim).min(other.stop(dim));
            if start >= stop {
                return None;
            }
            both.start[dim] = start;
            both.size[dim] = stop - start;
        }
        Some(both)
    }

    /// Whether the two share an element.
    pub fn overlaps(&self, other: &NdBox) -> bool {
        (0..self.start.len())
            .all(|dim| self.start[dim].max(other.start[dim]) < self.stop(dim).min(other.stop(dim)))
    }

    /// Calls `emit` with disjoint boxes that together are `self` without `hole`.
    pub fn subtract(&self, hole: &NdBox, mut emit: impl FnMut(NdBox)) {
        let Some(hole) = self.intersection(hole) else {
            if !self.is_empty() {
                emit(*self);
            }
            return;
        };
        let mut rest = *self;
        for dim in 0..rest.start.len() {
            let (start, stop) = (rest.start[dim], rest.stop(dim));
            let (cut_start, cut_stop) = (hole.start[dim], hole.stop(dim));
            if start < cut_start {
                let mut before = rest;
                before.size[dim] = cut_start - start;
                emit(before);
            }
            if cut_stop < stop {
                let mut after = rest;
                after.start[dim] = cut_stop;
                after.size[dim] = stop - cut_stop;
                emit(after);
            }
            rest.start[dim] = cut_start;
            rest.size[dim] = cut_stop - cut_start;
        }
    }
}

impl fmt::Display for NdBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for dim in 0..self.start.len() {
            let comma = if dim == 0 { "" } else { ", " };
            write!(f, "{comma}{}:{}", self.start[dim], self.stop(dim))?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(start: [u64; 2], size: [u64; 2]) -> NdBox {
        NdBox { start: Dims::from_slice(&start).unwrap(), size: Dims::from_slice(&size).unwrap() }
    }

    #[test]
    fn touching_boxes_share_nothing() {
        assert_eq!(of([0, 0], [2, 4]).intersection(&of([2, 0], [2, 4])), None);
        assert_eq!(of([0, 0], [3, 4]).intersection(&of([2, 1], [2, 9])), Some(of([2, 1], [1, 3])));
    }

    #[test]
    fn a_box_without_its_middle_is_a_frame() {
        let mut rest = Vec::new();
        of([0, 0], [4, 4]).subtract(&of([1, 1], [2, 2]), |part| rest.push(part));
        assert_eq!(rest.iter().map(NdBox::volume).sum::<u64>(), 12);
        for (index, part) in rest.iter().enumerate() {
            assert!(rest[index + 1..].iter().all(|other| part.intersection(other).is_none()));
        }
    }

    #[test]
    fn scalars_are_boxes_of_one_element() {
        let scalar = NdBox::whole(Dims::from_slice(&[]).unwrap());
        assert_eq!(scalar.volume(), 1);
        assert_eq!(scalar.intersection(&scalar), Some(scalar));
        scalar.subtract(&scalar, |rest| panic!("{rest} is left"));
    }
}
