//! Cutting: the bytes of a region that another one leaves.
//!
//! Both regions are written as boxes of one lattice: the strides of both, each a multiple of the
//! next smaller one, are the digits of every place, and a region is a few boxes of digits. Tiles,
//! rows, columns and blocks of one tensor, and runs of bytes of any length, have such a lattice.
//! For other pairs, few runs of one region are cut one by one; past that the answer is that there
//! is none.

use super::Region;
use super::rows::Rows;
use super::solve::PLACE_MAX;
use crate::MAX_DIMS;

/// Digits of a place: the strides of both regions, and the byte.
const LEVELS: usize = MAX_DIMS + 1;

/// Runs that are cut one by one where two regions have no common lattice.
const RUNS_MAX: u64 = 16;

/// Neither region takes more boxes of the lattice than this.
const BOXES_MAX: usize = 12;

impl Region {
    /// Appends the bytes of this region that are not in `other` to `parts`, as regions that do not
    /// overlap. Returns `false`, and appends nothing, if they cannot be written as few regions.
    ///
    /// ```
    /// use syncline_tensor::{Dtype, Region, View};
    ///
    /// let matrix = View::contiguous(Dtype::F32, &[64, 64])?;
    /// let rows = Region::of(&matrix.slice(0, 8..16)?);
    /// let mut parts = Vec::new();
    /// assert!(rows.without(&Region::of(&matrix.slice(1, 16..64)?), &mut parts));
    /// assert_eq!(parts, [Region::of(&matrix.slice(0, 8..16)?.slice(1, 0..16)?)]);
    /// # Ok::<(), syncline_tensor::ViewError>(())
    /// ```
    #[must_use]
    pub fn without(&self, other: &Region, parts: &mut Vec<Region>) -> bool {
        if self.start >= other.end || other.start >= self.end {
            parts.push(*self);
            return true;
        }
        if other.rank == 0 && (self.rank == 0 || other.covers(self)) {
            if self.start < other.start {
                parts.push(Self::of_run(self.start, other.start));
            }
            if other.end < self.end {
                parts.push(Self::of_run(other.end, self.end));
            }
            return true;
        }
        let before = parts.len();
        let done = self.end.max(other.end) <= PLACE_MAX
            && (self.without_rows(other, parts)
                || self.without_box(other, parts)
                || self.without_runs(other, parts));
        if !done {
            parts.truncate(before);
        }
        done
    }

    fn of_run(start: u64, end: u64) -> Self {
        Self { start, end, run: end - start, ..Self::EMPTY }
    }

    /// The common case of two boxes of one matrix, that do not come round its edge.
    fn without_rows(&self, other: &Region, parts: &mut Vec<Region>) -> bool {
        let Some(rows) = Rows::of_pair(self, other) else { return false };
        let Some((top, left)) = rows.corner() else { return false };
        let (count, run) = (rows.own.count, rows.own.run);
        let (bottom, right) = (top + rows.other.count, left + rows.other.run);
        let (top, bottom, left, right) =
            (top.max(0), bottom.min(count), left.max(0), right.min(run));
        if top >= bottom || left >= right {
            parts.push(*self);
            return true;
        }
        let mut push = |top: i64, bottom: i64, left: i64, right: i64| {
            if top < bottom && left < right {
                let start = self.start + (top * rows.pitch + left) as u64;
                let reach = (bottom - top - 1) * rows.pitch + right - left;
                let dims = [(rows.pitch as u64, (bottom - top) as u64)];
                let dims = if bottom - top > 1 { &dims[..] } else { &[] };
                let run = (right - left) as u64;
                parts.push(Self::merged(start, start + reach as u64, run, dims));
            }
        };
        push(0, top, 0, run);
        push(top, bottom, 0, left);
        push(top, bottom, right, run);
        push(bottom, count, 0, run);
        true
    }

    fn without_box(&self, other: &Region, parts: &mut Vec<Region>) -> bool {
        let Some(lattice) = Lattice::of(self, other) else { return false };
        let (mut own, mut theirs) = (Boxes::default(), Boxes::default());
        if !lattice.lift(self, &mut own) || !lattice.lift(other, &mut theirs) {
            return false;
        }
        own.list().iter().for_each(|of_own| lattice.cut(*of_own, theirs.list(), parts));
        true
    }

    /// Cuts every run by itself: one run and a region with a lattice always have a common one.
    fn without_runs(&self, other: &Region, parts: &mut Vec<Region>) -> bool {
        let runs = self.dims().try_fold(1u64, |runs, (_, count)| runs.checked_mul(count));
        let Some(runs) = runs.filter(|&runs| self.rank > 0 && runs <= RUNS_MAX) else {
            return false;
        };
        (0..runs).all(|run| {
            let (mut rest, mut start) = (run, self.start);
            for (stride, count) in self.dims() {
                start += rest % count * stride;
                rest /= count;
            }
            // Runs that overlap one another would be counted twice.
            let run = Self::of_run(start, start + self.run);
            self.runs_are_apart() && run.without(other, parts)
        })
    }

