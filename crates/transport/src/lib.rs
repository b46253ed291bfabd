//! Transports: how the PEs of a group reach each other.
//!
//! A [`Transport`] carries messages in slots, lets PEs agree on the start and the end of each
//! refit, and, where PEs share memory, hands out [`Window`]s that peers write directly. A
//! [`Session`] is one refit that all have entered. Two transports are here: [`local`] for threads
//! and [`shm`] for processes of one host. `README.md` beside this file explains the protocol that
//! both share.
//!
//! Every wait is bounded by a [`Wait`]: a deadline, and a token to cancel by. A group that has
//! failed stays failed, and every call on every PE returns the same [`Failure`].

mod board;
pub mod conformance;
mod endpoint;
mod failure;
mod futex;
#[cfg(doctest)]
mod lifetimes;
pub mod local;
mod region;
mod session;
pub mod shm;
mod slots;
mod window;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_device::{CancelToken, Deadline};

pub use endpoint::{Endpoint, FailOnPanic};
pub use failure::{Corrupted, Failure, Phase, RECORD_WORDS, Shape};
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

/// One PE's connection to its group.
///
/// Messages between two PEs arrive in the order in which they were sent. Of threads that use one
/// endpoint at once, each sends and receives whole messages; which one gets which message is open.
///
/// The life of a refit: [`enter`](Self::enter) on every PE, any number of messages, then
/// [`finish`](Self::finish) on every PE. `finish` returns `Ok` on all of them or on none.
/// [`Session`] is the safe way to both.
///
/// # Safety
/// PEs write each other's memory on the word of their transports. An implementation promises:
/// - `rank` and `shape` never change.
/// - `enter` returns `Ok` only when every PE of the group has entered the same refit. From then
///   until this PE calls `finish`, [`ticket`](Self::ticket) returns what that peer passed to
///   `enter` for this refit.
/// - `finish` returns `Ok` only when every PE has called it for this refit; what a PE did before
///   its call is visible to all after theirs. Once any PE has failed the group before that, it
///   returns `Err` on all.
/// - After a failure `enter` and `finish` return `Err` for good.
/// - [`allocate`](Self::allocate) returns memory that nothing else uses, and [`owns`](Self::owns)
///   is true of such memory only. [`peer_window`](Self::peer_window) returns the memory that this
///   peer allocated under that id.
/// - [`shares_memory`](Self::shares_memory) gives the same answer on both sides.
/// - [`offered`](Self::offered) returns what that peer offered under that id.
pub unsafe trait Transport: Send + Sync {
    /// This PE.
    fn rank(&self) -> usize;

    /// The group's parameters.
    fn shape(&self) -> Shape;

    /// Announces `ticket`, and returns when every PE of the group has announced one.
    ///
    /// # Safety
    /// The refit entered before, if any, was finished or has failed. Memory that the ticket
    /// announces is left alone until this refit is finished, and for good if it fails.
    unsafe fn enter(&self, ticket: Ticket, wait: &Wait<'_>) -> Result<(), Failure>;

    /// What `peer` announced for the refit under way.
    fn ticket(&self, peer: usize) -> Ticket;

    /// Sends a message of `bytes` to `peer` if a slot is free; false if none is.
    ///
    /// `fill` gets the slot to write, and returns the header. It runs under no lock; if it panics,
    /// nothing is sent and the slot is free again.
    ///
    /// # Panics
    /// If `bytes` exceeds the slot, or there is no such peer.
    fn try_send(
        &self,
        peer: usize,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Header,
    ) -> Result<bool, Failure>;

    /// Takes the next message from `peer` if it is there; false if it is not.
    ///
    /// The slot is the sender's again when `take` returns. `take` runs under no lock; if it panics,
    /// the message is lost, and the group fails.
    fn try_receive(&self, peer: usize, take: &mut Take<'_>) -> Result<bool, Failure>;

    /// A count that changes whenever something may have become possible for this PE.
    fn bell(&self) -> u32;

    /// Sleeps until [`bell`](Self::bell) differs from `seen`.
    ///
    /// Fails when the group has failed, a PE that is still needed is gone, or `wait` is over.
    fn park(&self, seen: u32, wait: &Wait<'_>) -> Result<(), Failure>;

    /// Declares this PE's part done, and returns when every PE has: the refit is then committed.
    ///
    /// # Safety
    /// This PE has entered the refit, and nothing that writes memory of its peers goes on.
    unsafe fn finish(&self, wait: &Wait<'_>) -> Result<(), Failure>;

    /// Fails the whole group, and returns the failure that it agreed on: the first one reported.
    fn fail(&self, failure: Failure) -> Failure;

    /// The failure of the group, if it has failed.
    fn failure(&self) -> Option<Failure>;

    /// Memory that peers can write, or `None` where PEs share none.
    fn allocate(&self, bytes: usize) -> Result<Option<Window>, Failure>;

    /// Whether [`allocate`](Self::allocate) made `window` in this group: peers find it by its id
    /// there only.
    fn owns(&self, window: &Window) -> bool;

    /// The window `id` of `peer`, or `None` where PEs share no memory.
    fn peer_window(&self, peer: usize, id: WindowId) -> Result<Option<Window>, Failure>;

    /// Whether this PE and `peer` share memory, so that each writes the other's windows.
    ///
    /// Both sides give the same answer. Where it is false, what `peer` sends comes through slots,
    /// also into a destination that others write directly.
    fn shares_memory(&self, _peer: usize) -> bool {
        true
    }

    /// The slots, where lanes can fill and empty them in place; `None` where messages are copied on
    /// the way.
    fn slots(&self) -> Option<&dyn Slots> {
        None
    }

    /// Lets peers have `shared`, where PEs are threads of one process; `None` where they are not.
    fn offer(&self, shared: Arc<dyn Any + Send + Sync>) -> Option<WindowId> {
        let _ = shared;
        None
    }

    /// What `peer` offered under `id`.
    fn offered(&self, peer: usize, id: WindowId) -> Option<Arc<dyn Any + Send + Sync>> {
        let _ = (peer, id);
        None
    }

    /// Sends, waiting for a slot; see [`try_send`](Self::try_send).
    fn send(
        &self,
        peer: usize,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Header,
        wait: &Wait<'_>,
    ) -> Result<(), Failure> {
        loop {
            let seen = self.bell();
            if self.try_send(peer, bytes, fill)? {
                return Ok(());
            }
            self.park(seen, &wait.until(Phase::Transfer, peer))?;
        }
    }

    /// Receives, waiting for the message; see [`try_receive`](Self::try_receive).
    fn receive(&self, peer: usize, take: &mut Take<'_>, wait: &Wait<'_>) -> Result<(), Failure> {
        loop {
            let seen = self.bell();
            if self.try_receive(peer, take)? {
                return Ok(());
            }
            self.park(seen, &wait.until(Phase::Transfer, peer))?;
        }
    }
}
