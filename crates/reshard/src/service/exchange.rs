//! Single transfers: sends and receives that PEs submit without a plan.
//!
//! First every PE tells every other what it will send, and all compare that with what they expect;
//! then the data moves. Both go around in a ring: in step `k` each PE sends to the PE `k` places on and
//! receives from the one `k` places back, so that nobody is sent to by two at once.

use std::collections::BTreeMap;

use super::ServiceError;
use crate::hash::Hasher64;
use crate::transport::{Failure, Header, Phase, Ticket, Transport, Wait};

/// What was submitted on this PE.
#[derive(Default)]
pub(super) struct Exchange<'a> {
    /// By peer and tag.
    sends: BTreeMap<(usize, u64), &'a [u8]>,
    receives: BTreeMap<(usize, u64), &'a mut [u8]>,
}

impl<'a> Exchange<'a> {
    pub fn submit_send(
        &mut self,
        size: usize,
        peer: usize,
        tag: u64,
        bytes: &'a [u8],
    ) -> Result<(), ServiceError> {
        check(size, peer, tag, self.sends.contains_key(&(peer, tag)))?;
        self.sends.insert((peer, tag), bytes);
        Ok(())
    }

    pub fn submit_recv(
        &mut self,
        size: usize,
        peer: usize,
        tag: u64,
        target: &'a mut [u8],
    ) -> Result<(), ServiceError> {
        check(size, peer, tag, self.receives.contains_key(&(peer, tag)))?;
        self.receives.insert((peer, tag), target);
        Ok(())
    }

    pub fn run(
        self,
        transport: &dyn Transport,
        wait: &Wait<'_>,
        checksums: bool,
    ) -> Result<(), Failure> {
        self.try_run(transport, wait, checksums).map_err(|failure| transport.fail(failure))
    }

    fn try_run(
        mut self,
        transport: &dyn Transport,
        wait: &Wait<'_>,
        checksums: bool,
    ) -> Result<(), Failure> {
        let mut ring = Ring { transport, wait, checksums };
        // Announce and compare; when this phase commits, everything matches everywhere.
        ring.enter()?;
        let size = transport.shape().size;
        let mut arrived: Vec<Vec<u8>> = vec![Vec::new(); size];
        let announced: Vec<Vec<u8>> = (0..size).map(|peer| self.manifest(peer)).collect();
        let outgoing = announced.iter().map(|bytes| Stream::of(vec![bytes])).collect();
        ring.around(outgoing, &mut |peer, bytes, total| {
            arrived[peer].extend_from_slice(bytes);
            arrived[peer].len() as u64 == total
        })?;
        arrived[transport.rank()] = announced[transport.rank()].clone();
        for (peer, manifest) in arrived.iter().enumerate() {
            self.compare(transport.rank(), peer, manifest)?;
        }
        transport.finish(wait)?;
        ring.enter()?;
        self.move_data(&mut ring)?;
        transport.finish(wait)
    }

    /// Tag and size of everything that goes to `peer`, by tag.
    fn manifest(&self, peer: usize) -> Vec<u8> {
        let sends = self.sends.range((peer, 0)..=(peer, u64::MAX));
        let words = sends.flat_map(|((_, tag), bytes)| [*tag, bytes.len() as u64]);
        words.flat_map(u64::to_le_bytes).collect()
    }

    fn compare(&self, receiver: usize, sender: usize, manifest: &[u8]) -> Result<(), Failure> {
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let announced: BTreeMap<u64, u64> = manifest
            .as_chunks()
            .0
            .chunks_exact(2)
            .map(|entry| (word(&entry[0]), word(&entry[1])))
            .collect();
        for (&tag, &bytes) in &announced {
            let Some(target) = self.receives.get(&(sender, tag)) else {
                return Err(Failure::UnmatchedSend { sender, receiver, tag, bytes });
            };
            if target.len() as u64 != bytes {
                let expected_bytes = target.len() as u64;
                let sent_bytes = bytes;
                return Err(Failure::SizeMismatch {
                    sender,
                    receiver,
                    tag,
                    sent_bytes,
                    expected_bytes,
                });
            }
        }
        let mut expected = self.receives.range((sender, 0)..=(sender, u64::MAX));
        match expected.find(|((_, tag), _)| !announced.contains_key(tag)) {
            None => Ok(()),
            Some((&(_, tag), target)) => {
                let bytes = target.len() as u64;
                Err(Failure::UnmatchedReceive { sender, receiver, tag, bytes })
            }
        }
    }

    fn move_data(&mut self, ring: &mut Ring<'_>) -> Result<(), Failure> {
        let Shapes { rank, size } = ring.shapes();
        for (&(_, tag), bytes) in self.sends.range((rank, 0)..=(rank, u64::MAX)) {
            let target = self.receives.get_mut(&(rank, tag)).expect("compared before");
            target.copy_from_slice(bytes);
        }
        let outgoing = (0..size).map(|peer| {
            let sends = self.sends.range((peer, 0)..=(peer, u64::MAX));
            Stream::of(sends.map(|(_, bytes)| *bytes).collect())
        });
        // Tags come in the same order on both sides, and sizes were compared.
        let mut places: Vec<(Vec<&mut [u8]>, usize)> = (0..size).map(|_| (Vec::new(), 0)).collect();
        for ((peer, _), target) in &mut self.receives {
            places[*peer].0.push(target);
        }
        let expected: Vec<u64> = places
            .iter()
            .map(|(targets, _)| targets.iter().map(|target| target.len() as u64).sum())
            .collect();
        let mut arrived = vec![0; size];
        ring.around(outgoing.collect(), &mut |peer, bytes, _| {
            arrived[peer] += bytes.len() as u64;
            scatter(&mut places[peer], bytes);
            arrived[peer] >= expected[peer]
        })
    }
}

