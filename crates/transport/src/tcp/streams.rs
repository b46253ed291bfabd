//! Connections for data: whole messages in frames, by turns over the streams of a pair.
//!
//! Message `n` of a pair goes over stream `n` modulo their number, so both sides know where the
//! next one is. A receiver reads no further than it has room for, and TCP holds the sender up.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read};
use std::net::TcpStream;

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::Header;

const HEAD_BYTES: usize = 48;

/// Bytes of a head before its own checksum.
const SUMMED_BYTES: usize = 40;

/// What stands before each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) bytes: u64,
    /// The refit that the sender had entered.
    pub(super) refit: u64,
    pub(super) header: Header,
    /// Of the message; 0 where the group has no checksums.
    pub(super) checksum: u32,
}

impl Head {
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.header.tag.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.header.checksum.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.refit.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..SUMMED_BYTES]);
        bytes[SUMMED_BYTES..SUMMED_BYTES + 4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let short = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let header = Header { tag: long(16), checksum: short(24) };
        let (number, length, refit) = (long(0), long(8), long(32));
        let head = Self { number, bytes: length, refit, header, checksum: short(28) };
        (crc32fast::hash(&bytes[..SUMMED_BYTES]) == short(SUMMED_BYTES)).then_some(head)
    }
}

/// The sending side of one stream.
#[derive(Debug, Default)]
pub(super) struct Sending {
    queue: VecDeque<Outgoing>,
}

#[derive(Debug)]
struct Outgoing {
    head: [u8; HEAD_BYTES],
    slot: Vec<u8>,
    bytes: usize,
    written: usize,
}

impl Sending {
    /// Queues the first bytes of `slot`, as many as `head` says.
    pub(super) fn push(&mut self, head: &Head, slot: Vec<u8>) {
        let (bytes, head) = (head.bytes as usize, head.encode());
        self.queue.push_back(Outgoing { head, slot, bytes, written: 0 });
    }

    /// Drops the queue, for a peer that is gone. Returns its slots.
    pub(super) fn abandon(&mut self) -> Vec<Vec<u8>> {
        self.queue.drain(..).map(|outgoing| outgoing.slot).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Writes what the socket takes; slots that are sent go back to `free`.
    pub(super) fn flush(&mut self, socket: &TcpStream, free: &mut Vec<Vec<u8>>) -> io::Result<()> {
        while let Some(first) = self.queue.front_mut() {
            let total = HEAD_BYTES + first.bytes;
            while first.written < total {
                let head = &first.head[first.written.min(HEAD_BYTES)..];
                let body = &first.slot[first.written.saturating_sub(HEAD_BYTES)..first.bytes];
                let parts = [IoSlice::new(head), IoSlice::new(body)];
                // Other than `write_vectored`, it asks for no SIGPIPE where the peer is gone.
                let none = &mut SendAncillaryBuffer::default();
                let sent = sendmsg(socket, &parts, none, SendFlags::NOSIGNAL);
                match sent.map_err(io::Error::from) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => first.written += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            let sent = self.queue.pop_front().expect("it was the first");
            free.push(sent.slot);
        }
        Ok(())
    }
}

/// A message that has come whole.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) refit: u64,
    pub(super) header: Header,
    pub(super) slot: Vec<u8>,
    pub(super) bytes: usize,
}

/// Why a stream cannot go on.
#[derive(Debug)]
pub(super) enum Fault {
    /// The connection is at its end, or broken.
    Ended,
    /// What came is not what was sent.
    Corrupt(&'static str),
}

/// The receiving side of one stream.
#[derive(Debug)]
pub(super) struct Receiving {
    head: [u8; HEAD_BYTES],
    /// Bytes read of the head and of the message.
    read: usize,
    message: Option<(Head, Vec<u8>)>,
    arrived: VecDeque<Arrived>,
    spare: Vec<Vec<u8>>,
    /// The number of the next message, and by how much they grow.
    next: u64,
    step: u64,
    slot_bytes: usize,
    depth: usize,
    checksums: bool,
}

impl Receiving {
    pub(super) fn new(
        index: usize,
        streams: usize,
        slot_bytes: usize,
        depth: usize,
        checksums: bool,
    ) -> Self {
        Self {
            head: [0; HEAD_BYTES],
            read: 0,
            message: None,
            arrived: VecDeque::new(),
            spare: Vec::new(),
            next: index as u64,
            step: streams as u64,
            slot_bytes,
            depth: depth.div_ceil(streams),
            checksums,
        }
    }

