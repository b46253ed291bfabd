//! A bounded queue of slot numbers with one producer and any number of consumers.
//!
//! First in, first out; neither side ever waits. There is no check for a full queue: a slot is in
//! at most one queue, once, so that a queue with room for all slots of the ring cannot overflow.

use syncline_sync::CachePadded;
use syncline_sync::shim::{AtomicU32, AtomicU64, Ordering};

/// Slot numbers, put in by one thread at a time, taken by any.
#[derive(Debug)]
pub(crate) struct IndexRing {
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    entries: Box<[AtomicU32]>,
}

impl IndexRing {
    /// An empty queue with room for at least `room` numbers.
    pub(crate) fn new(room: usize) -> Self {
        Self {
            head: CachePadded::new(AtomicU64::new(0)),
            tail: CachePadded::new(AtomicU64::new(0)),
            entries: (0..room.max(1).next_power_of_two()).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    #[inline]
    fn entry(&self, at: u64) -> &AtomicU32 {
        &self.entries[at as usize & (self.entries.len() - 1)]
    }

    /// Adds a number. Only one thread at a time.
    ///
    /// The store of the tail is sequentially consistent: a producer that then finds no sleeper, and
    /// a sleeper that then finds the queue empty, cannot both happen (`sleep.rs`).
    #[inline]
    pub(crate) fn push(&self, index: u32) {
        // Relaxed: only this thread writes the tail.
        let tail = self.tail.load(Ordering::Relaxed);
        self.entry(tail).store(index, Ordering::Relaxed);
        self.tail.store(tail + 1, Ordering::SeqCst);
    }

    /// As [`IndexRing::push`], by a producer with a lock that sleepers take before they look for
    /// the last time: that orders the two, and the processor need not wait until all it has written
    /// is seen.
    #[inline]
    pub(crate) fn push_guarded(&self, index: u32) {
        let tail = self.tail.load(Ordering::Relaxed);
        self.entry(tail).store(index, Ordering::Relaxed);
        // Release: whoever sees the tail sees the entry, and the slot that it names.
        self.tail.store(tail + 1, Ordering::Release);
    }

    /// Takes the oldest number.
    #[inline]
    pub(crate) fn pop(&self) -> Option<u32> {
        let mut taken = 0;
        let count = self.pop_batch(1, |index| taken = index);
        (count == 1).then_some(taken)
    }

    /// Takes at most `most` of the oldest numbers in one step, and says how many.
    ///
    /// `take` is also called for numbers that another thread then turns out to have taken; as many
    /// of the last calls count as are returned, which may be none.
    #[inline]
    fn pop_batch(&self, most: usize, mut take: impl FnMut(u32)) -> usize {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            // The entries before this tail, and the slots that they name, are visible. SeqCst: see
            // `push`.
            let tail = self.tail.load(Ordering::SeqCst);
            let count = tail.saturating_sub(head).min(most as u64);
            if count == 0 {
                return 0;
            }
            for at in head..head + count {
                // An entry is overwritten only after the head has passed it, and then the exchange
                // below fails.
                take(self.entry(at).load(Ordering::Relaxed));
            }
            match self.head.compare_exchange_weak(
                head,
                head + count,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return count as usize,
                Err(now) => head = now,
            }
        }
    }

    /// Takes at most `most` of the oldest numbers in one step and adds them to `taken`.
    #[inline]
    pub(crate) fn pop_into(&self, most: usize, taken: &mut Vec<u32>) -> usize {
        let before = taken.len();
        let count = self.pop_batch(most, |index| taken.push(index));
        // Rounds that lost the race come first.
        let stale = taken.len() - before - count;
        taken.drain(before..before + stale);
        count
    }

    /// Takes all numbers, the oldest first. Only where one thread at a time takes from this queue.
    #[inline]
    pub(crate) fn drain(&self, mut take: impl FnMut(u32)) {
        // Relaxed: only the one consumer moves the head. SeqCst of the tail: see `push`.
        let head = self.head.load(Ordering::Relaxed);
        let tail = self.tail.load(Ordering::SeqCst);
        if head == tail {
            return;
        }
        for at in head..tail {
            take(self.entry(at).load(Ordering::Relaxed));
        }
        // Release: an entry is written again only after it was read.
        self.head.store(tail, Ordering::Release);
    }

    /// How many numbers are in the queue, about: exact where nothing else happens.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let head = self.head.load(Ordering::SeqCst);
        // SeqCst: see `push`.
        self.tail.load(Ordering::SeqCst).saturating_sub(head) as usize
    }

    /// How many numbers were ever taken.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.head.load(Ordering::Relaxed)
    }

    /// How many numbers were ever put in.
    #[inline]
    pub(crate) fn pushed(&self) -> u64 {
        self.tail.load(Ordering::SeqCst)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64 as Counter, Ordering::Relaxed};

    #[test]
    fn numbers_come_out_once_and_in_order() {
        let ring = IndexRing::new(4);
        for round in 0..10 {
            (0..4).for_each(|index| ring.push(round * 4 + index));
            assert_eq!(ring.len(), 4);
            assert_eq!(ring.pop(), Some(round * 4));
            let mut rest = vec![99];
            assert_eq!(ring.pop_into(8, &mut rest), 3);
            assert_eq!(rest, [99, round * 4 + 1, round * 4 + 2, round * 4 + 3]);
            assert_eq!(ring.pop(), None);
        }
        assert_eq!(ring.pushed(), 40);
    }

    #[test]
    fn several_consumers_share_without_loss() {
        let (ring, sum, count) = (IndexRing::new(64), Counter::new(0), Counter::new(0));
        const TOTAL: u64 = 20_000;
        std::thread::scope(|threads| {
            for most in [1, 5] {
                let (ring, sum, count) = (&ring, &sum, &count);
                threads.spawn(move || {
                    let mut taken = Vec::new();
                    while count.load(Relaxed) < TOTAL {
                        taken.clear();
                        if ring.pop_into(most, &mut taken) == 0 {
                            std::thread::yield_now();
                        }
                        count.fetch_add(taken.len() as u64, Relaxed);
                        sum.fetch_add(taken.iter().map(|&index| u64::from(index)).sum(), Relaxed);
                    }
                });
            }
            for index in 0..TOTAL {
                while ring.len() >= 64 {
                    std::thread::yield_now();
                }
                ring.push(index as u32);
            }
        });
        assert_eq!(sum.into_inner(), TOTAL * (TOTAL - 1) / 2);
    }
}