/// Puts `bytes` where the last call left off.
fn scatter((targets, offset): &mut (Vec<&mut [u8]>, usize), mut bytes: &[u8]) {
    let mut from = 0;
    // Only the targets from the current one on are left in the list.
    while !bytes.is_empty() && from < targets.len() {
        let room = &mut targets[from][*offset..];
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        *offset += count;
        if *offset == targets[from].len() {
            from += 1;
            *offset = 0;
        }
    }
    targets.drain(..from);
}

fn check(size: usize, peer: usize, tag: u64, is_taken: bool) -> Result<(), ServiceError> {
    let problem = match (peer < size, is_taken) {
        (false, _) => "there is no such PE in the group",
        (true, true) => "that tag is submitted already; run or clear first, or use another",
        (true, false) => return Ok(()),
    };
    Err(ServiceError::Submit { peer, tag, problem })
}

/// Byte strings sent as one.
struct Stream<'a> {
    parts: Vec<&'a [u8]>,
    total: u64,
    part: usize,
    offset: usize,
    sent: u64,
    /// An empty stream is one empty message.
    is_over: bool,
}

impl<'a> Stream<'a> {
    fn of<T: AsRef<[u8]> + ?Sized>(parts: Vec<&'a T>) -> Self {
        let parts: Vec<&[u8]> = parts.into_iter().map(AsRef::as_ref).collect();
        let total = parts.iter().map(|part| part.len() as u64).sum();
        Self { parts, total, part: 0, offset: 0, sent: 0, is_over: false }
    }

    fn next_bytes(&self, slot_bytes: usize) -> usize {
        (self.total - self.sent).min(slot_bytes as u64) as usize
    }

    fn fill(&mut self, mut slot: &mut [u8]) {
        self.sent += slot.len() as u64;
        self.is_over = self.sent == self.total;
        while !slot.is_empty() {
            let part = &self.parts[self.part][self.offset..];
            let count = part.len().min(slot.len());
            let (head, rest) = slot.split_at_mut(count);
            head.copy_from_slice(&part[..count]);
            slot = rest;
            self.offset += count;
            if self.offset == self.parts[self.part].len() {
                self.part += 1;
                self.offset = 0;
            }
        }
    }
}

struct Shapes {
    rank: usize,
    size: usize,
}

struct Ring<'a> {
    transport: &'a dyn Transport,
    wait: &'a Wait<'a>,
    checksums: bool,
}

impl Ring<'_> {
    fn shapes(&self) -> Shapes {
        Shapes { rank: self.transport.rank(), size: self.transport.shape().size }
    }

    /// Starts a phase; fails where a PE does something else than an exchange.
    fn enter(&self) -> Result<(), Failure> {
        let mut hasher = Hasher64::new(0xe8c4);
        hasher.word(self.checksums.into());
        let fingerprint = hasher.finish();
        self.transport.enter(Ticket { fingerprint, window: None }, self.wait)?;
        let Shapes { rank, size } = self.shapes();
        for other in 0..size {
            let other_fingerprint = self.transport.ticket(other).fingerprint;
            if other_fingerprint != fingerprint {
                return Err(Failure::PlanMismatch { rank, fingerprint, other, other_fingerprint });
            }
        }
        Ok(())
    }

    /// Sends one stream to every other PE; `take` gets what comes, with the whole stream's size, and says
    /// when the stream is complete.
    fn around(
        &mut self,
        mut outgoing: Vec<Stream<'_>>,
        take: &mut dyn FnMut(usize, &[u8], u64) -> bool,
    ) -> Result<(), Failure> {
        let Shapes { rank, size } = self.shapes();
        let (mut sending, mut receiving) = (1, 1);
        while sending < size || receiving < size {
            let seen = self.transport.bell();
            let mut went = false;
            let (to, from) = ((rank + sending) % size, (rank + size - receiving % size) % size);
            if receiving < size {
                let mut is_complete = false;
                went |= self.transport.try_receive(from, &mut |header, bytes| {
                    self.verify(from, header, bytes)?;
                    is_complete = take(from, bytes, header.tag);
                    Ok(())
                })?;
                receiving += usize::from(is_complete);
            }
            if sending < size {
                let stream = &mut outgoing[to];
                let bytes = stream.next_bytes(self.transport.shape().slot_bytes);
                went |= self.transport.try_send(to, bytes, &mut |slot| {
                    stream.fill(slot);
                    Header { tag: stream.total, checksum: self.checksum(slot) }
                })?;
                sending += usize::from(outgoing[to].is_over);
            }
            if !went {
                let peer = if receiving < size { from } else { to };
                self.transport.park(seen, &self.wait.until(Phase::Transfer, peer))?;
            } else if let Some(failure) = self.wait.expired(rank) {
                return Err(failure);
            }
        }
        Ok(())
    }

    fn checksum(&self, bytes: &[u8]) -> u32 {
        if self.checksums { crc32fast::hash(bytes) } else { 0 }
    }

    fn verify(&self, sender: usize, header: Header, bytes: &[u8]) -> Result<(), Failure> {
        let (got, receiver) = (self.checksum(bytes), self.transport.rank());
        if got == header.checksum {
            return Ok(());
        }
        let (tag, expected) = (header.tag, header.checksum);
        Err(Failure::Corrupt { sender, receiver, tag, expected, got })
    }
}
