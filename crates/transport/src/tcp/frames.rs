//! Control messages between two members, framed by length and checksum.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::Ticket;
use crate::membership::Message;

/// The most bytes of a frame: a decision of the largest group fits.
const FRAME_MAX: usize = 1 << 18;

/// Bytes before each frame: its length and its checksum.
const HEAD_BYTES: usize = 8;

/// The most bytes that wait for a member that does not read.
const BACKLOG_MAX: usize = 8 << 20;

/// What members tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// The sender is alive.
    Ping,
    /// The sender has entered the refit that this decision ends.
    Enter { instance: u64, ticket: Ticket },
    /// Towards a decision.
    Membership(Message),
}

impl Control {
    fn encode(&self) -> Vec<u64> {
        match self {
            Self::Ping => vec![0],
            Self::Enter { instance, ticket } => {
                [1, *instance].into_iter().chain(ticket.to_words()).collect()
            }
            Self::Membership(message) => std::iter::once(2).chain(message.encode()).collect(),
        }
    }

    fn decode(words: &[u64]) -> Option<Self> {
        match words {
            [0] => Some(Self::Ping),
            [1, instance, ticket @ ..] => {
                let ticket = Ticket::from_words(ticket.try_into().ok()?);
                Some(Self::Enter { instance: *instance, ticket })
            }
            [2, message @ ..] => Some(Self::Membership(Message::decode(message)?)),
            _ => None,
        }
    }

    fn to_frame(&self) -> Vec<u8> {
        let body: Vec<u8> = self.encode().iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut frame = Vec::from((body.len() as u32).to_le_bytes());
        frame.extend(crc32fast::hash(&body).to_le_bytes());
        frame.extend(body);
        frame
    }
}

/// What waits to be written to one member.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    written: usize,
}

impl Outbox {
    /// Queues a message.
    pub(super) fn push(&mut self, control: &Control) -> io::Result<()> {
        if self.bytes.len() - self.written > BACKLOG_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.bytes.extend(control.to_frame());
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// Writes what the socket takes.
    pub(super) fn flush(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while !self.is_empty() {
            match socket.write(&self.bytes[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.written = 0;
        Ok(())
    }
}

/// What has come from one member, up to the first message that is not whole.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// Reads what has come; returns `true` at the end of the connection.
    pub(super) fn fill(&mut self, mut socket: &TcpStream) -> io::Result<bool> {
        let mut part = [0; 16 << 10];
        loop {
            match socket.read(&mut part) {
                Ok(0) => return Ok(true),
                Ok(count) => self.bytes.extend(&part[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.bytes.len() > FRAME_MAX {
                return Ok(false);
            }
        }
    }

    /// Takes the whole messages.
    pub(super) fn take(&mut self) -> io::Result<Vec<Control>> {
        let (mut taken, mut start) = (Vec::new(), 0);
        while let Some(head) = self.bytes[start..].first_chunk::<HEAD_BYTES>() {
            let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
            let (length, checksum) = (word(0) as usize, word(4));
            if length > FRAME_MAX || !length.is_multiple_of(8) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let Some(body) = self.bytes[start + HEAD_BYTES..].get(..length) else { break };
            let words: Vec<u64> =
                body.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let control = Control::decode(&words).filter(|_| crc32fast::hash(body) == checksum);
            taken.push(control.ok_or(io::ErrorKind::InvalidData)?);
            start += HEAD_BYTES + length;
        }
        self.bytes.drain(..start);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use syncline_testing::for_seeds;

    use super::*;

    #[test]
    fn frames_survive_any_cuts_and_no_change() {
        let all = [
            Control::Ping,
            Control::Enter { instance: 7, ticket: Ticket { fingerprint: 9, ..Default::default() } },
            Control::Membership(Message::Leave),
        ];
        let bytes: Vec<u8> = all.iter().flat_map(Control::to_frame).collect();
        for_seeds("frames_survive_any_cuts_and_no_change", 2_000, |rng| {
            let (mut inbox, mut taken, mut rest) = (Inbox::default(), Vec::new(), &bytes[..]);
            while !rest.is_empty() {
                let (part, behind) = rest.split_at(1 + rng.below(rest.len()));
                inbox.bytes.extend(part);
                taken.extend(inbox.take().unwrap());
                rest = behind;
            }
            assert_eq!(taken, all);
            let mut changed = bytes.clone();
            let at = rng.below(changed.len());
            changed[at] ^= 1 << rng.below(8);
            let mut inbox = Inbox { bytes: changed };
            // Refused, or a length that waits for more.
            assert!(inbox.take().map_or(true, |taken| taken != all));
        });
    }
}
