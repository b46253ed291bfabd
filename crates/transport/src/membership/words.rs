//! Messages of members as words, for transports that carry them.

use std::collections::BTreeSet;

use super::{Ballot, Decision, Message, Snapshot, Verdict, Vote};
use crate::{Failure, RECORD_WORDS};

impl Message {
    /// The words of this message.
    pub fn encode(&self) -> Vec<u64> {
        let mut words = Vec::new();
        match self {
            Self::Vote { instance, vote } => {
                words.extend([1, *instance]);
                put_vote(&mut words, Some(vote));
            }
            Self::Prepare { instance, ballot } => {
                words.extend([2, *instance]);
                put_ballot(&mut words, *ballot);
            }
            Self::Promise { instance, ballot, accepted, vote } => {
                words.extend([3, *instance]);
                put_ballot(&mut words, *ballot);
                put_vote(&mut words, vote.as_ref());
                words.push(accepted.is_some().into());
                if let Some((ballot, decision)) = accepted {
                    put_ballot(&mut words, *ballot);
                    put_decision(&mut words, decision);
                }
            }
            Self::Propose { instance, ballot, decision } => {
                words.extend([4, *instance]);
                put_ballot(&mut words, *ballot);
                put_decision(&mut words, decision);
            }
            Self::Accept { instance, ballot } => {
                words.extend([5, *instance]);
                put_ballot(&mut words, *ballot);
            }
            Self::Decided { instance, decision } => {
                words.extend([6, *instance]);
                put_decision(&mut words, decision);
            }
            Self::Waiting { instance } => words.extend([7, *instance]),
            Self::Behind { instance } => words.extend([8, *instance]),
            Self::Join { member } => words.extend([9, *member as u64]),
            Self::Welcome(snapshot) => {
                words.extend([10, snapshot.instance, snapshot.epoch, snapshot.version]);
                put_set(&mut words, &snapshot.members);
                put_set(&mut words, &snapshot.past);
            }
            Self::Leave => words.push(11),
        }
        words
    }

    /// Reads what [`encode`](Self::encode) wrote. Returns `None` for any other words.
    pub fn decode(words: &[u64]) -> Option<Self> {
        let mut reader = Reader(words);
        let message = reader.message()?;
        reader.0.is_empty().then_some(message)
    }
}

fn put_ballot(words: &mut Vec<u64>, ballot: Ballot) {
    words.extend([ballot.round, ballot.proposer as u64]);
}

fn put_set(words: &mut Vec<u64>, set: &BTreeSet<usize>) {
    words.push(set.len() as u64);
    words.extend(set.iter().map(|member| *member as u64));
}

fn put_vote(words: &mut Vec<u64>, vote: Option<&Vote>) {
    match vote {
        None => words.push(0),
        Some(Vote::Ready) => words.push(1),
        Some(Vote::Failed(failure)) => {
            words.push(2);
            words.extend(failure.encode());
        }
    }
}

fn put_decision(words: &mut Vec<u64>, decision: &Decision) {
    match &decision.verdict {
        Verdict::Committed => words.push(1),
        Verdict::Changed => words.push(2),
        Verdict::Abandoned(failure) => {
            words.push(3);
            words.extend(failure.encode());
        }
    }
    put_set(words, &decision.members);
}

/// The words that remain.
struct Reader<'a>(&'a [u64]);

