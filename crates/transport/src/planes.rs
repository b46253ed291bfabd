//! What a transport consists of: agreement, messages and shared memory, a trait each.

use std::any::Any;
use std::sync::Arc;

use super::{Failure, Fill, Phase, Shape, Slots, Take, Ticket, Wait, Window, WindowId};

/// How the PEs of a group agree: on the start and the end of each refit, and on failures.
///
/// The life of a refit: [`enter`](Self::enter) on every PE, any number of messages, then
/// [`finish`](Self::finish) on every PE. `finish` returns `Ok` on all of them or on none.
/// [`Session`](super::Session) is the safe way to both.
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
/// - After a failure `enter` and `finish` return `Err` until [`recover`](Self::recover) has
///   returned `Ok`, which it does only on members that have heard of the end of the refit.
/// - [`members`](Self::members) stays the same from `enter` to the end of the refit; `enter`,
///   `finish` and `ticket` are about those members only.
pub unsafe trait ControlPlane: Send + Sync {
    /// This PE.
    fn rank(&self) -> usize;

    /// The group's parameters.
    fn shape(&self) -> Shape;

    /// Returns the PEs that take part, in ascending order.
    fn members(&self) -> Vec<usize> {
        (0..self.shape().size).collect()
    }

    /// Counts changes of the members, from 1.
    fn epoch(&self) -> u64 {
        1
    }

    /// Takes part again after a failure: returns `Ok` once this PE may enter another refit with the
    /// members that are left.
    ///
    /// Does nothing in a group that has not failed. Returns the failure where the transport cannot
    /// go on after one, or the group goes on without this PE.
    ///
    /// # Safety
    /// The refit entered before has ended on this PE: no slot of it is claimed, and nothing that
    /// writes memory of its peers goes on.
    unsafe fn recover(&self, wait: &Wait<'_>) -> Result<(), Failure> {
        let _ = wait;
        self.failure().map_or(Ok(()), Err)
    }

    /// Returns `true` if [`recover`](Self::recover) can return `Ok` after a failure.
    fn can_recover(&self) -> bool {
        false
    }

