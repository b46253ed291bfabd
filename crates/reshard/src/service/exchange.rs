//! Single transfers: sends and receives that PEs submit without a plan.
//!
//! First every PE tells every other what it will send, and all compare that with what they expect;
//! then the data moves. Both go around in a ring: in step `k` each PE sends to the PE `k` places on
//! and receives from the one `k` places back, so that nobody is sent to by two at once.

use std::collections::BTreeMap;

use super::ServiceError;
use crate::sums;
use syncline_layout::{Fingerprint, SUM_BYTES};
use syncline_transport::{Corrupted, Failure, Header, Phase, Session, Transport, Wait};

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
        mut self,
        transport: &mut dyn Transport,
        wait: &Wait<'_>,
        checksums: bool,
    ) -> Result<(), Failure> {
        let mut hasher = Fingerprint::new(0xe8c4);
        hasher.word(checksums.into());
        let fingerprint = hasher.finish();
        // Announce and compare; when this phase commits, everything matches everywhere.
        within_session(transport, fingerprint, wait, |transport| {
            let ring = Ring::new(transport, wait, checksums);
            let announced = self.announce(&ring)?;
            let rank = transport.rank();
            let mut announced = announced.iter().enumerate();
            announced.try_for_each(|(peer, manifest)| self.compare(rank, peer, manifest))
        })?;
        within_session(transport, fingerprint, wait, |transport| {
            self.move_data(&Ring::new(transport, wait, checksums))
        })
    }

    /// What every PE sends to this one, by sender.
    fn announce(&self, ring: &Ring<'_>) -> Result<Vec<Vec<u8>>, Failure> {
        let Shapes { rank, size } = ring.shapes();
        let mine: Vec<Vec<u8>> = (0..size).map(|peer| self.manifest(peer)).collect();
        let mut outgoing: Vec<Outgoing<'_>> =
            mine.iter().map(|manifest| Outgoing::new(vec![manifest])).collect();
        let mut announced: Vec<Vec<u8>> = vec![Vec::new(); size];
        let mut streams: Vec<Option<Stream>> = (0..size).map(|_| None).collect();
        ring.around(&mut outgoing, &mut |peer, header, message| {
            // How long it is, only its sender knows.
            let stream = streams[peer].get_or_insert_with(|| Stream::new(vec![header.tag]));
            let what = |_: usize| Corrupted::Announcement;
            ring.open(stream, peer, (header, message), what, |_, bytes| {
                announced[peer].extend_from_slice(bytes);
            })
        })?;
        announced[rank] = mine[rank].clone();
        Ok(announced)
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

    fn move_data(&mut self, ring: &Ring<'_>) -> Result<(), Failure> {
        let Shapes { rank, size } = ring.shapes();
        for (&(_, tag), bytes) in self.sends.range((rank, 0)..=(rank, u64::MAX)) {
            let target = self.receives.get_mut(&(rank, tag)).expect("compared before");
            target.copy_from_slice(bytes);
        }
        let outgoing = (0..size).map(|peer| {
            let sends = self.sends.range((peer, 0)..=(peer, u64::MAX));
            Outgoing::new(sends.map(|(_, bytes)| *bytes).collect())
        });
        // Tags come in the same order on both sides, and sizes were compared.
        let mut targets: Vec<Vec<(u64, &mut [u8])>> = (0..size).map(|_| Vec::new()).collect();
        for ((peer, tag), target) in &mut self.receives {
            targets[*peer].push((*tag, target));
        }
        let sizes = |targets: &Vec<(u64, &mut [u8])>| {
            Stream::new(targets.iter().map(|(_, target)| target.len() as u64).collect())
        };
        let mut streams: Vec<Stream> = targets.iter().map(sizes).collect();
        let tags = |targets: &Vec<(u64, _)>| targets.iter().map(|(tag, _)| *tag).collect();
        let tags: Vec<Vec<u64>> = targets.iter().map(tags).collect();
        ring.around(&mut outgoing.collect::<Vec<_>>(), &mut |peer, header, message| {
            let what = |transfer: usize| Corrupted::Transfer { tag: tags[peer][transfer] };
            ring.open(&mut streams[peer], peer, (header, message), what, |extent, bytes| {
                let (_, target) = &mut targets[peer][extent.transfer];
                target[extent.start..][..bytes.len()].copy_from_slice(bytes);
            })
        })
    }
}

