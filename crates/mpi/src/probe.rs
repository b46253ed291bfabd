//! Which way is the better one here: measured, between two PEs that are as far apart as any, when a
//! group is made.

use std::time::{Duration, Instant};

use syncline_transport::{Failure, Shape, Wait};

use crate::call::{Comm, MpiError};
use crate::inbox::Inbox;
use crate::lines::Lines;
use crate::world::Shared;

/// How long the target stays out of MPI while it is put to.
const OUTSIDE: Duration = Duration::from_millis(40);
const ROUNDS: usize = 3;
/// Messages of a round.
const MESSAGES: usize = 4;
/// Larger slots do not change the answer.
const BYTES_MAX: usize = 1 << 20;
/// How much slower puts may be than messages: they keep the target's processor free.
const PUT_SHARE: f64 = 0.8;
const TAG: i32 = 3;

/// What puts and messages can do here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Puts, each with its completion.
    pub put_gb_per_s: f64,
    /// Messages, sent and received.
    pub message_gb_per_s: f64,
    /// Whether puts wait until their target calls MPI.
    pub put_needs_target: bool,
}

impl Probe {
    /// Whether puts are the better way.
    pub fn prefers_put(&self) -> bool {
        !self.put_needs_target && self.put_gb_per_s >= PUT_SHARE * self.message_gb_per_s
    }

    /// Measures; every PE of the group calls it and gets the same.
    pub(crate) fn measure(
        world: &Shared,
        comm: Comm,
        shape: Shape,
        inbox: &Inbox,
        wait: &Wait<'_>,
    ) -> Result<Self, Failure> {
        let local = |error: MpiError| world.local(&error);
        // The first PE on another host than the first one's; on one host, the second PE.
        let other = world.hosts.iter().position(|host| *host != world.hosts[0]).unwrap_or(1);
        let slot = Lines::new(shape.slot_bytes.min(BYTES_MAX));
        let (mut put_ns, mut message_ns) = (u64::MAX, u64::MAX);
        for _ in 0..ROUNDS {
            world.barrier(comm, wait)?;
            if world.rank == 0 {
                let started = Instant::now();
                for message in 0..MESSAGES {
                    let place = inbox.place(0, message as u64);
                    let payload = &slot.bytes()[Lines::HEADER_BYTES..];
                    inbox.memory.put(payload, other, place, &world.turn()).map_err(local)?;
                }
                put_ns = put_ns.min(started.elapsed().as_nanos() as u64);
            } else if world.rank == other {
                std::thread::sleep(OUTSIDE);
            }
            world.barrier(comm, wait)?;
            if world.rank == 0 {
                let started = Instant::now();
                for _ in 0..MESSAGES {
                    send(world, comm, &slot, other, wait)?;
                }
                receive(world, comm, other, wait)?;
                message_ns = message_ns.min(started.elapsed().as_nanos() as u64);
            } else if world.rank == other {
                for _ in 0..MESSAGES {
                    receive(world, comm, 0, wait)?;
                }
                send(world, comm, &Lines::new(0), 0, wait)?;
            }
        }
        let measured = world.gather_words(comm, world.size, &[put_ns, message_ns], wait)?;
        let bytes = (slot.bytes().len() * MESSAGES) as f64;
        let [put_ns, message_ns] = [measured[0][0], measured[0][1]];
        Ok(Self {
            put_gb_per_s: bytes / put_ns as f64,
            message_gb_per_s: bytes / message_ns as f64,
            put_needs_target: Duration::from_nanos(put_ns) > OUTSIDE * 3 / 4,
        })
    }
}

fn send(
    world: &Shared,
    comm: Comm,
    slot: &Lines,
    peer: usize,
    wait: &Wait<'_>,
) -> Result<(), Failure> {
    // A copy of its own, which stays if the peer never takes it.
    let mut bytes = Lines::new(slot.bytes().len() - Lines::HEADER_BYTES);
    bytes.bytes_mut().copy_from_slice(slot.bytes());
    // SAFETY: the bytes stay until the request has completed, or for ever.
    let request = unsafe { comm.send(bytes.bytes(), peer, TAG, &world.turn()) };
    let mut request = request.map_err(|error| world.local(&error))?;
    let sent = world.complete(&mut request, wait);
    if sent.is_err() {
        std::mem::forget(bytes);
    }
    sent
}

fn receive(world: &Shared, comm: Comm, peer: usize, wait: &Wait<'_>) -> Result<(), Failure> {
    let local = |error: MpiError| world.local(&error);
    let mut pause = world.pause();
    loop {
        let turn = world.turn();
        if let Some(matched) = comm.probe(Some(peer), TAG, &turn).map_err(local)? {
            let mut place = vec![0; matched.bytes];
            // SAFETY: the place stays until the request has completed, or for ever.
            let mut request = unsafe { matched.receive(&mut place, &turn) }.map_err(local)?;
            drop(turn);
            let received = world.complete(&mut request, wait);
            if received.is_err() {
                std::mem::forget(place);
            }
            return received;
        }
        drop(turn);
        if let Some(failure) = wait.expired(world.rank) {
            return Err(failure);
        }
        pause.next();
    }
}
