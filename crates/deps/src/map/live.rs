//! Which tasks have been retired: one bit each, from the oldest one that has not.

use crate::TaskId;

/// The retired tasks of all rings.
///
/// Sequence numbers of a ring are taken to be dense, as a submitter issues them: memory is one bit for every id
/// between the oldest live task and the newest retired one.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    rings: Vec<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    /// All tasks of the words before this one are retired.
    first_word: u64,
    /// How many words from there on have a bit set, or stand before one that has; in those after, all are live.
    len: u64,
    /// A power of two of them; word `n` is at `n` modulo their number. Zero where it is not in use.
    words: Vec<u64>,
}

impl Liveness {
    /// Whether `task` has not been retired.
    #[inline]
    pub(crate) fn is_live(&self, task: TaskId) -> bool {
        let Some(ring) = self.rings.get(usize::from(task.ring())) else { return true };
        let word = task.sequence() / 64;
        let at = word.wrapping_sub(ring.first_word);
        if at >= ring.len {
            // Beyond the last word; one before the first has wrapped around.
            return at <= u64::MAX / 2;
        }
        ring.words[word as usize & (ring.words.len() - 1)] >> (task.sequence() % 64) & 1 == 0
    }

    /// Marks `task` as retired; whether it was live until then.
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
        words * size_of::<u64>() + self.rings.capacity() * size_of::<Ring>()
    }
}

impl Ring {
    #[inline]
    fn retire(&mut self, sequence: u64) {
        let needed = sequence / 64 - self.first_word + 1;
        if needed > self.words.len() as u64 {
            self.grow(needed);
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
    fn grow(&mut self, needed: u64) {
        let count = needed.next_power_of_two().max(16) as usize;
        let mut words = vec![0; count];
        for word in self.first_word..self.first_word + self.len {
            let word = word as usize;
            words[word & (count - 1)] = self.words[word & (self.words.len() - 1)];
        }
        self.words = words;
    }
}

#[cfg(test)]
mod tests {
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
}