fn check(size: usize, peer: usize, tag: u64, is_taken: bool) -> Result<(), ServiceError> {
    let problem = match (peer < size, is_taken) {
        (false, _) => "there is no such PE in the group",
        (true, true) => "that tag is submitted already; run or clear first, or use another",
        (true, false) => return Ok(()),
    };
    Err(ServiceError::Submit { peer, tag, problem })
}

/// A part of a transfer that is in one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// Position among the transfers of the pair.
    transfer: usize,
    /// Its first byte in the transfer.
    start: usize,
    bytes: usize,
}

/// Transfers laid end to end and cut to slots; sender and receiver cut alike.
struct Stream {
    sizes: Vec<u64>,
    transfer: usize,
    start: u64,
}

impl Stream {
    fn new(sizes: Vec<u64>) -> Self {
        let mut stream = Self { sizes, transfer: 0, start: 0 };
        stream.skip_ended();
        stream
    }

    fn total(&self) -> u64 {
        self.sizes.iter().sum()
    }

    fn is_over(&self) -> bool {
        self.transfer == self.sizes.len()
    }

    fn skip_ended(&mut self) {
        while self.sizes.get(self.transfer).is_some_and(|&size| size == self.start) {
            self.transfer += 1;
            self.start = 0;
        }
    }

    /// What the next message has, with room for the checksums of its parts; nothing at all of an
    /// empty stream.
    fn next(&mut self, slot_bytes: usize, checksums: bool) -> Vec<Extent> {
        let mut extents = Vec::new();
        let mut room = slot_bytes as u64;
        while !self.is_over() {
            let behind = if checksums && !extents.is_empty() { SUM_BYTES as u64 } else { 0 };
            let bytes = (self.sizes[self.transfer] - self.start).min(room.saturating_sub(behind));
            if bytes == 0 {
                break;
            }
            let (transfer, start) = (self.transfer, self.start as usize);
            extents.push(Extent { transfer, start, bytes: bytes as usize });
            room -= bytes + behind;
            self.start += bytes;
            self.skip_ended();
        }
        extents
    }
}

/// What one PE sends to another.
struct Outgoing<'a> {
    transfers: Vec<&'a [u8]>,
    stream: Stream,
    total: u64,
    /// The next message, cut and not sent yet; `None` when all is sent.
    next: Option<Vec<Extent>>,
}

impl<'a> Outgoing<'a> {
    fn new<T: AsRef<[u8]> + ?Sized>(transfers: Vec<&'a T>) -> Self {
        let transfers: Vec<&[u8]> = transfers.into_iter().map(AsRef::as_ref).collect();
        let stream = Stream::new(transfers.iter().map(|bytes| bytes.len() as u64).collect());
        Self { total: stream.total(), transfers, stream, next: None }
    }
}

struct Shapes {
    rank: usize,
    size: usize,
}

/// Takes a message from a PE, and says whether it was the last.
type TakeFrom<'a> = dyn FnMut(usize, Header, &[u8]) -> Result<bool, Failure> + 'a;

/// Calls `body` in a session of its own. What it fails with fails the group.
fn within_session(
    transport: &mut dyn Transport,
    fingerprint: u64,
    wait: &Wait<'_>,
    body: impl FnOnce(&dyn Transport) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let session = Session::enter(transport, fingerprint, wait)?;
    // Before the session is dropped, which fails the group for a lesser reason.
    body(session.transport()).map_err(|failure| session.transport().fail(failure))?;
    session.finish(wait)
}

struct Ring<'a> {
    transport: &'a dyn Transport,
    members: Vec<usize>,
    wait: &'a Wait<'a>,
    checksums: bool,
}