impl Reader<'_> {
    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*word)
    }

    fn index(&mut self) -> Option<usize> {
        usize::try_from(self.word()?).ok()
    }

    fn failure(&mut self) -> Option<Failure> {
        let (record, rest) = self.0.split_first_chunk::<RECORD_WORDS>()?;
        self.0 = rest;
        Some(Failure::decode(record))
    }

    fn ballot(&mut self) -> Option<Ballot> {
        Some(Ballot { round: self.word()?, proposer: self.index()? })
    }

    fn set(&mut self) -> Option<BTreeSet<usize>> {
        let count = self.index()?;
        // Before anything is reserved: a count that was made up has no words behind it.
        let (members, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        members.iter().map(|member| usize::try_from(*member).ok()).collect()
    }

    fn vote(&mut self) -> Option<Option<Vote>> {
        Some(match self.word()? {
            0 => None,
            1 => Some(Vote::Ready),
            2 => Some(Vote::Failed(self.failure()?)),
            _ => return None,
        })
    }

    fn decision(&mut self) -> Option<Decision> {
        let verdict = match self.word()? {
            1 => Verdict::Committed,
            2 => Verdict::Changed,
            3 => Verdict::Abandoned(self.failure()?),
            _ => return None,
        };
        Some(Decision { verdict, members: self.set()? })
    }

    fn message(&mut self) -> Option<Message> {
        Some(match self.word()? {
            1 => Message::Vote { instance: self.word()?, vote: self.vote()?? },
            2 => Message::Prepare { instance: self.word()?, ballot: self.ballot()? },
            3 => {
                let (instance, ballot, vote) = (self.word()?, self.ballot()?, self.vote()?);
                let accepted = match self.word()? {
                    0 => None,
                    1 => Some((self.ballot()?, self.decision()?)),
                    _ => return None,
                };
                Message::Promise { instance, ballot, accepted, vote }
            }
            4 => Message::Propose {
                instance: self.word()?,
                ballot: self.ballot()?,
                decision: self.decision()?,
            },
            5 => Message::Accept { instance: self.word()?, ballot: self.ballot()? },
            6 => Message::Decided { instance: self.word()?, decision: self.decision()? },
            7 => Message::Waiting { instance: self.word()? },
            8 => Message::Behind { instance: self.word()? },
            9 => Message::Join { member: self.index()? },
            10 => Message::Welcome(Snapshot {
                instance: self.word()?,
                epoch: self.word()?,
                version: self.word()?,
                members: self.set()?,
                past: self.set()?,
            }),
            11 => Message::Leave,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_testing::for_seeds;

    fn all() -> Vec<Message> {
        let ballot = Ballot { round: 3, proposer: 2 };
        let failure = Failure::Local { rank: 1, message: "größer".to_owned() };
        let members = BTreeSet::from([0, 2, 5]);
        let decisions = [Verdict::Committed, Verdict::Changed, Verdict::Abandoned(failure.clone())]
            .map(|verdict| Decision { verdict, members: members.clone() });
        let vote = Some(Vote::Failed(failure));
        let mut all = vec![
            Message::Vote { instance: 7, vote: Vote::Ready },
            Message::Prepare { instance: 7, ballot },
            Message::Promise { instance: 7, ballot, accepted: None, vote },
            Message::Accept { instance: u64::MAX, ballot },
            Message::Waiting { instance: 1 },
            Message::Behind { instance: 1 },
            Message::Join { member: 9 },
            Message::Welcome(Snapshot {
                instance: 1,
                epoch: 2,
                version: 3,
                members,
                past: BTreeSet::new(),
            }),
            Message::Leave,
        ];
        for decision in decisions {
            let accepted = Some((ballot, decision.clone()));
            all.push(Message::Promise { instance: 1, ballot, accepted, vote: None });
            all.push(Message::Propose { instance: 1, ballot, decision: decision.clone() });
            all.push(Message::Decided { instance: 1, decision });
        }
        all
    }

    #[test]
    fn every_message_survives_its_words_and_no_part_of_them_is_one() {
        for message in all() {
            let words = message.encode();
            assert_eq!(Message::decode(&words), Some(message));
            for end in 0..words.len() {
                assert_eq!(Message::decode(&words[..end]), None);
            }
        }
    }

    #[test]
    fn any_words_are_a_message_or_none() {
        for_seeds("any_words_are_a_message_or_none", 20_000, |rng| {
            let mut words = rng.pick(&all()).encode();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(words.len());
                words[at] = if rng.one_in(2) { rng.extreme() } else { rng.below(12) as u64 };
            }
            if let Some(message) = Message::decode(&words) {
                // Text that was not UTF-8 or is too long is changed once.
                let once = Message::decode(&message.encode()).unwrap();
                assert_eq!(Message::decode(&once.encode()), Some(once));
            }
        });
    }
}
