//! All interleavings of the claim protocol, by `loom`.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use syncline_sync::{EventCount, Spin};

use super::*;

/// Every model ends only if no wake-up is lost: `loom` reports threads that sleep for ever.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// What ops read and write, and how often each ran. `loom` reports accesses that nothing orders.
struct Memory {
    cells: [UnsafeCell<u64>; 2],
    counts: [UnsafeCell<u64>; 3],
}

// SAFETY: `loom` checks each access.
unsafe impl Sync for Memory {}

impl Memory {
    fn new() -> Self {
        Self {
            cells: std::array::from_fn(|_| UnsafeCell::new(0)),
            counts: std::array::from_fn(|_| UnsafeCell::new(0)),
        }
    }

    /// Op 0 writes cell 0, op 2 reads it; op 1 has cell 1 to itself.
    fn run(&self, Claim { op, run }: Claim) {
        self.counts[op].with_mut(|count| {
            // SAFETY: `loom` checks the access.
            let count = unsafe { &mut *count };
            *count += 1;
            assert_eq!(*count, run, "once in every run, and runs in order");
        });
        match op {
            // SAFETY: as above.
            0 => self.cells[0].with_mut(|cell| unsafe { *cell = run }),
            // SAFETY: as above.
            1 => self.cells[1].with_mut(|cell| unsafe { *cell = run }),
            // SAFETY: as above.
            _ => self.cells[0].with(|cell| assert_eq!(unsafe { *cell }, run)),
        }
    }
}

/// Two lanes of one pool: ops 0 and 1 on the first, op 2 on the second.
fn three_ops() -> Board {
    let lanes = vec![(0..2, 0..2), (2..3, 0..2)];
    // Op 2 reads what op 0 writes, and op 0 writes it again in the next run.
    Board::of(lanes, vec![vec![(2, 1)], vec![], vec![(0, 0)]], 0)
}

/// Two lanes of one pool: op 0 on the first, which writes, and nothing on the second.
fn one_op() -> Board {
    Board::of(vec![(0..1, 0..2), (1..1, 0..2)], vec![vec![]], 0)
}

/// Runs ops until run `run` has ended, as `Board::work` does, and parks where it finds none.
fn work((board, memory, changed): &(Board, Memory, EventCount), lane: usize, run: u64, last: u64) {
    while !board.has_ended(run) {
        let mut found = board.claim(lane, run, last);
        if found.is_none() {
            changed.wait_until(Spin::NONE, None, || {
                found = board.claim(lane, run, last);
                found.is_some() || board.has_ended(run)
            });
        }
        if let Some(claim) = found {
            memory.run(claim);
            board.finish(claim);
            changed.notify();
        }
    }
}

fn explore_runs(board: fn() -> Board, runs: u64, preemptions: usize) {
    explore(preemptions, move || {
        let shared = Arc::new((board(), Memory::new(), EventCount::new()));
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            for run in 1..=runs {
                work(&other, 1, run, runs);
            }
        });
        let (board, memory, _) = &*shared;
        for run in 1..=runs {
            work(&shared, 0, run, runs);
            assert!(board.has_ended(run));
        }
        thread.join().unwrap();
        for count in &memory.counts[..board.words.len()] {
            // SAFETY: the other thread has ended.
            count.with(|count| assert_eq!(unsafe { *count }, runs));
        }
    });
}

#[test]
fn loom_every_op_of_a_run_is_claimed_once_and_in_order() {
    explore_runs(three_ops, 1, 2);
}

#[test]
fn loom_an_op_comes_after_itself_in_the_run_before() {
    explore_runs(one_op, 2, 2);
}
