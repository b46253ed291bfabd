//! Control messages: what PEs tell each other beside the data.

use syncline_transport::{Failure, Header, RECORD_WORDS, Ticket};

/// The longest control message, in words.
pub(crate) const WORDS_MAX: usize = RECORD_WORDS + 2;

/// What one PE tells another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// To all: it has entered this refit, with this ticket.
    Enter { epoch: u64, ticket: Ticket },
    /// To the arbiter: its part of this refit is done.
    Done { epoch: u64 },
    /// From the arbiter: this refit is committed.
    Commit { epoch: u64 },
    /// To the arbiter: something is wrong.
    Fail { failure: Failure },
    /// From the arbiter: the group has failed for this reason.
    Verdict { failure: Failure },
    /// To all: it leaves, having done its part in refits up to this one.
    Left { epoch: u64 },
    /// A message lies in the receiver's inbox.
    Placed { bytes: u64, header: Header },
    /// The receiver has taken a message out of its inbox.
    Taken,
}

impl Control {
    /// The words that travel.
    pub(crate) fn encode(&self) -> Vec<u64> {
        match self {
            Control::Enter { epoch, ticket } => {
                [1, *epoch].into_iter().chain(ticket.to_words()).collect()
            }
            Control::Done { epoch } => vec![2, *epoch],
            Control::Commit { epoch } => vec![3, *epoch],
            Control::Fail { failure } => record(4, failure),
            Control::Verdict { failure } => record(5, failure),
            Control::Left { epoch } => vec![6, *epoch],
            Control::Placed { bytes, header } => {
                vec![7, *bytes, header.tag, header.checksum.into()]
            }
            Control::Taken => vec![8],
        }
    }

    /// What `words` say; `None` if they are no control message.
    pub(crate) fn decode(words: &[u64]) -> Option<Self> {
        let failure = |record: &[u64]| Some(Failure::decode(record.try_into().ok()?));
        Some(match words {
            [1, epoch, ticket @ ..] => {
                let ticket = Ticket::from_words(ticket.try_into().ok()?);
                Control::Enter { epoch: *epoch, ticket }
            }
            &[2, epoch] => Control::Done { epoch },
            &[3, epoch] => Control::Commit { epoch },
            [4, record @ ..] => Control::Fail { failure: failure(record)? },
            [5, record @ ..] => Control::Verdict { failure: failure(record)? },
            &[6, epoch] => Control::Left { epoch },
            &[7, bytes, tag, checksum] => {
                let checksum = u32::try_from(checksum).ok()?;
                Control::Placed { bytes, header: Header { tag, checksum } }
            }
            [8] => Control::Taken,
            _ => return None,
        })
    }
}

fn record(kind: u64, failure: &Failure) -> Vec<u64> {
    std::iter::once(kind).chain(failure.encode()).collect()
}

/// Words as bytes; both ends of a job have the same order of bytes.
pub(crate) fn to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The words in `bytes`.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

#[cfg(test)]
mod tests {
    use syncline_transport::WindowId;

    use super::*;

    #[test]
    fn every_message_survives_its_words() {
        let window = Some((WindowId { place: 3, bytes: 4 }, [5, 6]));
        let failure = Failure::Local { rank: 2, message: "größer".to_owned() };
        let all = [
            Control::Enter {
                epoch: 7,
                ticket: Ticket { fingerprint: 8, window, is_held: true, version: 3 },
            },
            Control::Enter { epoch: 7, ticket: Ticket { fingerprint: 8, ..Ticket::default() } },
            Control::Done { epoch: 1 },
            Control::Commit { epoch: u64::MAX },
            Control::Fail { failure: failure.clone() },
            Control::Verdict { failure },
            Control::Left { epoch: 0 },
            Control::Placed { bytes: 9, header: Header { tag: 1 << 40, checksum: u32::MAX } },
            Control::Taken,
        ];
        for control in all {
            let words = to_words(&to_bytes(&control.encode()));
            assert!(words.len() <= WORDS_MAX);
            assert_eq!(Control::decode(&words), Some(control));
        }
        assert_eq!(Control::decode(&[]), None);
        assert_eq!(Control::decode(&[4, 1, 2]), None);
        assert_eq!(Control::decode(&[1, 7, 8, 4, 3, 4, 5]), None);
    }
}
