//! What every transport must do, as checks that any group can run.
//!
//! Every PE of a group calls [`check`] on its own endpoint at the same time, be it a thread, a
//! process or a rank of a cluster: messages of all sizes and orders, back-pressure, agreement on
//! the start and the end of a refit, slots that are filled in place, memory that peers write,
//! values that they share, and at last a failure that all must agree on. Afterwards a group that
//! can recover has done so, and any other has failed, as asked.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::{Failure, FreeSlot, Header, Ticket, Transport, Wait};

/// What a transport does not do as it must.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(String);

/// Runs all checks; returns the first that does not hold.
///
/// ```
/// use std::time::Duration;
/// use syncline_transport::{conformance, local};
///
/// let endpoints = local::group(3, &local::Options { depth: 2, slot_bytes: 256 })?;
/// std::thread::scope(|scope| {
///     for mut endpoint in endpoints {
///         let bound = Duration::from_secs(30);
///         scope.spawn(move || conformance::check(&mut endpoint, bound).unwrap());
///     }
/// });
/// # Ok::<(), local::GroupError>(())
/// ```
pub fn check(transport: &mut dyn Transport, timeout: Duration) -> Result<(), Violation> {
    Suite { transport, timeout }.all().map_err(Violation)
}

struct Suite<'a> {
    transport: &'a dyn Transport,
    timeout: Duration,
}

/// The byte at `at` of message `number` from one PE to another.
fn byte(from: usize, to: usize, number: usize, at: usize) -> u8 {
    (from * 31 + to * 17 + number * 7 + at) as u8
}

