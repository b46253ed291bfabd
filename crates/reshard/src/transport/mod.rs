//! Transports: how the PEs of a group reach each other.
//!
//! A [`Transport`] carries messages in slots, lets PEs agree on the start and the end of each refit,
//! and, where PEs share memory, hands out [`Window`]s that peers write directly. Two are here:
//! [`local`] for threads and [`shm`] for processes of one host. `README.md` beside this file explains
//! the protocol that both share.
//!
//! Every wait is bounded by a [`Wait`]: a deadline, and a flag to cancel by. A group that has failed
//! stays failed, and every call on every PE returns the same [`Failure`].

mod board;
pub mod conformance;
mod endpoint;
mod failure;
mod futex;
pub mod local;
mod region;
pub mod shm;
mod slots;
mod window;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use endpoint::Endpoint;
pub use failure::{Corrupted, Failure, Phase, RECORD_WORDS, Shape};
pub(crate) use region::Region;
pub use slots::{Arrival, SlotPlace, Slots};
pub use window::{Window, WindowId};

/// What a PE announces when it starts a refit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    /// The plan it is about to run.
    pub fingerprint: u64,
    /// Where peers may place data, if anywhere: the window, and two numbers of the caller's.
    pub window: Option<(WindowId, [u64; 2])>,
}

/// What travels beside the bytes of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Which message this is; receivers compare it with what they expect.
    pub tag: u64,
    /// A checksum of the sender's, or 0 where none was asked for; what it is of is between sender and receiver.
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
    pub deadline: Instant,
    /// Set to give up at once.
    pub cancel: Option<&'a AtomicBool>,
    /// What is waited for; part of the error.
    pub phase: Phase,
    /// Who is waited for; part of the error.
    pub peer: usize,
}

impl<'a> Wait<'a> {
    /// Gives up `timeout` from now.
    pub fn timeout(timeout: Duration) -> Self {
        let since = Instant::now();
        // A deadline too far to be represented is as good as one thirty years ahead.
        let deadline = since.checked_add(timeout).unwrap_or(since + Duration::from_secs(1 << 30));
        Self { since, deadline, cancel: None, phase: Phase::Transfer, peer: 0 }
    }

    /// Also gives up when `cancel` is set.
    pub fn cancelled_by(self, cancel: &'a AtomicBool) -> Self {
        Self { cancel: Some(cancel), ..self }
    }

    /// The same limits for another wait.
    pub fn until(self, phase: Phase, peer: usize) -> Self {
        Self { phase, peer, ..self }
    }

    /// The failure of PE `rank` if it has waited too long or was cancelled.
    pub fn expired(&self, rank: usize) -> Option<Failure> {
        if self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            return Some(Failure::Cancelled { rank });
        }
        (Instant::now() >= self.deadline).then(|| Failure::TimedOut {
            rank,
            waiting_for: self.peer,
            phase: self.phase,
            waited_ms: self.since.elapsed().as_millis() as u64,
        })
    }
}

/// One PE's connection to its group.
///
/// Messages between two PEs arrive in the order in which they were sent. A PE may use its endpoint from
/// several threads as long as one at a time sends and one at a time receives from each peer.
///
/// The life of a refit: [`enter`](Self::enter) on every PE, any number of messages, then
/// [`finish`](Self::finish) on every PE. `finish` returns `Ok` on all of them or on none.
pub trait Transport: Send + Sync {
    /// This PE.
    fn rank(&self) -> usize;

    /// The group's parameters.
    fn shape(&self) -> Shape;

    /// Announces `ticket`, and returns when every PE of the group has announced one.
    fn enter(&self, ticket: Ticket, wait: &Wait<'_>) -> Result<(), Failure>;

    /// What `peer` announced for the refit under way.
    fn ticket(&self, peer: usize) -> Ticket;

    /// Sends a message of `bytes` to `peer` if a slot is free; false if none is.
    ///
    /// `fill` gets the slot to write, and returns the header. `bytes` must not exceed the slot.
    fn try_send(
        &self,
        peer: usize,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Header,
    ) -> Result<bool, Failure>;

    /// Takes the next message from `peer` if it is there; false if it is not.
    ///
    /// The slot is the sender's again when `take` returns.
    fn try_receive(&self, peer: usize, take: &mut Take<'_>) -> Result<bool, Failure>;

    /// A count that changes whenever something may have become possible for this PE.
    fn bell(&self) -> u32;

    /// Sleeps until [`bell`](Self::bell) differs from `seen`.
    ///
    /// Fails when the group has failed, a PE that is still needed is gone, or `wait` is over.
    fn park(&self, seen: u32, wait: &Wait<'_>) -> Result<(), Failure>;

    /// Declares this PE's part done, and returns when every PE has: the refit is then committed.
    fn finish(&self, wait: &Wait<'_>) -> Result<(), Failure>;

    /// Fails the whole group, and returns the failure that it agreed on: the first one reported.
    fn fail(&self, failure: Failure) -> Failure;

    /// The failure of the group, if it has failed.
    fn failure(&self) -> Option<Failure>;

    /// Memory that peers can write, or `None` where PEs share none.
    fn allocate(&self, bytes: usize) -> Result<Option<Window>, Failure>;

    /// Whether [`allocate`](Self::allocate) made `window` in this group: peers find it by its id there only.
    fn owns(&self, window: &Window) -> bool;

    /// The window `id` of `peer`, or `None` where PEs share no memory.
    fn peer_window(&self, peer: usize, id: WindowId) -> Result<Option<Window>, Failure>;

    /// Whether this PE and `peer` share memory, so that each writes the other's windows.
    ///
    /// Both sides give the same answer. Where it is false, what `peer` sends comes through slots, also into a
    /// destination that others write directly.
    fn shares_memory(&self, _peer: usize) -> bool {
        true
    }

    /// The slots, where lanes can fill and empty them in place; `None` where messages are copied on the way.
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
