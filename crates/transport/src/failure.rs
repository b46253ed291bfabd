//! Failures that a whole group agrees on, and the record in which they travel.

use std::fmt;

/// Words of a failure's record: what travels between PEs, whatever carries it.
pub const RECORD_WORDS: usize = 64;
const TEXT_WORDS: usize = RECORD_WORDS - 8;

/// Why a group of PEs failed: the same value on every PE.
///
/// The first failure that any PE reports wins, and every PE of the group returns that one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A process ended without leaving the group.
    #[error("PE {rank} died")]
    PeerDied {
        /// The PE that died.
        rank: usize,
    },
    /// A PE left the group while others still needed it.
    #[error("PE {rank} left the group before the refit was over")]
    PeerLeft {
        /// The PE that left.
        rank: usize,
    },
    /// A PE did not appear in time.
    #[error(
        "PE {rank} did not join within {waited_ms} ms ({missing} of the group missing): start it, or raise the deadline"
    )]
    NeverJoined {
        /// The lowest rank that is missing.
        rank: usize,
        /// How many are missing.
        missing: usize,
        /// How long the PE that gave up had waited.
        waited_ms: u64,
    },
    /// A PE waited until its deadline.
    #[error(
        "PE {rank} waited {waited_ms} ms for PE {waiting_for} {phase}: it is slow or stuck, or the deadline is too short"
    )]
    TimedOut {
        /// The PE that gave up.
        rank: usize,
        /// The PE it waited for.
        waiting_for: usize,
        /// What it waited for.
        phase: Phase,
        /// How long, from the start of the call.
        waited_ms: u64,
    },
    /// Two PEs are about to run different plans.
    #[error(
        "PE {rank} has plan {fingerprint:016x}, PE {other} has plan {other_fingerprint:016x}: build both from the same layouts and options"
    )]
    PlanMismatch {
        /// One PE.
        rank: usize,
        /// Its plan.
        fingerprint: u64,
        /// The other PE.
        other: usize,
        /// The other's plan.
        other_fingerprint: u64,
    },
    /// A message is not what its receiver expects.
    #[error(
        "PE {sender} sent {sent_bytes} bytes with tag {tag}, PE {receiver} expected {expected_bytes}"
    )]
    SizeMismatch {
        /// The sending PE.
        sender: usize,
        /// The receiving PE.
        receiver: usize,
        /// Which message.
        tag: u64,
        /// Bytes sent.
        sent_bytes: u64,
        /// Bytes expected.
        expected_bytes: u64,
    },
    /// A send without a receive.
    #[error(
        "PE {sender} sends tag {tag} ({bytes} bytes) to PE {receiver}, which does not expect it"
    )]
    UnmatchedSend {
        /// The sending PE.
        sender: usize,
        /// The receiving PE.
        receiver: usize,
        /// Which message.
        tag: u64,
        /// Its size.
        bytes: u64,
    },
    /// A receive without a send.
    #[error(
        "PE {receiver} expects tag {tag} ({bytes} bytes) from PE {sender}, which does not send it"
    )]
    UnmatchedReceive {
        /// The PE expected to send.
        sender: usize,
        /// The receiving PE.
        receiver: usize,
        /// Which message.
        tag: u64,
        /// The size expected.
        bytes: u64,
    },
    /// Something does not have the checksum that it was sent with.
    #[error(
        "{what} from PE {sender} to PE {receiver} is corrupt: checksum {got:08x}, sent as {expected:08x}"
    )]
    Corrupt {
        /// What arrived otherwise than it was sent.
        what: Corrupted,
        /// The sending PE.
        sender: usize,
        /// The receiving PE.
        receiver: usize,
        /// The checksum that was sent.
        expected: u32,
        /// The checksum of what arrived.
        got: u32,
    },
    /// Somebody cancelled.
    #[error("cancelled on PE {rank}")]
    Cancelled {
        /// The PE where it was cancelled.
        rank: usize,
    },
    /// A PE joined with other parameters than the group's.
    #[error(
        "PE {rank} joined a group of {expected} with {got}: every PE must pass the same size, depth and slot_bytes"
    )]
    GroupMismatch {
        /// The PE that joined.
        rank: usize,
        /// What the group has, packed as the message needs it.
        expected: Shape,
        /// What the PE has.
        got: Shape,
    },
    /// A PE could not do its part for a reason of its own.
    #[error("PE {rank}: {message}")]
    Local {
        /// The PE concerned.
        rank: usize,
        /// Its reason.
        message: String,
    },
}

