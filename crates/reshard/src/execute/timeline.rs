//! What one PE did in a refit, and when: for reports.
//!
//! Recorded by the thread that drives the pipeline. Each event ends when it is recorded and begins
//! where the one before ended, so that the events of a PE tile its refit.

use std::sync::Mutex;

use rustix::time::{ClockId, clock_gettime};
use syncline_sync::lock;

/// Events beyond this many are left out: a report of them could not be read.
const EVENTS_MAX: usize = 200_000;

/// What a PE did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefitActivity {
    /// Packed a message for a peer and sent it.
    Pack,
    /// Took a message of a peer and unpacked it.
    Unpack,
    /// Wrote into memory of a peer.
    Place,
    /// Copied within this PE.
    Keep,
    /// Waited for a peer: for its message, or for a free slot.
    Wait,
    /// Waited until all had come to the start or the end of the refit.
    Meet,
}

/// One piece of a refit on one PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefitEvent {
    /// What it did.
    pub activity: RefitActivity,
    /// With which PE: itself, unless the activity has a peer.
    pub peer: usize,
    /// Bytes moved.
    pub bytes: u64,
    /// By the monotonic clock of this host.
    pub start_ns: u64,
    /// By the same clock.
    pub end_ns: u64,
}

/// Events of the refits of one PE, as long as it records them.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<RefitEvent>,
    mark_ns: u64,
}

impl Timeline {
    /// Has the next event begin now.
    pub(crate) fn begin(&self) {
        lock(&self.state).mark_ns = now_ns();
    }

    /// Records what this PE did since the event before.
    pub(crate) fn add(&self, activity: RefitActivity, peer: usize, bytes: u64) {
        self.add_all(&[(activity, peer)], bytes);
    }

    /// Records what this PE did at the same time since the event before, of `bytes` each: every
    /// part has its share of the time.
    pub(crate) fn add_all(&self, parts: &[(RefitActivity, usize)], bytes: u64) {
        let end_ns = now_ns();
        let mut state = lock(&self.state);
        let from_ns = std::mem::replace(&mut state.mark_ns, end_ns);
        let part_ns = (end_ns - from_ns) / parts.len().max(1) as u64;
        let starts = (0..).map(|at| from_ns + at * part_ns);
        for (&(activity, peer), start_ns) in parts.iter().zip(starts) {
            let event = RefitEvent { activity, peer, bytes, start_ns, end_ns: start_ns + part_ns };
            state.push(event);
        }
    }

    /// Takes all events so far.
    pub(crate) fn take(&self) -> Vec<RefitEvent> {
        std::mem::take(&mut lock(&self.state).events)
    }
}

impl State {
    fn push(&mut self, event: RefitEvent) {
        // Many small boxes for one peer are one event to a reader.
        let joins = matches!(event.activity, RefitActivity::Place | RefitActivity::Keep);
        let full = self.events.len() >= EVENTS_MAX;
        match self.events.last_mut() {
            Some(last) if joins && (last.activity, last.peer) == (event.activity, event.peer) => {
                last.bytes += event.bytes;
                last.end_ns = event.end_ns;
            }
            _ if full => {}
            _ => self.events.push(event),
        }
    }
}

/// The clock that all processes of a host share.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
