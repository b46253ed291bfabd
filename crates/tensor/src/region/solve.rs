//! The exact overlap test: does a sum of strides fall into a window?
//!
//! Two regions share a byte exactly if `place in a - place in b` can be made to fall into the
//! window that their runs span. Counting the indices of `b` from its far end turns every stride
//! positive: the question becomes whether `sum of stride * index`, every index between zero and its
//! limit, can lie between `low` and `high`.
//!
//! Strides that both regions share become one term, and a stride no larger than the window only
//! widens it. For tiles of one tensor this leaves a test of boxes: each term has at most two
//! candidates. The rest is searched from the largest stride down, cut off by reach
//! and by common divisors, and the last two terms are decided together by a Euclidean descent,
//! however many candidates they have.

use super::Region;
use crate::MAX_DIMS;

/// Regions that end beyond this are not solved for, so that no sum below can overflow.
pub(super) const PLACE_MAX: u64 = 1 << 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    No,
    GaveUp,
}

#[derive(Clone, Copy, Default)]
struct Term {
    stride: i64,
    /// The largest index.
    limit: i64,
    /// What this term and all after it can add up to.
    reach: i64,
    /// The common divisor of this stride and all after it.
    divisor: i64,
}

/// Sums of strides, and the window that one of them must hit.
pub(super) struct Sums {
    // Largest stride first, and one empty term after the last.
    terms: [Term; 2 * MAX_DIMS + 1],
    len: usize,
    low: i64,
    high: i64,
}

impl Sums {
    /// The question whether `a` and `b` share a byte, or `None` if they lie too far out to be
    /// computed with.
    pub(super) fn of_pair(a: &Region, b: &Region) -> Option<Self> {
        if a.end.max(b.end) > PLACE_MAX {
            return None;
        }
        let first = a.start as i64 - (b.end - b.run) as i64;
        let mut sums = Self {
            terms: [Term::default(); 2 * MAX_DIMS + 1],
            len: 0,
            low: 1 - a.run as i64 - first,
            high: b.run as i64 - 1 - first,
        };
        sums.collect(a, b);
        Some(sums)
    }

    /// Takes the strides of both regions, smallest first, and merges what can be merged.
    fn collect(&mut self, a: &Region, b: &Region) {
        let mut merged = [(0i64, 0i64); 2 * MAX_DIMS];
        let mut len = 0;
        let (mut from_a, mut from_b) = (a.rank as usize, b.rank as usize);
        while from_a + from_b > 0 {
            let take_a =
                from_b == 0 || from_a > 0 && a.strides[from_a - 1] <= b.strides[from_b - 1];
            let (region, from) = if take_a { (a, &mut from_a) } else { (b, &mut from_b) };
            *from -= 1;
            let (stride, limit) = (region.strides[*from] as i64, region.counts[*from] as i64 - 1);
            if len == 0 && stride <= self.high - self.low + 1 {
                self.low -= stride * limit;
                continue;
            }
            if len > 0 {
                let (inner, inner_limit) = merged[len - 1];
                if stride == inner || stride % inner == 0 && stride / inner <= inner_limit + 1 {
                    merged[len - 1].1 = stride / inner * limit + inner_limit;
                    continue;
                }
            }
            merged[len] = (stride, limit);
            len += 1;
        }
        let (mut reach, mut divisor) = (0, 0);
        for (from, &(stride, limit)) in merged[..len].iter().enumerate() {
            reach += stride * limit;
            divisor = greatest_common_divisor(stride, divisor);
            self.terms[len - 1 - from] = Term { stride, limit, reach, divisor };
        }
        self.len = len;
    }

    /// Decides within about `steps` steps.
    pub(super) fn solve(&self, mut steps: u32) -> Answer {
        self.search(0, self.low, self.high, &mut steps)
    }

    fn search(&self, at: usize, low: i64, high: i64, steps: &mut u32) -> Answer {
        let term = &self.terms[at];
        if high < 0 || low > term.reach {
            return Answer::No;
        }
        if low <= 0 || high >= term.reach {
            return Answer::Yes;
        }
        // Here `at` is a real term: with none left the reach is zero and one of the cases above
        // holds.
        if high / term.divisor * term.divisor < low {
            return Answer::No;
        }
        let rest = self.terms[at + 1].reach;
        let first = ceiling(low - rest, term.stride).max(0);
        let last = (high / term.stride).min(term.limit);
        if at + 2 == self.len {
            return match self.last_two(at, low, high, first, last) {
                true => Answer::Yes,
                false => Answer::No,
            };
        }
        let mut answer = Answer::No;
        let mut index = first;
        while index <= last {
            if *steps == 0 {
                return Answer::GaveUp;
            }
            *steps -= 1;
            let taken = index * term.stride;
            match self.search(at + 1, low - taken, high - taken, steps) {
                Answer::Yes => return Answer::Yes,
                Answer::GaveUp => answer = Answer::GaveUp,
                Answer::No => {}
            }
            index += 1;
        }
        answer
    }

    /// Whether some index of `terms[at]` between `first` and `last` leaves a window that a multiple
    /// of the next stride falls into.
    ///
    /// The range of indices already keeps the window within reach of the next term, and the window
    /// is narrower than its stride, so that any multiple in it has a permitted index: only the
    /// remainder matters.
    fn last_two(&self, at: usize, low: i64, high: i64, first: i64, last: i64) -> bool {
        if first > last {
            return false;
        }
        let modulus = self.terms[at + 1].stride;
        let width = high - low;
        let start = (high - first * self.terms[at].stride).rem_euclid(modulus);
        // The remainder must be at most `width`; it begins at `start` and falls by the stride with
        // each index.
        if start <= width {
            return true;
        }
        let step = self.terms[at].stride % modulus;
        let found =
            first_in_range(step as u64, modulus as u64, (start - width) as u64, start as u64);
        found.is_some_and(|index| index <= (last - first) as u64)
    }
}

/// The smallest `x` for which `step * x % modulus` is between `low` and `high`, where
/// `0 < low <= high < modulus`.
fn first_in_range(step: u64, modulus: u64, low: u64, high: u64) -> Option<u64> {
    if low == 0 {
        return Some(0);
    }
    if step == 0 {
        return None;
    }
    // Going down in small steps instead of up in large ones halves the modulus at every level.
    if step > modulus / 2 {
        return first_in_range(modulus - step, modulus, modulus - high, modulus - low);
    }
    let x = low.div_ceil(step);
    if x * step <= high {
        return Some(x);
    }
    // No multiple of `step` lies in the range: the next chance is after some number of wraps.
    let wraps = first_in_range((step - modulus % step) % step, step, low % step, high % step)?;
    let place = u128::from(low) + u128::from(modulus) * u128::from(wraps);
    Some(place.div_ceil(u128::from(step)) as u64)
}

fn greatest_common_divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn ceiling(value: i64, divisor: i64) -> i64 {
    value.div_euclid(divisor) + i64::from(value.rem_euclid(divisor) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_in_range_agrees_with_trying() {
        for modulus in 1..40u64 {
            for step in 0..modulus {
                for low in 0..modulus {
                    for high in low..modulus {
                        let tried =
                            (0..modulus).find(|x| (low..=high).contains(&(step * x % modulus)));
                        assert_eq!(
                            first_in_range(step, modulus, low, high),
                            tried,
                            "{step} mod {modulus} in {low}..={high}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn ceilings_round_up_on_both_sides_of_zero() {
        assert_eq!([ceiling(7, 2), ceiling(-7, 2), ceiling(6, 2), ceiling(0, 5)], [4, -3, 3, 0]);
    }
}
