//! Free bytes of an arena: best fit, neighbours joined.

use std::collections::{BTreeMap, BTreeSet};

/// The free intervals below the highest byte ever taken.
#[derive(Debug, Default)]
pub(crate) struct FreeList {
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    end: u64,
}

impl FreeList {
    /// The number of bytes that everything taken so far fits in.
    pub(crate) fn high_water(&self) -> u64 {
        self.end
    }

    /// Takes `bytes` bytes from the smallest interval that has them, or from beyond the end.
    pub(crate) fn take(&mut self, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        if let Some(&(size, offset)) = self.by_size.range((bytes, 0)..).next() {
            self.remove(offset, size);
            if size > bytes {
                self.insert(offset + bytes, size - bytes);
            }
            return offset;
        }
        // The last free interval may reach the end: grow only by what it lacks.
        let last = self.by_offset.last_key_value().map(|(&offset, &size)| (offset, size));
        let start = match last {
            Some((offset, size)) if offset + size == self.end => {
                self.remove(offset, size);
                offset
            }
            _ => self.end,
        };
        self.end = start.saturating_add(bytes);
        start
    }

    /// Gives back what was taken.
    pub(crate) fn give(&mut self, mut offset: u64, mut bytes: u64) {
        if bytes == 0 {
            return;
        }
        if let Some((&before, &size)) = self.by_offset.range(..offset).next_back()
            && before + size == offset
        {
            self.remove(before, size);
            (offset, bytes) = (before, bytes + size);
        }
        if let Some(&size) = self.by_offset.get(&(offset + bytes)) {
            self.remove(offset + bytes, size);
            bytes += size;
        }
        self.insert(offset, bytes);
    }

    fn insert(&mut self, offset: u64, bytes: u64) {
        self.by_offset.insert(offset, bytes);
        self.by_size.insert((bytes, offset));
    }

    fn remove(&mut self, offset: u64, bytes: u64) {
        self.by_offset.remove(&offset);
        self.by_size.remove(&(bytes, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_testing::for_seeds;

    #[test]
    fn what_is_taken_never_overlaps_and_is_joined_when_given_back() {
        for_seeds("what_is_taken_never_overlaps_and_is_joined_when_given_back", 200, |rng| {
            let mut free = FreeList::default();
            let mut held: Vec<(u64, u64)> = Vec::new();
            for _ in 0..200 {
                if held.is_empty() || rng.one_in(2) {
                    let bytes = rng.range(1..100);
                    let offset = free.take(bytes);
                    assert!(offset + bytes <= free.high_water());
                    assert!(
                        held.iter()
                            .all(|&(at, size)| { offset + bytes <= at || at + size <= offset })
                    );
                    held.push((offset, bytes));
                } else {
                    let (offset, bytes) = held.swap_remove(rng.below(held.len()));
                    free.give(offset, bytes);
                }
            }
            for (offset, bytes) in held {
                free.give(offset, bytes);
            }
            let all = free.high_water();
            assert_eq!(free.take(all), 0, "one interval is left");
            assert_eq!(free.high_water(), all);
        });
    }
}