    /// Returns `true` if there is room for another message.
    pub(super) fn has_room(&self) -> bool {
        self.arrived.len() < self.depth
    }

    /// Returns `true` if the next message is of a refit before `refit`.
    pub(super) fn is_stale(&self, refit: u64) -> bool {
        self.arrived.front().is_some_and(|arrived| arrived.refit < refit)
    }

    /// Takes the next message.
    pub(super) fn take(&mut self) -> Option<Arrived> {
        self.arrived.pop_front()
    }

    /// Gives back the slot of a message that was taken.
    pub(super) fn give_back(&mut self, slot: Vec<u8>) {
        self.spare.push(slot);
    }

    /// Reads what has come and there is room for. Returns `true` if a message has come whole.
    pub(super) fn fill(&mut self, mut socket: &TcpStream) -> Result<bool, Fault> {
        let mut came = false;
        while self.has_room() {
            let place = match &mut self.message {
                None => &mut self.head[self.read..],
                Some((head, slot)) => &mut slot[self.read..head.bytes as usize],
            };
            if !place.is_empty() {
                match socket.read(place) {
                    Ok(0) => return Err(Fault::Ended),
                    Ok(count) => self.read += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(came),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => return Err(Fault::Ended),
                }
            }
            came |= self.advance()?;
        }
        Ok(came)
    }

    /// Goes on to the message after its head, or to the next head after a message.
    fn advance(&mut self) -> Result<bool, Fault> {
        match &self.message {
            None if self.read == HEAD_BYTES => {
                let head = Head::decode(&self.head).ok_or(Fault::Corrupt("its head"))?;
                if head.bytes > self.slot_bytes as u64 || head.number != self.next {
                    return Err(Fault::Corrupt("its number or length"));
                }
                let slot = self.spare.pop().unwrap_or_else(|| vec![0; self.slot_bytes]);
                (self.message, self.read) = (Some((head, slot)), 0);
                Ok(false)
            }
            Some((head, _)) if self.read as u64 == head.bytes => {
                let Some((head, slot)) = self.message.take() else { return Ok(false) };
                let bytes = self.read;
                self.read = 0;
                if self.checksums && crc32fast::hash(&slot[..bytes]) != head.checksum {
                    return Err(Fault::Corrupt("its checksum"));
                }
                self.next += self.step;
                let Head { refit, header, .. } = head;
                self.arrived.push_back(Arrived { refit, header, slot, bytes });
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::net::{Shutdown, TcpListener};

    use syncline_testing::for_seeds;

    use super::*;

    /// The system sends SIGPIPE to the thread that writes. One that blocks it can ask whether it
    /// came, whatever the process does on that signal.
    #[test]
    fn a_connection_that_is_gone_raises_no_signal() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let write = move || {
            let mut set = MaybeUninit::uninit();
            // SAFETY: the set is initialized first, and changes this thread's mask only.
            unsafe {
                libc::sigemptyset(set.as_mut_ptr());
                libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
                libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            }
            let mut sending = Sending::default();
            let head =
                Head { number: 0, bytes: 64, refit: 0, header: Header::default(), checksum: 0 };
            sending.push(&head, vec![1; 64]);
            let error = sending.flush(&socket, &mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            // SAFETY: the set is initialized.
            unsafe {
                libc::sigpending(set.as_mut_ptr());
                libc::sigismember(set.as_ptr(), libc::SIGPIPE)
            }
        };
        assert_eq!(std::thread::spawn(write).join().unwrap(), 0);
    }

    #[test]
    fn heads_survive_their_bytes_and_no_change() {
        for_seeds("heads_survive_their_bytes_and_no_change", 2_000, |rng| {
            let header = Header { tag: rng.next_u64(), checksum: rng.next_u64() as u32 };
            let [number, bytes, refit] = [(); 3].map(|()| rng.next_u64());
            let head = Head { number, bytes, refit, header, checksum: rng.next_u64() as u32 };
            let mut encoded = head.encode();
            assert_eq!(Head::decode(&encoded), Some(head));
            encoded[rng.below(SUMMED_BYTES + 4)] ^= 1 << rng.below(8);
            assert_eq!(Head::decode(&encoded), None);
        });
    }
}
