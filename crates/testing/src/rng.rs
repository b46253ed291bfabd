//! A small random number generator whose sequence never changes.

use std::ops::Range;

/// SplitMix64: one word of state, every seed good.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any word.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Any number of `range`, which must not be empty.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        assert!(range.start < range.end, "no number in {range:?}");
        range.start + self.next_u64() % (range.end - range.start)
    }

    /// Any index below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        self.range(0..count as u64) as usize
    }

    /// Returns a number that is small, huge, or at the edge of something.
    pub fn extreme(&mut self) -> u64 {
        match self.below(6) {
            0 => self.range(0..9),
            1 => self.range(0..1 << 20),
            2 => u64::MAX - self.range(0..9),
            3 => 1 << self.range(0..64),
            4 => (1 << self.range(0..64)) - 1,
            _ => self.next_u64(),
        }
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.range(0..n) == 0
    }

    /// Any of `items`.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Puts `items` in any order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
