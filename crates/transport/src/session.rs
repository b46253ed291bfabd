//! Sessions: a refit that every PE of the group has entered.

use std::mem;

use super::{Failure, Phase, Ticket, Transport, Wait};

/// A refit that every PE of the group has entered: the right to move data until it is finished.
///
/// Every PE must finish it: one that is dropped before that fails the group. Code that gives up
/// reports its reason first, with [`fail`](super::ControlPlane::fail), which keeps the first cause.
///
/// ```
/// use std::time::Duration;
/// use syncline_transport::{Session, Wait, local};
///
/// let endpoints = local::group(2, &local::Options::default())?;
/// std::thread::scope(|scope| {
///     for mut endpoint in endpoints {
///         scope.spawn(move || {
///             let wait = Wait::timeout(Duration::from_secs(10));
///             let session = Session::enter(&mut endpoint, 7, &wait).unwrap();
///             // Here messages go between the PEs, by `session.transport()`.
///             session.finish(&wait).unwrap();
///         });
///     }
/// });
/// # Ok::<(), local::GroupError>(())
/// ```
#[must_use = "the other PEs wait until it is finished"]
pub struct Session<'t> {
    transport: &'t dyn Transport,
    fingerprint: u64,
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session(PE {}, plan {:016x})", self.transport.rank(), self.fingerprint)
    }
}

impl<'t> Session<'t> {
    /// Announces that this PE is about to run the plan with this fingerprint, and returns when
    /// every PE has announced one.
    ///
    /// The group fails if they are not the same.
    pub fn enter(
        transport: &'t mut dyn Transport,
        fingerprint: u64,
        wait: &Wait<'_>,
    ) -> Result<Self, Failure> {
        // SAFETY: the endpoint is borrowed exclusively, so that no other session is in use; no
        // memory is announced.
        unsafe { Self::announce(transport, Ticket { fingerprint, ..Ticket::default() }, wait) }
    }

    /// The same with memory that peers may write.
    ///
    /// # Safety
    /// No other session of the endpoint is in use while this one is. Memory that the ticket
    /// announces is left alone until the session is finished, and for good if the group fails.
    pub unsafe fn announce(
        transport: &'t dyn Transport,
        ticket: Ticket,
        wait: &Wait<'_>,
    ) -> Result<Self, Failure> {
        let Ticket { fingerprint, .. } = ticket;
        // SAFETY: the caller's promise.
        unsafe { transport.enter(ticket, wait)? };
        let members = transport.members().into_iter();
        let mut theirs = members.map(|peer| (peer, transport.ticket(peer).fingerprint));
        match theirs.find(|(_, theirs)| *theirs != fingerprint) {
            None => Ok(Self { transport, fingerprint }),
            Some((other, other_fingerprint)) => {
                let rank = transport.rank();
                let mismatch =
                    Failure::PlanMismatch { rank, fingerprint, other, other_fingerprint };
                Err(transport.fail(mismatch))
            }
        }
    }

    /// The endpoint.
    pub fn transport(&self) -> &'t dyn Transport {
        self.transport
    }

    /// The fingerprint that every PE has announced.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the first PE that asks all to leave the refit out.
    pub fn held_by(&self) -> Option<usize> {
        self.transport.members().into_iter().find(|&peer| self.transport.ticket(peer).is_held)
    }

    /// Declares this PE's part done, and returns when every PE has: the refit is then committed.
    pub fn finish(self, wait: &Wait<'_>) -> Result<(), Failure> {
        let rank = self.transport.rank();
        let finished = match wait.until(Phase::Finish, rank).expired(rank) {
            Some(failure) => Err(self.transport.fail(failure)),
            // SAFETY: whatever moves data in this session borrows it, and has ended.
            None => unsafe { self.transport.finish(wait) },
        };
        mem::forget(self);
        finished
    }
}

impl Drop for Session<'_> {
    /// Fails the group: the other PEs would wait for this one until their deadlines.
    fn drop(&mut self) {
        let message = match std::thread::panicking() {
            true => "a refit panicked",
            false => "a refit was left unfinished",
        };
        let (rank, message) = (self.transport.rank(), message.to_owned());
        self.transport.fail(Failure::Local { rank, message });
    }
}