/// What a checksum is of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Corrupted {
    /// A part of a tensor, in a refit.
    Segment {
        /// The tensor, by its name in the destination layout.
        tensor: String,
        /// The round of the plan's schedule in which it was sent.
        round: u32,
        /// Counts the segments that the sender has for the receiver in that round.
        segment: u32,
    },
    /// What a PE announced of the requests that follow.
    Announcement,
}

impl fmt::Display for Corrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Corrupted::Segment { tensor, round, segment } => {
                write!(f, "tensor `{tensor}`: segment {segment} of round {round}")
            }
            Corrupted::Announcement => f.write_str("the list of transfers"),
        }
    }
}

/// The parameters of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// PEs.
    pub size: usize,
    /// Slots of each PE.
    pub depth: usize,
    /// Bytes of each slot.
    pub slot_bytes: usize,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} PEs with {} slots of {} bytes", self.size, self.depth, self.slot_bytes)
    }
}

/// What a PE was waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// For others to join the group.
    Join,
    /// For others to start the same refit.
    Enter,
    /// For a slot or a message.
    Transfer,
    /// For others to finish.
    Finish,
    /// For others to go on after a failure.
    Recover,
}

impl Phase {
    const ALL: [Phase; 5] =
        [Phase::Join, Phase::Enter, Phase::Transfer, Phase::Finish, Phase::Recover];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Join => "to join",
            Phase::Enter => "to start the refit",
            Phase::Transfer => "to move data",
            Phase::Finish => "to finish the refit",
            Phase::Recover => "to go on after a failure",
        })
    }
}

impl Failure {
    /// Returns `true` if members were lost, and nothing else went wrong.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::PeerDied { .. } | Self::PeerLeft { .. })
    }

    /// The record of this failure.
    pub fn encode(&self) -> [u64; RECORD_WORDS] {
        let mut text = "";
        let words: [u64; 7] = match self {
            Failure::PeerDied { rank } => [1, *rank as u64, 0, 0, 0, 0, 0],
            Failure::PeerLeft { rank } => [2, *rank as u64, 0, 0, 0, 0, 0],
            Failure::NeverJoined { rank, missing, waited_ms } => {
                [3, *rank as u64, *missing as u64, *waited_ms, 0, 0, 0]
            }
            Failure::TimedOut { rank, waiting_for, phase, waited_ms } => {
                [4, *rank as u64, *waiting_for as u64, *phase as u64, *waited_ms, 0, 0]
            }
            Failure::PlanMismatch { rank, fingerprint, other, other_fingerprint } => {
                [5, *rank as u64, *fingerprint, *other as u64, *other_fingerprint, 0, 0]
            }
            Failure::SizeMismatch { sender, receiver, tag, sent_bytes, expected_bytes } => {
                [6, *sender as u64, *receiver as u64, *tag, *sent_bytes, *expected_bytes, 0]
            }
            Failure::UnmatchedSend { sender, receiver, tag, bytes } => {
                [7, *sender as u64, *receiver as u64, *tag, *bytes, 0, 0]
            }
            Failure::UnmatchedReceive { sender, receiver, tag, bytes } => {
                [8, *sender as u64, *receiver as u64, *tag, *bytes, 0, 0]
            }
            Failure::Corrupt { what, sender, receiver, expected, got } => {
                let (kind, number) = match what {
                    Corrupted::Segment { tensor, round, segment } => {
                        text = truncated(tensor);
                        (0, u64::from(*round) << 32 | u64::from(*segment))
                    }
                    Corrupted::Announcement => (2, 0),
                };
                let sums = u64::from(*expected) << 32 | u64::from(*got);
                [9, *sender as u64, *receiver as u64, sums, kind, number, 0]
            }
            Failure::Cancelled { rank } => [10, *rank as u64, 0, 0, 0, 0, 0],
            Failure::GroupMismatch { rank, expected, got } => {
                let pack = |shape: &Shape| (shape.size as u64) << 32 | shape.depth as u64;
                let slots = [expected.slot_bytes as u64, got.slot_bytes as u64];
                [11, *rank as u64, pack(expected), slots[0], pack(got), slots[1], 0]
            }
            Failure::Local { rank, message } => {
                text = truncated(message);
                [12, *rank as u64, 0, 0, 0, 0, 0]
            }
        };
        let mut record = [0; RECORD_WORDS];
        record[..7].copy_from_slice(&words);
        record[7] = text.len() as u64;
        for (word, bytes) in record[8..].iter_mut().zip(text.as_bytes().chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(padded);
        }
        record
    }

    /// The failure in a record that [`encode`](Self::encode) made.
    pub fn decode(record: &[u64; RECORD_WORDS]) -> Self {
        let [code, a, b, c, d, e, _, text_len, text @ ..] = record;
        let (a, b, c, d, e) = (*a, *b, *c, *d, *e);
        let rank = a as usize;
        let (sender, receiver, tag) = (a as usize, b as usize, c);
        match code {
            1 => Failure::PeerDied { rank },
            2 => Failure::PeerLeft { rank },
            3 => Failure::NeverJoined { rank, missing: b as usize, waited_ms: c },
            4 => {
                let phase = Phase::ALL.get(c as usize).copied().unwrap_or(Phase::Transfer);
                Failure::TimedOut { rank, waiting_for: b as usize, phase, waited_ms: d }
            }
            5 => Failure::PlanMismatch {
                rank,
                fingerprint: b,
                other: c as usize,
                other_fingerprint: d,
            },
            6 => Failure::SizeMismatch { sender, receiver, tag, sent_bytes: d, expected_bytes: e },
            7 => Failure::UnmatchedSend { sender, receiver, tag, bytes: d },
            8 => Failure::UnmatchedReceive { sender, receiver, tag, bytes: d },
            9 => {
                let what = match d {
                    2 => Corrupted::Announcement,
                    _ => Corrupted::Segment {
                        tensor: decoded(text, *text_len),
                        round: (e >> 32) as u32,
                        segment: e as u32,
                    },
                };
                let (expected, got) = ((c >> 32) as u32, c as u32);
                Failure::Corrupt { what, sender, receiver, expected, got }
            }
            10 => Failure::Cancelled { rank },
            11 => {
                let unpack = |word: u64, slot_bytes: u64| Shape {
                    size: (word >> 32) as usize,
                    depth: word as u32 as usize,
                    slot_bytes: slot_bytes as usize,
                };
                Failure::GroupMismatch { rank, expected: unpack(b, c), got: unpack(d, e) }
            }
            _ => Failure::Local { rank, message: decoded(text, *text_len) },
        }
    }
}

