//! Which tasks have been retired: one bit each, from the oldest one that has not.

use std::collections::VecDeque;

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
    retired: VecDeque<u64>,
}

impl Liveness {
    /// Whether `task` has not been retired.
    #[inline]
    pub(crate) fn is_live(&self, task: TaskId) -> bool {
        let Some(ring) = self.rings.get(usize::from(task.ring())) else { return true };
        let Some(word) = (task.sequence() / 64).checked_sub(ring.first_word) else { return false };
        match ring.retired.get(word as usize) {
            Some(bits) => bits >> (task.sequence() % 64) & 1 == 0,
            None => true,
        }
    }

    /// Marks `task` as retired; whether it was live until then.
    pub(crate) fn retire(&mut self, task: TaskId) -> bool {
        if !self.is_live(task) {
            return false;
        }
        let index = usize::from(task.ring());
        if index >= self.rings.len() {
            self.rings.resize_with(index + 1, Ring::default);
        }
        let ring = &mut self.rings[index];
        let word = (task.sequence() / 64 - ring.first_word) as usize;
        if word >= ring.retired.len() {
            ring.retired.resize(word + 1, 0);
        }
        ring.retired[word] |= 1 << (task.sequence() % 64);
        while ring.retired.front() == Some(&u64::MAX) {
            ring.retired.pop_front();
            ring.first_word += 1;
        }
        true
    }

    pub(crate) fn bytes(&self) -> usize {
        let words: usize = self.rings.iter().map(|ring| ring.retired.capacity()).sum();
        words * size_of::<u64>() + self.rings.capacity() * size_of::<Ring>()
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
        assert_eq!(live.rings[1].retired.len(), 1, "full words are dropped");
    }
}
