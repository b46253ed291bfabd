//! The threads of a loaded plan: one for each lane, except for the one that the caller runs itself.

use std::fmt;
use std::sync::Arc;

use syncline_sync::shim::{Ordering, thread};

use super::apart::Moves;
use super::error::LoadError;
use super::lane::CLOSING;
use super::run::take_part;
use super::shared::Shared;
use super::steal::Board;

/// Threads that end when this is dropped, for which no run may be under way.
pub struct Threads {
    shared: Arc<Shared>,
    handles: Vec<(usize, thread::JoinHandle<()>)>,
}

/// When a thread runs its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In every run.
    Always,
    /// When the caller, whose lane it is, does not.
    Away,
}

impl Threads {
    pub fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), handles: Vec::new() }
    }

    /// A thread for `lane` from run number `next` on, unless it has one.
    pub fn ensure(&mut self, lane: usize, when: When, next: u64) -> Result<(), LoadError> {
        if self.handles.iter().any(|(known, _)| *known == lane) {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let builder = thread::Builder::new().name(format!("syncline-lane-{lane}"));
        let handle = builder
            .spawn(move || serve(&shared, lane, when, next))
            .map_err(|error| LoadError::NoThread { lane, message: error.to_string() })?;
        self.handles.push((lane, handle));
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        self.shared.started.publish(CLOSING);
        self.shared.own_started.publish(CLOSING);
        for (_, handle) in self.handles.drain(..) {
            // Bodies' panics are caught in `run.rs`; there is nothing else to report.
            let _ = handle.join();
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.handles.iter().map(|(lane, _)| lane)).finish()
    }
}

/// Takes part in every run from `number` on that is this thread's, until the plan is dropped.
fn serve(shared: &Shared, lane: usize, when: When, mut number: u64) {
    let started = match when {
        When::Always => &shared.started,
        When::Away => &shared.own_started,
    };
    let mut moves = Moves::default();
    loop {
        started.wait(number, shared.spin);
        if shared.is_closing.load(Ordering::SeqCst) {
            return;
        }
        shared.apart.settle(lane, &mut moves);
        // Looked up once, after the run was seen to have begun: whoever steals in it does so to its
        // end.
        let board = shared.board();
        let next = next_run(shared, board, lane);
        if next > number {
            // The caller did these runs itself, or others were done with them first.
            number = next;
            continue;
        }
        take_part(shared, board, lane, number, started);
        number += 1;
    }
}

/// The first run that `lane` may still have to do something in.
fn next_run(shared: &Shared, board: Option<&Board>, lane: usize) -> u64 {
    let ended = match board {
        Some(board) => board.last_ended(),
        None => {
            let steps = shared.lanes[lane].steps.len() as u64;
            shared.progress[lane].get().checked_div(steps).unwrap_or(0)
        }
    };
    ended + 1
}