    /// Returns `true` if every stride steps over all that the smaller ones reach.
    fn runs_are_apart(&self) -> bool {
        let mut reach = self.run;
        self.dims().rev().all(|(stride, count)| {
            let apart = stride >= reach;
            reach += stride * (count - 1);
            apart
        })
    }

    /// The union of two regions that do not overlap, if it is one region and seen to be.
    pub fn joined(&self, other: &Region) -> Option<Region> {
        let (first, next) = if self.start <= other.start { (self, other) } else { (other, self) };
        let distance = next.start - first.start;
        let (mut dims, mut rank) = ([(0u64, 0u64); MAX_DIMS], 0);
        let (mut ours, mut theirs) = (first.dims().rev().peekable(), next.dims().rev().peekable());
        let along_run = distance == first.run;
        let mut joins = usize::from(along_run);
        loop {
            let stride = match (ours.peek(), theirs.peek()) {
                (Some(a), Some(b)) => a.0.min(b.0),
                (Some(a), None) => a.0,
                (None, Some(b)) => b.0,
                (None, None) => break,
            };
            let count_a = ours.next_if(|dim| dim.0 == stride).map_or(1, |dim| dim.1);
            let count_b = theirs.next_if(|dim| dim.0 == stride).map_or(1, |dim| dim.1);
            let abuts = !along_run && distance == stride * count_a;
            if !abuts && count_a != count_b || rank == MAX_DIMS {
                return None;
            }
            joins += usize::from(abuts);
            dims[rank] = (stride, if abuts { count_a + count_b } else { count_a });
            rank += 1;
        }
        if joins != 1 || !along_run && first.run != next.run {
            return None;
        }
        let run = if along_run { first.run + next.run } else { first.run };
        let end = first.end.max(next.end);
        Some(Self::merged(first.start, end, run, &dims[..rank]))
    }
}

/// The first and the last digit of each level, and how many there are.
type Digits = [(i64, i64); LEVELS];

#[derive(Default)]
struct Boxes {
    boxes: [Digits; BOXES_MAX],
    len: usize,
}

impl Boxes {
    fn list(&self) -> &[Digits] {
        &self.boxes[..self.len]
    }

    /// Returns `false` if there is no room.
    fn push(&mut self, digits: Digits) -> bool {
        let Some(place) = self.boxes.get_mut(self.len) else { return false };
        *place = digits;
        self.len += 1;
        true
    }
}

/// Places as digits, counted from an origin. The first digit has no bounds.
struct Lattice {
    origin: u64,
    // Largest first; the last one is 1.
    units: [i64; LEVELS],
    levels: usize,
}

impl Lattice {
    /// The strides of both regions, if each is a multiple of the next smaller one.
    fn of(a: &Region, b: &Region) -> Option<Self> {
        let mut lattice = Self { origin: a.start, units: [0; LEVELS], levels: 0 };
        let (mut ours, mut theirs) = (a.dims().peekable(), b.dims().peekable());
        loop {
            let stride = match (ours.peek(), theirs.peek()) {
                (Some(a), Some(b)) => a.0.max(b.0),
                (Some(a), None) => a.0,
                (None, Some(b)) => b.0,
                (None, None) => break,
            };
            ours.next_if(|dim| dim.0 == stride);
            theirs.next_if(|dim| dim.0 == stride);
            if stride > 1 {
                lattice.add(stride as i64)?;
            }
        }
        lattice.add(1)?;
        Some(lattice)
    }

    fn add(&mut self, unit: i64) -> Option<()> {
        let divides = self.levels == 0 || self.units[self.levels - 1] % unit == 0;
        *self.units.get_mut(self.levels).filter(|_| divides)? = unit;
        self.levels += 1;
        Some(())
    }

    /// Writes a region as boxes. Returns `false` if it overlaps itself or takes too many.
    fn lift(&self, region: &Region, boxes: &mut Boxes) -> bool {
        let start = region.start as i64 - self.origin as i64;
        let mut steps = [(1, 1); LEVELS];
        let mut len = 0;
        for (stride, count) in region.dims() {
            steps[len] = (stride as i64, count as i64);
            len += 1;
        }
        steps[len] = (1, region.run as i64);
        // A stride of one byte only continues the run in ways that are not merged.
        if len > 0 && steps[len - 1].0 == 1 {
            return false;
        }
        let mut digits = Digits::default();
        self.lift_steps(start, &steps[..len + 1], 0, self.levels, &mut digits, boxes)
    }