impl Suite<'_> {
    fn all(&self) -> Result<(), String> {
        self.tickets()?;
        self.sizes()?;
        self.order_and_back_pressure()?;
        self.everyone_to_everyone()?;
        self.slots_in_place()?;
        self.windows()?;
        self.offers()?;
        self.silence_times_out()?;
        self.failure_is_agreed()?;
        self.goes_on()
    }

    fn wait(&self) -> Wait<'static> {
        Wait::timeout(self.timeout)
    }

    fn rank(&self) -> usize {
        self.transport.rank()
    }

    fn size(&self) -> usize {
        self.transport.shape().size
    }

    /// Runs `body` between a start and an end that all PEs agree on.
    fn refit(
        &self,
        what: &str,
        ticket: Ticket,
        body: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let told = |failure: Failure| format!("{what}: {failure}");
        // SAFETY: the suite has the endpoint to itself, and does one thing after the other; the
        // windows that it announces are read after `finish`, and written by `body`, which has ended
        // by then.
        unsafe { self.transport.enter(ticket, &self.wait()).map_err(told)? };
        body().map_err(|problem| format!("{what}: {problem}"))?;
        // SAFETY: as above.
        unsafe { self.transport.finish(&self.wait()).map_err(told) }
    }

    fn send(&self, to: usize, number: usize, bytes: usize) -> Result<(), String> {
        let from = self.rank();
        let fill = &mut |slot: &mut [u8]| {
            slot.iter_mut().enumerate().for_each(|(at, place)| *place = byte(from, to, number, at));
            Header { tag: number as u64, checksum: bytes as u32 }
        };
        let sent = self.transport.send(to, bytes, fill, &self.wait());
        sent.map_err(|failure| format!("sending {bytes} bytes: {failure}"))
    }

    fn receive(&self, from: usize, number: usize, bytes: usize) -> Result<(), String> {
        let mut problem = None;
        let mut take = self.expect(from, number, bytes, &mut problem);
        let received = self.transport.receive(from, &mut take, &self.wait());
        drop(take);
        received.map_err(|failure| format!("receiving {bytes} bytes: {failure}"))?;
        problem.map_or(Ok(()), Err)
    }

    fn try_receive(&self, from: usize, number: usize, bytes: usize) -> Result<bool, String> {
        let mut problem = None;
        let mut take = self.expect(from, number, bytes, &mut problem);
        let received = self.transport.try_receive(from, &mut take);
        drop(take);
        let received = received.map_err(|failure| format!("polling for {bytes} bytes: {failure}"));
        problem.map_or(received, Err)
    }

    /// Takes message `number` of `bytes` bytes, and says so where another one comes.
    fn expect(
        &self,
        from: usize,
        number: usize,
        bytes: usize,
        problem: &mut Option<String>,
    ) -> impl FnMut(Header, &[u8]) -> Result<(), Failure> {
        let to = self.rank();
        move |header, slot| {
            let expected = Header { tag: number as u64, checksum: bytes as u32 };
            let is_same = |(at, got): (usize, &u8)| *got == byte(from, to, number, at);
            if header != expected || slot.len() != bytes || !slot.iter().enumerate().all(is_same) {
                *problem = Some(format!(
                    "message {number} of {bytes} bytes from PE {from} came as {header:?} with {} bytes, or with others",
                    slot.len()
                ));
            }
            Ok(())
        }
    }

    /// What a PE announces is what the others see, each time anew.
    fn tickets(&self) -> Result<(), String> {
        for round in 0..3 {
            let ticket = |rank: usize| Ticket {
                fingerprint: (rank * 100 + round) as u64,
                window: None,
                is_held: (rank + round) % 2 == 1,
                version: (1 << 61) + rank as u64,
            };
            self.refit("tickets", ticket(self.rank()), || {
                let wrong =
                    (0..self.size()).find(|&peer| self.transport.ticket(peer) != ticket(peer));
                wrong.map_or(Ok(()), |peer| Err(format!("of PE {peer} in round {round}")))
            })?;
        }
        Ok(())
    }

    /// Nothing, a byte, and every size around a whole slot, around a ring.
    fn sizes(&self) -> Result<(), String> {
        let slot_bytes = self.transport.shape().slot_bytes;
        let (to, from) = self.neighbours(1);
        for (number, bytes) in [0, 1, 63, slot_bytes - 1, slot_bytes].into_iter().enumerate() {
            self.refit("sizes", Ticket::default(), || {
                // With itself a PE exchanges nothing: a group of one has no messages.
                if to != self.rank() {
                    self.send(to, number, bytes)?;
                    self.receive(from, number, bytes)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The PEs `step` places on and back.
    fn neighbours(&self, step: usize) -> (usize, usize) {
        let (rank, size) = (self.rank(), self.size());
        ((rank + step) % size, (rank + size - step % size) % size)
    }

    /// More messages than there are slots wait for their turn, and come in order.
    fn order_and_back_pressure(&self) -> Result<(), String> {
        let depth = self.transport.shape().depth;
        let (to, from) = self.neighbours(1);
        if to == self.rank() {
            return Ok(());
        }
        let count = 5 * depth;
        self.refit("order", Ticket::default(), || {
            let mut received = 0;
            for number in 0..count {
                let wait = self.wait();
                // Both at once: that a slot is free again may be heard late, and a PE that only
                // received meanwhile would wait for one that does the same.
                loop {
                    let seen = self.transport.bell();
                    if self.try_send(to, number)? {
                        break;
                    }
                    if received < count && self.try_receive(from, received, 40)? {
                        received += 1;
                        continue;
                    }
                    let parked = self.transport.park(seen, &wait);
                    parked.map_err(|failure| failure.to_string())?;
                }
            }
            (received..count).try_for_each(|number| self.receive(from, number, 40))
        })
    }

    fn try_send(&self, to: usize, number: usize) -> Result<bool, String> {
        let from = self.rank();
        let sent = self.transport.try_send(to, 40, &mut |slot| {
            slot.iter_mut().enumerate().for_each(|(at, place)| *place = byte(from, to, number, at));
            Header { tag: number as u64, checksum: 40 }
        });
        sent.map_err(|failure| failure.to_string())
    }

    fn everyone_to_everyone(&self) -> Result<(), String> {
        for round in 0..3 {
            self.refit("everyone to everyone", Ticket::default(), || {
                for step in 1..self.size() {
                    let (to, from) = self.neighbours(step);
                    self.send(to, step + round, 32 + step)?;
                    self.receive(from, step + round, 32 + step)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Where slots can be filled in place, a message goes around the ring so, step by step.
    fn slots_in_place(&self) -> Result<(), String> {
        const BYTES: usize = 40;
        let (to, from) = self.neighbours(1);
        let Some(slots) = self.transport.slots().filter(|_| to != self.rank()) else {
            return Ok(());
        };
        let told = |failure: Failure| failure.to_string();
        let depth = self.transport.shape().depth;
        for number in 0..2 * depth {
            self.refit("slots in place", Ticket::default(), || {
                let mut claimed: Vec<FreeSlot> =
                    (0..depth + 1).map_while(|_| slots.claim_free()).collect();
                if claimed.len() != depth {
                    return Err(format!("{} of {depth} slots are free", claimed.len()));
                }
                // Which of them is used is open: each in turn.
                let mut slot = claimed.swap_remove(number % depth);
                drop(claimed);
                let place = slot.bytes_mut()[..BYTES].iter_mut().enumerate();
                place.for_each(|(at, place)| *place = byte(self.rank(), to, number, at));
                let header = Header { tag: number as u64, checksum: 1 };
                slots.publish(slot, to, BYTES, header);
                let wait = self.wait();
                let arrival = loop {
                    let seen = self.transport.bell();
                    match slots.claim_arrived(from).map_err(told)? {
                        Some(arrival) => break arrival,
                        None => self.transport.park(seen, &wait).map_err(told)?,
                    }
                };
                let is_same = |(at, got): (usize, &u8)| *got == byte(from, self.rank(), number, at);
                let is_right = arrival.bytes().iter().enumerate().all(is_same);
                match is_right && arrival.header() == header && arrival.bytes().len() == BYTES {
                    true => Ok(()),
                    false => Err(format!("message {number} from PE {from} came as {arrival:?}")),
                }
            })?;
        }
        Ok(())
    }

    /// Where PEs are threads of one process, each finds the very value that a peer offers.
    fn offers(&self) -> Result<(), String> {
        // Kept here: an offer lasts as long as its value.
        let shared: Arc<dyn Any + Send + Sync> = Arc::new(self.rank());
        let id = self.transport.offer(shared.clone());
        let ticket = Ticket {
            fingerprint: 8,
            window: id.map(|id| (id, [0, 0])),
            is_held: false,
            version: 0,
        };
        self.refit("offers", ticket, || {
            for peer in 0..self.size() {
                let Some((id, _)) = self.transport.ticket(peer).window else { continue };
                let offered = self.transport.offered(peer, id);
                let found = offered.as_ref().and_then(|offered| offered.downcast_ref::<usize>());
                if found != Some(&peer) {
                    return Err(format!("PE {peer} offered its rank, and {found:?} is there"));
                }
            }
            Ok(())
        })
    }

    /// Each writes its own line of the window of every PE that it shares memory with.
    fn windows(&self) -> Result<(), String> {
        const LINE: usize = 64;
        let bytes = LINE * self.size();
        let told = |failure: Failure| format!("windows: {failure}");
        let window = self.transport.allocate(bytes).map_err(told)?;
        let announced = window.as_ref().map(|window| (window.id(), [1, 2]));
        let ticket = Ticket { fingerprint: 7, window: announced, is_held: false, version: 0 };
        self.refit("windows", ticket, || {
            for peer in (0..self.size()).filter(|&peer| self.transport.shares_memory(peer)) {
                let Some((id, _)) = self.transport.ticket(peer).window else { continue };
                let opened = self.transport.peer_window(peer, id).map_err(told)?;
                let opened = opened.ok_or("a peer's window was announced and is not there")?;
                let line = [byte(self.rank(), peer, 0, 0); LINE];
                // SAFETY: the window has a line for each PE, and only this one writes its own.
                unsafe {
                    let place = opened.start().add(self.rank() * LINE);
                    std::ptr::copy_nonoverlapping(line.as_ptr(), place, LINE);
                }
            }
            Ok(())
        })?;
        let Some(window) = window else { return Ok(()) };
        for peer in (0..self.size()).filter(|&peer| self.transport.shares_memory(peer)) {
            // SAFETY: the window is this PE's, and all have finished writing it.
            let line = unsafe { std::slice::from_raw_parts(window.start().add(peer * LINE), LINE) };
            if line.iter().any(|&got| got != byte(peer, self.rank(), 0, 0)) {
                return Err(format!("windows: what PE {peer} wrote has not arrived"));
            }
        }
        Ok(())
    }

    /// A message that no PE sends is not received, and that takes no longer than it may.
    fn silence_times_out(&self) -> Result<(), String> {
        self.refit("silence", Ticket::default(), || {
            let (_, from) = self.neighbours(1);
            let came = self.transport.try_receive(from, &mut |_, _| Ok(()));
            match came {
                Ok(false) => Ok(()),
                other => Err(format!("there is no message, and try_receive says {other:?}")),
            }
        })
    }

    /// The last PE fails the group; all return its failure, also PEs that wait for
    /// something else.
    fn failure_is_agreed(&self) -> Result<(), String> {
        let failure = Failure::Local { rank: self.size() - 1, message: "as asked".to_owned() };
        let wait = self.wait();
        // The last PE may have failed before this one hears that all have entered.
        // SAFETY: every refit before was finished, and no memory is announced.
        let entered = unsafe { self.transport.enter(Ticket::default(), &wait) };
        let seen = if let Err(failure) = entered {
            failure
        } else {
            let (to, from) = self.neighbours(1);
            // Messages that no PE takes: they mean nothing once the refit has failed.
            if to != self.rank() {
                for _ in 0..self.transport.shape().depth {
                    let _ = self.transport.try_send(to, 24, &mut |_| Header::default());
                }
            }
            if self.rank() + 1 == self.size() {
                self.transport.fail(failure.clone())
            } else {
                let one = self.transport.receive(from, &mut |_, _| Ok(()), &wait);
                let none = one.and_then(|()| self.until_failure(&wait));
                match none {
                    Ok(()) => return Err("failure: the refit ended without one".to_owned()),
                    Err(failure) => failure,
                }
            }
        };
        // SAFETY: nothing is written to memory of peers.
        let finished = unsafe { self.transport.finish(&wait) };
        match (seen == failure, &finished, self.transport.failure() == Some(failure.clone())) {
            (true, Err(also), true) if *also == failure => Ok(()),
            _ => Err(format!("failure: {seen} and {finished:?} instead of {failure}")),
        }
    }

    /// Parks until the group has failed.
    fn until_failure(&self, wait: &Wait<'_>) -> Result<(), Failure> {
        loop {
            let seen = self.transport.bell();
            self.transport.park(seen, wait)?;
        }
    }

    /// Where a group can go on after a failure, nothing of the failed refit is left.
    fn goes_on(&self) -> Result<(), String> {
        if !self.transport.can_recover() {
            return Ok(());
        }
        // SAFETY: the refit has ended on this PE: no slot is claimed, and nothing is written.
        let recovered = unsafe { self.transport.recover(&self.wait()) };
        recovered.map_err(|failure| format!("going on: {failure}"))?;
        if self.transport.members() != (0..self.size()).collect::<Vec<_>>() {
            return Err(format!("going on: members {:?}", self.transport.members()));
        }
        self.everyone_to_everyone()?;
        self.order_and_back_pressure()
    }
}
