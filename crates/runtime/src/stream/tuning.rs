//! How long the threads of a stream batch and hold back: all numbers that only speed depends on.
//! How long they poll is `syncline_sync::Polls`.
//!
//! `bench/README.md` has what each is worth ("what each tuning value of streams is worth"). Numbers
//! that fix a layout or a bound stand with the types that they belong to.

use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(crate) struct Tuning {
    /// Polls of a worker that has run dry, to let a busy submitter get ahead.
    pub(crate) linger_polls: u32,
    /// The pause between them: a few submissions.
    pub(crate) linger_pause: Duration,
    /// Submissions that the submitter is let get ahead.
    pub(crate) linger_tasks: u64,
    /// Tasks that a helper runs before it takes the submit lock to check its goal.
    pub(crate) help_tasks: usize,
    /// Maximum time of such a burst of a thread that waits for room, to go on submitting. The clock
    /// is read after one, two, four and eight tasks. An alarm or a deadline ends any burst after
    /// any task, and all other goals give an alarm when they are reached.
    pub(crate) help_time: Duration,
    /// Picks between two looks of a lane at the queues of others before its own.
    pub(crate) look_around: u32,
    /// Tasks that a lane takes from the submitter at once.
    pub(crate) batch: usize,
    /// A lane is racing that has spent less than this on each of its last tasks.
    pub(crate) racing: Duration,
    /// How long a thread without work leaves the only ready task of a racing lane alone. Polling
    /// its queue holds it up: the cache lines travel to and fro.
    pub(crate) settle: Duration,
    /// Submissions between two reclaims of finished slots, while there is room.
    pub(crate) reclaim_every: u64,
    /// A submission that waits for room, and does not sleep yet, waits until this share of the ring
    /// is free.
    pub(crate) room_share: usize,
    /// So many polls long: after that, any room will do.
    pub(crate) room_polls: u32,
    /// Submissions between fetching a free slot and using it.
    pub(crate) fetch_ahead: usize,
}

pub(crate) const TUNING: Tuning = Tuning {
    linger_polls: if cfg!(shuttle) { 2 } else { 8 },
    linger_pause: Duration::from_nanos(1400),
    linger_tasks: 64,
    help_tasks: 16,
    help_time: Duration::from_micros(20),
    look_around: 128,
    batch: 32,
    racing: Duration::from_nanos(300),
    settle: Duration::from_micros(2),
    reclaim_every: 32,
    room_share: 8,
    room_polls: 64,
    fetch_ahead: 4,
};