    /// Announces `ticket`, and returns when every PE of the group has announced one.
    ///
    /// # Safety
    /// The refit entered before, if any, was finished or has failed. Memory that the ticket
    /// announces is left alone until this refit is finished, and for good if it fails.
    unsafe fn enter(&self, ticket: Ticket, wait: &Wait<'_>) -> Result<(), Failure>;

    /// Returns what `peer` announced for the refit under way.
    fn ticket(&self, peer: usize) -> Ticket;

    /// Declares this PE's part done, and returns when every PE has: the refit is then committed.
    ///
    /// # Safety
    /// This PE has entered the refit, and nothing that writes memory of its peers goes on.
    unsafe fn finish(&self, wait: &Wait<'_>) -> Result<(), Failure>;

    /// Fails the whole group, and returns the failure that it agreed on: the first one reported.
    fn fail(&self, failure: Failure) -> Failure;

    /// Returns the failure of the group, if it has failed.
    fn failure(&self) -> Option<Failure>;

    /// Returns a count that changes whenever something may have become possible for this PE.
    fn bell(&self) -> u32;

    /// Parks until that count differs from `seen`.
    ///
    /// Fails when the group has failed, a PE that is still needed is gone, or `wait` is over.
    fn park(&self, seen: u32, wait: &Wait<'_>) -> Result<(), Failure>;
}

/// How messages travel between the PEs of a group.
///
/// Messages between two PEs arrive in the order in which they were sent. Of threads that use one
/// endpoint at once, each sends and receives whole messages; which one gets which message is open.
pub trait DataPlane: Send + Sync {
    /// Sends a message of `bytes` to `peer` if a slot is free. Returns `false` if none is.
    ///
    /// `fill` gets the slot to write, and returns the header. It runs under no lock; if it panics,
    /// nothing is sent and the slot is free again.
    ///
    /// # Panics
    /// If `bytes` exceeds the slot, or there is no such peer.
    fn try_send(&self, peer: usize, bytes: usize, fill: &mut Fill<'_>) -> Result<bool, Failure>;

    /// Takes the next message from `peer` if it has arrived. Returns `false` if it has not.
    ///
    /// The slot is the sender's again when `take` returns. `take` runs under no lock; if it panics,
    /// the message is lost, and the group fails.
    fn try_receive(&self, peer: usize, take: &mut Take<'_>) -> Result<bool, Failure>;

    /// Returns the slots, where lanes can fill and empty them in place; `None` where messages are
    /// copied on the way.
    fn slots(&self) -> Option<&dyn Slots> {
        None
    }
}

/// Memory that the PEs of a group share.
///
/// The provided methods are those of a transport whose PEs share none.
///
/// # Safety
/// PEs write each other's memory on the word of their transports. An implementation promises:
/// - [`allocate`](Self::allocate) returns memory that nothing else uses, and [`owns`](Self::owns)
///   is true of such memory only. [`peer_window`](Self::peer_window) returns the memory that this
///   peer allocated under that id.
/// - [`shares_memory`](Self::shares_memory) gives the same answer on both sides.
/// - [`offered`](Self::offered) returns what that peer offered under that id.
pub unsafe trait MemoryPlane: Send + Sync {
    /// Returns `true` if this PE and `peer` share memory, so that each writes the other's windows.
    ///
    /// Both sides give the same answer. Where it is false, what `peer` sends comes through slots,
    /// also into a destination that others write directly.
    fn shares_memory(&self, peer: usize) -> bool {
        let _ = peer;
        false
    }

    /// Allocates memory that peers can write. Returns `None` where PEs share none.
    fn allocate(&self, bytes: usize) -> Result<Option<Window>, Failure> {
        let _ = bytes;
        Ok(None)
    }

    /// Returns `true` if [`allocate`](Self::allocate) made `window` in this group: only there do
    /// peers find it by its id.
    fn owns(&self, window: &Window) -> bool {
        let _ = window;
        false
    }

    /// Returns the window `id` of `peer`, or `None` where PEs share no memory.
    fn peer_window(&self, peer: usize, id: WindowId) -> Result<Option<Window>, Failure> {
        let _ = (peer, id);
        Ok(None)
    }

    /// Lets peers have `shared`, where PEs are threads of one process. Returns `None` elsewhere.
    fn offer(&self, shared: Arc<dyn Any + Send + Sync>) -> Option<WindowId> {
        let _ = shared;
        None
    }

    /// Returns what `peer` offered under `id`.
    fn offered(&self, peer: usize, id: WindowId) -> Option<Arc<dyn Any + Send + Sync>> {
        let _ = (peer, id);
        None
    }
}

/// One PE's connection to its group: everything that has the three planes.
pub trait Transport: ControlPlane + DataPlane + MemoryPlane {
    /// Sends, waiting for a slot; see [`try_send`](DataPlane::try_send).
    fn send(
        &self,
        peer: usize,
        bytes: usize,
        fill: &mut Fill<'_>,
        wait: &Wait<'_>,
    ) -> Result<(), Failure>;

    /// Receives, waiting for the message; see [`try_receive`](DataPlane::try_receive).
    fn receive(&self, peer: usize, take: &mut Take<'_>, wait: &Wait<'_>) -> Result<(), Failure>;
}

impl<T: ControlPlane + DataPlane + MemoryPlane> Transport for T {
    fn send(
        &self,
        peer: usize,
        bytes: usize,
        fill: &mut Fill<'_>,
        wait: &Wait<'_>,
    ) -> Result<(), Failure> {
        retry(self, peer, wait, || self.try_send(peer, bytes, fill))
    }

    fn receive(&self, peer: usize, take: &mut Take<'_>, wait: &Wait<'_>) -> Result<(), Failure> {
        retry(self, peer, wait, || self.try_receive(peer, take))
    }
}

/// Parks after each `attempt` that returns `false`, until one returns `true`.
fn retry(
    control: &impl ControlPlane,
    peer: usize,
    wait: &Wait<'_>,
    mut attempt: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    loop {
        let seen = control.bell();
        if attempt()? {
            return Ok(());
        }
        control.park(seen, &wait.until(Phase::Transfer, peer))?;
    }
}

/// A transport whose planes belong to other values: it has the three planes by delegation.
///
/// # Safety
/// Each method returns the same plane every time, and all three planes are those of one PE of one
/// group.
pub unsafe trait Composite: Send + Sync {
    /// Returns how this transport agrees.
    fn control(&self) -> &dyn ControlPlane;

    /// Returns how this transport carries messages.
    fn data(&self) -> &dyn DataPlane;

    /// Returns what memory this transport shares.
    fn memory(&self) -> &dyn MemoryPlane;
}

// SAFETY: the planes of the box's content.
unsafe impl Composite for Box<dyn Transport> {
    fn control(&self) -> &dyn ControlPlane {
        &**self
    }

    fn data(&self) -> &dyn DataPlane {
        &**self
    }

    fn memory(&self) -> &dyn MemoryPlane {
        &**self
    }
}

// SAFETY: every call goes to one plane that keeps the contract.
unsafe impl<T: Composite> ControlPlane for T {
    fn rank(&self) -> usize {
        self.control().rank()
    }

    fn shape(&self) -> Shape {
        self.control().shape()
    }

    unsafe fn enter(&self, ticket: Ticket, wait: &Wait<'_>) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { self.control().enter(ticket, wait) }
    }

    fn members(&self) -> Vec<usize> {
        self.control().members()
    }

    fn epoch(&self) -> u64 {
        self.control().epoch()
    }

    unsafe fn recover(&self, wait: &Wait<'_>) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { self.control().recover(wait) }
    }

    fn can_recover(&self) -> bool {
        self.control().can_recover()
    }

    fn ticket(&self, peer: usize) -> Ticket {
        self.control().ticket(peer)
    }

    unsafe fn finish(&self, wait: &Wait<'_>) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { self.control().finish(wait) }
    }

    fn fail(&self, failure: Failure) -> Failure {
        self.control().fail(failure)
    }

    fn failure(&self) -> Option<Failure> {
        self.control().failure()
    }

    fn bell(&self) -> u32 {
        self.control().bell()
    }

    fn park(&self, seen: u32, wait: &Wait<'_>) -> Result<(), Failure> {
        self.control().park(seen, wait)
    }
}

impl<T: Composite> DataPlane for T {
    fn try_send(&self, peer: usize, bytes: usize, fill: &mut Fill<'_>) -> Result<bool, Failure> {
        self.data().try_send(peer, bytes, fill)
    }

    fn try_receive(&self, peer: usize, take: &mut Take<'_>) -> Result<bool, Failure> {
        self.data().try_receive(peer, take)
    }

    fn slots(&self) -> Option<&dyn Slots> {
        self.data().slots()
    }
}

// SAFETY: every call goes to one plane that keeps the contract.
unsafe impl<T: Composite> MemoryPlane for T {
    fn shares_memory(&self, peer: usize) -> bool {
        self.memory().shares_memory(peer)
    }

    fn allocate(&self, bytes: usize) -> Result<Option<Window>, Failure> {
        self.memory().allocate(bytes)
    }

    fn owns(&self, window: &Window) -> bool {
        self.memory().owns(window)
    }

    fn peer_window(&self, peer: usize, id: WindowId) -> Result<Option<Window>, Failure> {
        self.memory().peer_window(peer, id)
    }

    fn offer(&self, shared: Arc<dyn Any + Send + Sync>) -> Option<WindowId> {
        self.memory().offer(shared)
    }

    fn offered(&self, peer: usize, id: WindowId) -> Option<Arc<dyn Any + Send + Sync>> {
        self.memory().offered(peer, id)
    }
}
