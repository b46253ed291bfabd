//! Which tasks have been retired: one bit each for recent ones, and the live ones among older
//! tasks.

use std::collections::HashMap;

use syncline_tensor::TaskId;

/// A ring's bits cover at most so many words: eight kilobytes, 65,536 tasks.
const WORDS_MAX: u64 = 1 << 10;

/// The retired tasks of all rings.
///
/// Sequence numbers of a ring are taken to be dense, as a submitter issues them. Memory is bounded
/// by the live tasks: a task that lives much longer than those after it leaves the window of bits,
/// and is remembered by itself.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    rings: Vec<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    /// All tasks of the words before this one are retired, but for those in `old`.
    first_word: u64,
    /// How many words from there on have a bit set, or stand before one that has; in those after,
    /// all are live.
    len: u64,
    /// A power of two of them; word `n` is at `n` modulo their number. Zero where it is not in use.
    words: Vec<u64>,
    /// By word, the live tasks before `first_word`: a bit is set where a task is live, and no word
    /// is zero.
    old: HashMap<u64, u64>,
}

impl Liveness {
    /// Returns `true` if `task` has not been retired.
    #[inline]
    pub(crate) fn is_live(&self, task: TaskId) -> bool {
        let Some(ring) = self.rings.get(usize::from(task.ring())) else { return true };
        let word = task.sequence() / 64;
        let at = word.wrapping_sub(ring.first_word);
        if at >= ring.len {
            // Beyond the last word; one before the first has wrapped around.
            return at <= u64::MAX / 2
                || !ring.old.is_empty() && ring.is_old_and_live(task.sequence());
        }
        ring.words[word as usize & (ring.words.len() - 1)] >> (task.sequence() % 64) & 1 == 0
    }

    /// Returns `true` if no task was ever retired.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.rings.is_empty()
    }

    /// Marks `task` as retired. Returns `true` if it was live until then.
    #[inline]
    pub(crate) fn retire(&mut self, task: TaskId) -> bool {
        if !self.is_live(task) {
            return false;
        }
        let index = usize::from(task.ring());
        if index >= self.rings.len() {
            self.rings.resize_with(index + 1, Ring::default);
        }
        self.rings[index].retire(task.sequence());
        true
    }

    pub(crate) fn bytes(&self) -> usize {
        let words: usize = self.rings.iter().map(|ring| ring.words.capacity()).sum();
        let old: usize = self.rings.iter().map(|ring| ring.old.capacity()).sum();
        words * size_of::<u64>()
            + old * size_of::<(u64, u64)>()
            + self.rings.capacity() * size_of::<Ring>()
    }
}

impl Ring {
    #[inline]
    fn retire(&mut self, sequence: u64) {
        let Some(before) = (sequence / 64).checked_sub(self.first_word) else {
            return self.retire_old(sequence);
        };
        let mut needed = before + 1;
        if needed > self.words.len() as u64 {
            needed = self.grow(needed);
        }
        self.len = self.len.max(needed);
        let mask = self.words.len() - 1;
        self.words[(sequence / 64) as usize & mask] |= 1 << (sequence % 64);
        while self.len > 0 && self.words[self.first_word as usize & mask] == u64::MAX {
            self.words[self.first_word as usize & mask] = 0;
            self.first_word += 1;
            self.len -= 1;
        }
    }

    #[cold]
    fn is_old_and_live(&self, sequence: u64) -> bool {
        self.old.get(&(sequence / 64)).is_some_and(|live| live >> (sequence % 64) & 1 != 0)
    }

    #[cold]
    fn retire_old(&mut self, sequence: u64) {
        let word = sequence / 64;
        let live = self.old.get_mut(&word).expect("it was live");
        *live &= !(1 << (sequence % 64));
        if *live == 0 {
            self.old.remove(&word);
            // Few are old at a time. Room for many must not stay for ever.
            if self.old.len() < self.old.capacity() / 8 {
                self.old.shrink_to_fit();
            }
        }
    }