    /// Takes the steps from the smallest on: each fills the levels down from the one after the next
    /// larger step's, and carries what passes the end into those.
    fn lift_steps(
        &self,
        start: i64,
        steps: &[(i64, i64)],
        carry: i64,
        levels: usize,
        digits: &mut Digits,
        boxes: &mut Boxes,
    ) -> bool {
        let Some((&(unit, count), larger)) = steps.split_last() else {
            return boxes.push(*digits);
        };
        let place = start.div_euclid(unit) + carry;
        let Some(&(bound, _)) = larger.last() else {
            return self.fill(place, place + count, unit, 0..levels, digits, &mut |digits| {
                boxes.push(*digits)
            });
        };
        let above = self.units[..levels].iter().position(|&unit| unit == bound);
        let above = above.expect("all strides are units") + 1;
        let modulus = bound / unit;
        if count > modulus {
            return false;
        }
        let first = place.rem_euclid(modulus);
        // Where adding the carry wrapped around, the next level has it.
        let wrapped = place.div_euclid(modulus) - start.div_euclid(bound);
        let end = first + count;
        let mut part = |first, end, carry, digits: &mut Digits| {
            self.fill(first, end, unit, above..levels, digits, &mut |digits| {
                let mut digits = *digits;
                self.lift_steps(start, larger, carry, above, &mut digits, boxes)
            })
        };
        part(first, end.min(modulus), wrapped, digits)
            && (end <= modulus || part(0, end - modulus, wrapped + 1, digits))
    }

    /// Writes the numbers `first..end` of `unit`s as boxes of the digits of `levels`.
    fn fill(
        &self,
        first: i64,
        end: i64,
        unit: i64,
        levels: std::ops::Range<usize>,
        digits: &mut Digits,
        each: &mut dyn FnMut(&mut Digits) -> bool,
    ) -> bool {
        if first >= end {
            return true;
        }
        let level = levels.start;
        if levels.len() == 1 {
            digits[level] = (first, end - 1);
            return each(digits);
        }
        let per_digit = self.units[level] / unit;
        let (low, high) = (first.div_euclid(per_digit), (end - 1).div_euclid(per_digit));
        let rest = level + 1..levels.end;
        let mut partial = |digit: i64, first: i64, end: i64, digits: &mut Digits| {
            digits[level] = (digit, digit);
            self.fill(first, end, unit, rest.clone(), digits, each)
        };
        if low == high {
            let from = low * per_digit;
            return partial(low, first - from, end - from, digits);
        }
        let head = first - low * per_digit;
        let tail = end - high * per_digit;
        if head > 0 && !partial(low, head, per_digit, digits)
            || tail < per_digit && !partial(high, 0, tail, digits)
        {
            return false;
        }
        let (low, high) = (low + i64::from(head > 0), high - i64::from(tail < per_digit));
        if low > high {
            return true;
        }
        digits[level] = (low, high);
        for below in rest {
            digits[below] = (0, self.units[below - 1] / self.units[below] - 1);
        }
        each(digits)
    }

    /// Appends the parts of a box that are in none of the others.
    fn cut(&self, mut own: Digits, others: &[Digits], parts: &mut Vec<Region>) {
        let Some((other, rest)) = others.split_first() else {
            return parts.push(self.region(&own));
        };
        let levels = 0..self.levels;
        let apart = |&level: &usize| own[level].1 < other[level].0 || other[level].1 < own[level].0;
        if levels.clone().any(|level| apart(&level)) {
            return self.cut(own, rest, parts);
        }
        for level in levels {
            let ((low, high), (other_low, other_high)) = (own[level], other[level]);
            if low < other_low {
                own[level] = (low, other_low - 1);
                self.cut(own, rest, parts);
            }
            if other_high < high {
                own[level] = (other_high + 1, high);
                self.cut(own, rest, parts);
            }
            own[level] = (low.max(other_low), high.min(other_high));
        }
    }

    fn region(&self, digits: &Digits) -> Region {
        let (mut start, mut dims, mut rank) = (0, [(0u64, 0u64); MAX_DIMS], 0);
        let mut reach = 0;
        for level in (0..self.levels).rev() {
            let (low, high) = digits[level];
            start += low * self.units[level];
            reach += (high - low) * self.units[level];
            if level + 1 < self.levels && high > low {
                dims[rank] = (self.units[level] as u64, (high - low + 1) as u64);
                rank += 1;
            }
        }
        let run = digits[self.levels - 1].1 - digits[self.levels - 1].0 + 1;
        let start = (self.origin as i64 + start) as u64;
        Region::merged(start, start + reach as u64 + 1, run as u64, &dims[..rank])
    }
}
