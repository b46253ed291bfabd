//! Keeping lanes apart: on processors of their own, where there are enough.
//!
//! A system may wake a thread where it last ran, or where its waker runs, though another processor
//! stands idle. Linux was seen to do so run after run on a virtual machine of two: a lane that once
//! woke beside the caller went on doing so, and the two took turns on one processor. A lane that
//! finds itself beside another moves away, and may be moved again by the system as ever: nothing is
//! pinned.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::available_parallelism;

#[cfg(not(any(loom, shuttle)))]
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Where lanes run.
#[derive(Debug)]
pub struct Apart {
    /// By lane: the processor it was last seen on, from one; zero before it ran.
    processors: Box<[AtomicU32]>,
    /// Whether there is a processor for every lane.
    is_enough: bool,
}

/// What a lane's thread knows of its own moves.
#[derive(Debug, Default)]
pub struct Moves {
    /// Runs to go before the next move: where the system undoes each of them, they only cost.
    rest: u32,
}

impl Apart {
    const REST_RUNS: u32 = 16;

    /// For `lanes` lanes, of which `busy` may have something to do at a time.
    pub fn new(lanes: usize, busy: usize) -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        let is_enough = busy > 1 && busy <= processors;
        Self { processors: (0..lanes).map(|_| AtomicU32::new(0)).collect(), is_enough }
    }

    /// Notes where the thread that calls runs `lane`.
    #[inline]
    pub fn note(&self, lane: usize) {
        if self.is_enough {
            self.see(lane);
        }
    }

    /// Notes where the thread that calls runs `lane`, and moves it if another lane runs there.
    #[inline]
    pub fn settle(&self, lane: usize, moves: &mut Moves) {
        if !self.is_enough {
            return;
        }
        let here = self.see(lane);
        let others = || self.processors.iter().enumerate().filter(|(other, _)| *other != lane);
        // Relaxed: a hint, and an old one at worst moves a thread for nothing.
        if moves.rest > 0 {
            moves.rest -= 1;
        } else if others().any(|(_, there)| there.load(Ordering::Relaxed) == here) {
            moves.rest = Self::REST_RUNS;
            self.leave(lane);
            self.see(lane);
        }
    }

    #[cfg(not(any(loom, shuttle)))]
    fn see(&self, lane: usize) -> u32 {
        let here = sched_getcpu() as u32 + 1;
        self.processors[lane].store(here, Ordering::Relaxed);
        here
    }

    /// Goes to a processor that no other lane was seen on, if the process may use one.
    #[cold]
    #[cfg(not(any(loom, shuttle)))]
    fn leave(&self, lane: usize) {
        let Ok(allowed) = sched_getaffinity(None) else { return };
        let mut free: CpuSet = allowed;
        for (other, there) in self.processors.iter().enumerate() {
            let there = there.load(Ordering::Relaxed) as usize;
            if other != lane && there > 0 {
                free.unset(there - 1);
            }
        }
        // Restricting moves the thread at once; then it is free again. What the system refuses
        // leaves it where it was.
        if free.count() > 0 && sched_setaffinity(None, &free).is_ok() {
            let _ = sched_setaffinity(None, &allowed);
        }
    }

    /// Models have no processors.
    #[cfg(any(loom, shuttle))]
    fn see(&self, _lane: usize) -> u32 {
        0
    }

    #[cfg(any(loom, shuttle))]
    fn leave(&self, _lane: usize) {}
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_lane_moves_away_from_another() {
        if available_parallelism().map_or(1, usize::from) < 2 {
            return;
        }
        let apart = Apart::new(2, 2);
        let seen = |lane: usize| apart.processors[lane].load(Ordering::Relaxed);
        // The system may move a thread at any time, also back: not every time.
        let has_moved = (0..100).any(|_| {
            apart.note(0);
            apart.settle(1, &mut Moves::default());
            seen(0) != seen(1)
        });
        assert!(has_moved);
    }

    #[test]
    fn a_lane_that_moved_rests() {
        let apart = Apart { processors: Box::new([AtomicU32::new(0)]), is_enough: true };
        let mut moves = Moves { rest: 2 };
        apart.settle(0, &mut moves);
        assert_eq!(moves.rest, 1);
    }
}