impl<'a> Ring<'a> {
    fn new(transport: &'a dyn Transport, wait: &'a Wait<'a>, checksums: bool) -> Self {
        Self { transport, members: transport.members(), wait, checksums }
    }

    fn shapes(&self) -> Shapes {
        Shapes { rank: self.transport.rank(), size: self.transport.shape().size }
    }

    /// Sends something to every other PE, and has `take` take what comes.
    fn around(
        &self,
        outgoing: &mut [Outgoing<'_>],
        take: &mut TakeFrom<'_>,
    ) -> Result<(), Failure> {
        let (rank, size) = (self.transport.rank(), self.members.len());
        let place = self.members.iter().position(|member| *member == rank).unwrap_or(0);
        let (mut sending, mut receiving) = (1, 1);
        while sending < size || receiving < size {
            let seen = self.transport.bell();
            let mut went = false;
            let to = self.members[(place + sending) % size];
            let from = self.members[(place + size - receiving % size) % size];
            if receiving < size {
                let mut is_last = false;
                went |= self.transport.try_receive(from, &mut |header, message| {
                    is_last = take(from, header, message)?;
                    Ok(())
                })?;
                receiving += usize::from(is_last);
            }
            if sending < size {
                let is_sent = self.send(&mut outgoing[to], to)?;
                went |= is_sent;
                sending += usize::from(is_sent && outgoing[to].stream.is_over());
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

    /// Sends the next message, if a slot is free.
    fn send(&self, outgoing: &mut Outgoing<'_>, peer: usize) -> Result<bool, Failure> {
        let slot_bytes = self.transport.shape().slot_bytes;
        let Outgoing { transfers, stream, total, next } = outgoing;
        let extents = next.get_or_insert_with(|| stream.next(slot_bytes, self.checksums));
        let is_sent = self.transport.try_send(peer, self.message_bytes(extents), &mut |slot| {
            let (mut at, mut sums) = (0, Vec::new());
            for &Extent { transfer, start, bytes } in &*extents {
                let part = &mut slot[at..][..bytes];
                part.copy_from_slice(&transfers[transfer][start..][..bytes]);
                if self.checksums {
                    sums.push(sums::sum(part));
                }
                at += bytes;
            }
            Header { tag: *total, checksum: sums::seal(slot, &sums) }
        })?;
        if is_sent {
            *next = None;
        }
        Ok(is_sent)
    }

    /// Verifies a message that is the next of `stream`, gives its parts to `put`, and says whether
    /// it was the last.
    fn open(
        &self,
        stream: &mut Stream,
        sender: usize,
        (header, message): (Header, &[u8]),
        what: impl Fn(usize) -> Corrupted,
        mut put: impl FnMut(&Extent, &[u8]),
    ) -> Result<bool, Failure> {
        let receiver = self.transport.rank();
        let extents = stream.next(self.transport.shape().slot_bytes, self.checksums);
        let (sent_bytes, expected_bytes) =
            (message.len() as u64, self.message_bytes(&extents) as u64);
        if sent_bytes != expected_bytes {
            let tag = header.tag;
            let mismatch =
                Failure::SizeMismatch { sender, receiver, tag, sent_bytes, expected_bytes };
            return Err(mismatch);
        }
        let count = if self.checksums { extents.len() } else { 0 };
        let mut sent = sums::sent(header, message, count);
        let mut at = 0;
        for extent in &extents {
            let part = &message[at..][..extent.bytes];
            if let Some(expected) = sent.next() {
                let got = sums::sum(part);
                if got != expected {
                    let what = what(extent.transfer);
                    return Err(Failure::Corrupt { what, sender, receiver, expected, got });
                }
            }
            put(extent, part);
            at += extent.bytes;
        }
        Ok(stream.is_over())
    }

    fn message_bytes(&self, extents: &[Extent]) -> usize {
        let count = if self.checksums { extents.len() } else { 0 };
        extents.iter().map(|extent| extent.bytes).sum::<usize>() + sums::bytes_behind(count)
    }
}
