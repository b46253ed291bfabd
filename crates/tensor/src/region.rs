//! Regions: the exact set of bytes that a view touches.
//!
//! A [`Region`] is a run of bytes repeated along dimensions with positive strides. Dimensions that
//! continue one another are merged, so that views of different shapes, element types and orders
//! over the same bytes usually have the same region, and comparing two regions is mostly comparing
//! a few numbers.
//!
//! ```
//! use syncline_tensor::{Dtype, Region, View};
//!
//! let matrix = View::contiguous(Dtype::F32, &[64, 64])?;
//! let left = Region::of(&matrix.slice(1, 0..32)?);
//! let right = Region::of(&matrix.slice(1, 32..64)?);
//! let row = Region::of(&matrix.index(0, 7)?);
//! assert!(!left.overlaps(&right));
//! assert!(left.overlaps(&row) && right.overlaps(&row));
//! assert!(Region::of(&matrix).covers(&left));
//! # Ok::<(), syncline_tensor::ViewError>(())
//! ```

mod cut;
mod rows;
mod solve;

use std::fmt;

use self::rows::Rows;
use self::solve::{Answer, Sums};
use crate::{MAX_DIMS, View};

/// Steps that the solver may take for one pair of regions. Views of one tensor need fewer than ten;
/// only views with several strides that do not divide one another come near it.
const SOLVER_STEPS: u32 = 4096;

/// The answer to whether two regions overlap, and how it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlapTest {
    /// Some byte is in both regions, or the solver gave up.
    pub overlaps: bool,
    /// The integer solver was needed.
    pub solved: bool,
    /// The solver gave up. The regions then count as overlapping, which is safe but may order too
    /// much.
    pub exhausted: bool,
}

impl OverlapTest {
    const fn plain(overlaps: bool) -> Self {
        Self { overlaps, solved: false, exhausted: false }
    }
}

/// The bytes of a [`View`] in canonical form.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    start: u64,
    /// The byte after the last one; equal to `start` when there is none.
    end: u64,
    /// Bytes that follow one another at each place.
    run: u64,
    // Largest stride first; places past `rank` are zero, so that the derived comparisons are right.
    counts: [u64; MAX_DIMS],
    strides: [u64; MAX_DIMS],
    rank: u8,
}

impl Region {
    /// The bytes that `view` touches.
    pub fn of(view: &View) -> Self {
        let Some((start, end)) = view.span() else { return Self::EMPTY };
        let mut dims = [(0u64, 0u64); MAX_DIMS];
        let mut rank = 0;
        for (&count, &stride) in view.shape().iter().zip(view.strides()) {
            if count > 1 && stride != 0 {
                dims[rank] = (stride.unsigned_abs(), count);
                rank += 1;
            }
        }
        let dims = &mut dims[..rank];
        dims.sort_unstable();
        Self::merged(start, end, view.dtype().bytes(), dims)
    }

    const EMPTY: Self =
        Self { start: 0, end: 0, run: 0, counts: [0; MAX_DIMS], strides: [0; MAX_DIMS], rank: 0 };

    /// Merges `dims`, smallest stride first, into the run and into one another.
    ///
    /// A dimension whose stride is `k` times that of the one inside it, with `k` at most the inner
    /// count, only makes the inner progression longer; the ordinary case is `k` equal to the count.
    fn merged(start: u64, end: u64, mut run: u64, dims: &[(u64, u64)]) -> Self {
        let mut kept = [(0u64, 0u64); MAX_DIMS];
        let mut rank = 0;
        for &(stride, count) in dims {
            if rank == 0 && stride <= run {
                run += stride * (count - 1);
                continue;
            }
            if rank > 0 {
                let (inner, length) = kept[rank - 1];
                if stride.is_multiple_of(inner) && stride / inner <= length {
                    kept[rank - 1].1 = stride / inner * (count - 1) + length;
                    continue;
                }
            }
            kept[rank] = (stride, count);
            rank += 1;
        }
        let mut region = Self { start, end, run, rank: rank as u8, ..Self::EMPTY };
        for (to, &(stride, count)) in kept[..rank].iter().rev().enumerate() {
            region.strides[to] = stride;
            region.counts[to] = count;
        }
        region
    }

    /// The first byte.
    #[inline]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// The byte after the last one.
    #[inline]
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Whether no byte is in the region.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.run == 0
    }

    /// Whether the region is one run without gaps.
    #[inline]
    pub const fn is_contiguous(&self) -> bool {
        self.rank == 0
    }

    /// Bytes that follow one another at each place.
    #[inline]
    pub const fn run_bytes(&self) -> u64 {
        self.run
    }

    /// The strides between runs, largest first, and how often each is taken.
    #[inline]
    pub fn dims(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        let rank = self.rank as usize;
        self.strides[..rank].iter().copied().zip(self.counts[..rank].iter().copied())
    }

    /// Returns `true` if some byte is in both regions. Exact, except where the solver gives up:
    /// see [`Region::test_overlap`].
    #[inline]
    pub fn overlaps(&self, other: &Region) -> bool {
        self.test_overlap(other).overlaps
    }

    /// Returns whether some byte is in both regions, and how the answer was found.
    #[inline]
    pub fn test_overlap(&self, other: &Region) -> OverlapTest {
        if self.start >= other.end || other.start >= self.end {
            return OverlapTest::plain(false);
        }
        if self.rank == 0 && other.rank == 0 {
            return OverlapTest::plain(true);
        }
        if let Some(rows) = Rows::of_pair(self, other) {
            return OverlapTest::plain(rows.meet());
        }
        self.solve(other)
    }

    fn solve(&self, other: &Region) -> OverlapTest {
        let answer =
            Sums::of_pair(self, other).map_or(Answer::GaveUp, |sums| sums.solve(SOLVER_STEPS));
        OverlapTest {
            overlaps: answer != Answer::No,
            solved: true,
            exhausted: answer == Answer::GaveUp,
        }
    }

    /// Whether every byte of `other` is certainly in this region.
    ///
    /// `true` is always right. `false` may also mean that `other` lies in this region in a way that
    /// is not seen by writing its strides as multiples of this region's; nothing but a little work
    /// is lost then.
    pub fn covers(&self, other: &Region) -> bool {
        if other.is_empty() {
            return true;
        }
        if other.start < self.start || other.end > self.end {
            return false;
        }
        if self.rank == 0 || self == other {
            return true;
        }
        self.embeds(other)
    }

    /// Writes every place of `other` as indices into this region's dimensions plus a place in its
    /// run.
    fn embeds(&self, other: &Region) -> bool {
        let mut first = other.start - self.start;
        let mut theirs = other.dims().peekable();
        for (stride, count) in self.dims() {
            let mut last_index = first / stride;
            first %= stride;
            while let Some(&(their_stride, their_count)) = theirs.peek() {
                if their_stride < stride {
                    break;
                }
                if !their_stride.is_multiple_of(stride) {
                    return false;
                }
                // Inside this region's span, hence far from overflow.
                last_index += their_stride / stride * (their_count - 1);
                theirs.next();
            }
            if last_index >= count {
                return false;
            }
        }
        let rest: u64 = theirs.map(|(stride, count)| stride * (count - 1)).sum();
        first + rest + other.run <= self.run
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)?;
        for (stride, count) in self.dims() {
            write!(f, " {count}x{stride}")?;
        }
        write!(f, " run {}", self.run)
    }
}

#[cfg(test)]
mod tests;
