//! Transports: how the PEs of a group reach each other.
//!
//! A [`Transport`] lets PEs agree on the start and the end of each refit ([`ControlPlane`]),
//! carries messages in slots ([`DataPlane`]), and, where PEs share memory, hands out [`Window`]s
//! that peers write directly ([`MemoryPlane`]). A [`Session`] is one refit that all have entered.
//! Three transports are here: [`local`] for threads, [`shm`] for processes of one host and [`tcp`]
//! for processes of any hosts. `README.md` beside this file explains the protocol that the first
//! two share.
//!
//! Every wait is bounded by a [`Wait`]: a deadline, and a token to cancel by. In a group that has
//! failed every call on every PE returns the same [`Failure`], until all that are left go on by
//! [`ControlPlane::recover`], where the transport can.

#![warn(unreachable_pub)]

mod board;
pub mod conformance;
mod endpoint;
mod failure;
#[allow(unreachable_pub)]
#[cfg(doctest)]
mod lifetimes;
pub mod local;
pub mod membership;
mod planes;
mod region;
mod session;
pub mod shm;
mod slots;
pub mod tcp;
mod window;

use std::time::{Duration, Instant};

use syncline_device::{CancelToken, Deadline};

pub use endpoint::{Endpoint, FailOnPanic};
pub use failure::{Corrupted, Failure, Phase, RECORD_WORDS, Shape};
pub use planes::{Composite, ControlPlane, DataPlane, MemoryPlane, Transport};
pub use region::Region;
pub use session::Session;
pub use slots::{Arrival, FreeSlot, SlotMemory, Slots};
pub use window::{Window, WindowId};

/// What a PE announces when it starts a refit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    /// The plan it is about to run.
    pub fingerprint: u64,
    /// Where peers may place data, if anywhere: the window, and two numbers of the caller's.
    pub window: Option<(WindowId, [u64; 2])>,
    /// Whether this PE asks all to leave the refit out, because a reader holds the memory that it
    /// would overwrite.
    pub is_held: bool,
    /// The version that this PE can be told changes of, below 2^62; 0 if of none.
    pub version: u64,
}

impl Ticket {
    /// The words of this ticket, for transports that carry it.
    pub fn to_words(self) -> [u64; 6] {
        let (window, [first, second]) = self.window.unwrap_or_default();
        let flags = u64::from(self.window.is_some()) | u64::from(self.is_held) << 1;
        let flags = flags | self.version << 2;
        [self.fingerprint, flags, window.place, window.bytes, first, second]
    }

    /// The ticket of these words, which [`to_words`](Self::to_words) has made; of any others, one
    /// that means as little.
    pub fn from_words(words: [u64; 6]) -> Self {
        let [fingerprint, flags, place, bytes, first, second] = words;
        let window = (WindowId { place, bytes }, [first, second]);
        let window = (flags & 1 != 0).then_some(window);
        Self { fingerprint, window, is_held: flags & 2 != 0, version: flags >> 2 }
    }
}

/// What travels beside the bytes of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Which message this is; receivers compare it with what they expect.
    pub tag: u64,
    /// A checksum of the sender's, or 0 where none was asked for; what it is of is between sender
    /// and receiver.
    pub checksum: u32,
}

/// Writes a message into its slot, and returns its header.
pub type Fill<'a> = dyn FnMut(&mut [u8]) -> Header + 'a;

/// What a receiver does with a message.
pub type Take<'a> = dyn FnMut(Header, &[u8]) -> Result<(), Failure> + 'a;

/// How long to wait, and what may end it sooner.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    /// When the call started.
    pub since: Instant,
    /// When to give up.
    pub deadline: Deadline,
    /// Cancelled to give up at once.
    pub cancel: Option<&'a CancelToken>,
    /// What is waited for; part of the error.
    pub phase: Phase,
    /// Who is waited for; part of the error.
    pub peer: usize,
}

impl<'a> Wait<'a> {
    /// Gives up at `deadline`, or a [`Duration`] from now.
    pub fn timeout(deadline: impl Into<Deadline>) -> Self {
        let (since, deadline) = (Instant::now(), deadline.into());
        Self { since, deadline, cancel: None, phase: Phase::Transfer, peer: 0 }
    }

    /// Also gives up when `cancel` is cancelled.
    pub fn cancelled_by(self, cancel: &'a CancelToken) -> Self {
        Self { cancel: Some(cancel), ..self }
    }

    /// Returns the time left until the deadline, at most `most`.
    pub fn left(&self, most: Duration) -> Duration {
        let left = self.deadline.instant().map(|at| at.saturating_duration_since(Instant::now()));
        left.map_or(most, |left| left.min(most))
    }

    /// Returns `true` once half of the time is over.
    pub fn is_half_over(&self) -> bool {
        let time = self.deadline.instant().map(|at| at.saturating_duration_since(self.since));
        time.is_some_and(|time| self.since.elapsed() >= time / 2)
    }

    /// The same limits for another wait.
    pub fn until(self, phase: Phase, peer: usize) -> Self {
        Self { phase, peer, ..self }
    }

    /// The failure of PE `rank` if it has waited too long or was cancelled.
    pub fn expired(&self, rank: usize) -> Option<Failure> {
        if self.cancel.is_some_and(CancelToken::is_cancelled) {
            return Some(Failure::Cancelled { rank });
        }
        self.deadline.has_passed().then(|| Failure::TimedOut {
            rank,
            waiting_for: self.peer,
            phase: self.phase,
            waited_ms: self.since.elapsed().as_millis() as u64,
        })
    }
}