/// The first `len` bytes of a record's text.
fn decoded(text: &[u64], len: u64) -> String {
    let bytes: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).collect();
    let len = (len as usize).min(bytes.len());
    // Another process wrote it, and it is shown on terminals.
    let shown = |char: char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char };
    String::from_utf8_lossy(&bytes[..len]).chars().map(shown).collect()
}

/// As much of `message` as a record holds.
fn truncated(message: &str) -> &str {
    let fits = |at: &usize| message.is_char_boundary(*at);
    let end = (0..=message.len().min(TEXT_WORDS * 8)).rev().find(fits).unwrap_or(0);
    &message[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_survives_its_record() {
        let shape = |size| Shape { size, depth: 2, slot_bytes: 1 << 40 };
        let corrupt =
            |what| Failure::Corrupt { what, sender: 0, receiver: 1, expected: 3, got: u32::MAX };
        let all = [
            Failure::PeerDied { rank: 3 },
            Failure::PeerLeft { rank: 4 },
            Failure::NeverJoined { rank: 1, missing: 2, waited_ms: 50 },
            Failure::TimedOut { rank: 1, waiting_for: 2, phase: Phase::Finish, waited_ms: 9 },
            Failure::PlanMismatch { rank: 0, fingerprint: 7, other: 1, other_fingerprint: 8 },
            Failure::SizeMismatch {
                sender: 0,
                receiver: 1,
                tag: 2,
                sent_bytes: 3,
                expected_bytes: 4,
            },
            Failure::UnmatchedSend { sender: 0, receiver: 1, tag: u64::MAX, bytes: 3 },
            Failure::UnmatchedReceive { sender: 0, receiver: 1, tag: 2, bytes: 3 },
            corrupt(Corrupted::Segment { tensor: "größe".into(), round: u32::MAX, segment: 7 }),
            corrupt(Corrupted::Announcement),
            Failure::Cancelled { rank: 6 },
            Failure::GroupMismatch { rank: 1, expected: shape(4), got: shape(5) },
            Failure::Local { rank: 2, message: "no memory left: größer".into() },
        ];
        for failure in all {
            assert_eq!(Failure::decode(&failure.encode()), failure);
        }
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let message = "ä".repeat(1_000);
        let Failure::Local { message: kept, .. } =
            Failure::decode(&Failure::Local { rank: 0, message }.encode())
        else {
            panic!("another failure came back")
        };
        assert_eq!(kept, "ä".repeat(TEXT_WORDS * 8 / 2));
    }
}