    /// Makes room for `needed` words from the first one on. Returns how many it takes when the
    /// oldest words have left the window, where they are too many.
    #[cold]
    fn grow(&mut self, needed: u64) -> u64 {
        let surplus = needed.saturating_sub(WORDS_MAX);
        for word in self.first_word..self.first_word + surplus {
            let live = match self.words.len() {
                count if word < self.first_word + self.len => {
                    !std::mem::take(&mut self.words[word as usize & (count - 1)])
                }
                _ => u64::MAX,
            };
            if live != 0 {
                self.old.insert(word, live);
            }
        }
        self.first_word += surplus;
        self.len = self.len.saturating_sub(surplus);
        let needed = needed - surplus;
        let count = needed.next_power_of_two().max(16) as usize;
        if count > self.words.len() {
            let mut words = vec![0; count];
            for word in self.first_word..self.first_word + self.len {
                let word = word as usize;
                words[word & (count - 1)] = self.words[word & (self.words.len() - 1)];
            }
            self.words = words;
        }
        needed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use syncline_testing::for_seeds;

    use super::*;

    #[test]
    fn tasks_retire_once_in_any_order_and_rings_are_apart() {
        let mut live = Liveness::default();
        let task = |ring, sequence| TaskId::new(ring, sequence);
        for sequence in (0..200).rev() {
            assert!(live.is_live(task(1, sequence)));
            assert!(live.retire(task(1, sequence)));
            assert!(!live.retire(task(1, sequence)) && !live.is_live(task(1, sequence)));
        }
        assert!(live.is_live(task(1, 200)) && live.is_live(task(0, 0)) && live.is_live(task(7, 3)));
        assert_eq!((live.rings[1].first_word, live.rings[1].len), (3, 1), "full words are dropped");
        for sequence in 300..5000 {
            assert!(live.retire(task(1, sequence)) && live.is_live(task(1, 250)));
        }
        for sequence in 200..300 {
            assert!(live.retire(task(1, sequence)));
        }
        assert!(!live.is_live(task(1, 0)) && !live.is_live(task(1, 4999)));
        assert!(live.is_live(task(1, 5000)) && live.rings[1].len == 1);
    }

    #[test]
    fn memory_follows_what_is_live_however_old_the_oldest_is() {
        let mut live = Liveness::default();
        let task = |sequence| TaskId::new(0, sequence);
        // Every 200,000th task lives on.
        let is_old = |sequence: u64| sequence.is_multiple_of(200_000);
        for sequence in (0..800_000).filter(|&sequence| !is_old(sequence)) {
            assert!(live.retire(task(sequence)));
        }
        assert!(live.bytes() < 16 << 10, "{} bytes", live.bytes());
        assert!((0..800_000).all(|sequence| live.is_live(task(sequence)) == is_old(sequence)));
        for sequence in (0..800_000).filter(|&sequence| is_old(sequence)) {
            assert!(live.retire(task(sequence)) && !live.retire(task(sequence)));
        }
        assert!(live.rings[0].old.is_empty() && !live.is_live(task(0)));
    }

    #[test]
    fn a_window_that_moves_agrees_with_a_set() {
        for_seeds("a_window_that_moves_agrees_with_a_set", 20, |rng| {
            let (mut live, mut expected) = (Liveness::default(), BTreeSet::new());
            let mut next = 0;
            for _ in 0..400 {
                let issued = rng.range(0..2000);
                expected.extend(next..next + issued);
                next += issued;
                for _ in 0..rng.below(2000) {
                    // Mostly recent ones.
                    let back = if rng.one_in(8) { next } else { next.min(3000) };
                    if back > 0 {
                        let sequence = next - 1 - rng.range(0..back);
                        let was_live = live.retire(TaskId::new(0, sequence));
                        assert_eq!(was_live, expected.remove(&sequence), "{sequence}");
                    }
                }
            }
            for sequence in 0..next + 100 {
                let is_live = sequence >= next || expected.contains(&sequence);
                assert_eq!(live.is_live(TaskId::new(0, sequence)), is_live, "{sequence}");
            }
        });
    }
}
