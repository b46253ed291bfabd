//! What members tell each other to decide.

use std::collections::BTreeSet;

use crate::Failure;

/// An attempt to decide: ordered by round, then by the member that makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ballot {
    /// Counts attempts; a member that takes over uses a higher one than it has seen.
    pub round: u64,
    /// The member that proposes.
    pub proposer: usize,
}

/// What a member says of the refit under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vote {
    /// It has done its part, and can commit.
    Ready,
    /// The refit cannot be committed.
    Failed(Failure),
}

/// How a refit ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every member was ready: all have the new version.
    Committed,
    /// All keep the old version.
    Abandoned(Failure),
    /// No refit was under way: members have joined.
    Changed,
}

/// What a group has decided: the end of one refit, and who takes part in the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// How the refit ended.
    pub verdict: Verdict,
    /// The members from here on.
    pub members: BTreeSet<usize>,
}

/// What a member needs to take part that was not there from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The number of the decision to be made next.
    pub instance: u64,
    /// Counts changes of the members.
    pub epoch: u64,
    /// Counts refits that were committed.
    pub version: u64,
    /// The members.
    pub members: BTreeSet<usize>,
    /// Members of before, which cannot join again under the same number.
    pub past: BTreeSet<usize>,
}

/// A message between two members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// To the member that leads: the sender's vote.
    Vote {
        /// The decision it is for.
        instance: u64,
        /// The vote.
        vote: Vote,
    },
    /// Asks for a promise to take part in no lower ballot.
    Prepare {
        /// The decision it is for.
        instance: u64,
        /// The ballot.
        ballot: Ballot,
    },
    /// Promises that, and says what the sender has accepted and voted.
    Promise {
        /// The decision it is for.
        instance: u64,
        /// The ballot promised.
        ballot: Ballot,
        /// The last decision accepted, with its ballot.
        accepted: Option<(Ballot, Decision)>,
        /// The sender's vote.
        vote: Option<Vote>,
    },
    /// Asks to accept a decision.
    Propose {
        /// The decision's number.
        instance: u64,
        /// The ballot.
        ballot: Ballot,
        /// The decision.
        decision: Decision,
    },
    /// Accepts it.
    Accept {
        /// The decision's number.
        instance: u64,
        /// The ballot.
        ballot: Ballot,
    },
    /// Says what was decided.
    Decided {
        /// The decision's number.
        instance: u64,
        /// The decision.
        decision: Decision,
    },
    /// Says that the sender has heard the vote, and waits for those of others.
    Waiting {
        /// The decision it is for.
        instance: u64,
    },
    /// Asks for decisions from this one on.
    Behind {
        /// The first that the sender does not know.
        instance: u64,
    },
    /// Asks to become a member, or passes that on to the member that leads.
    Join {
        /// Who wants to join.
        member: usize,
    },
    /// Tells a new member that it is one.
    Welcome(Snapshot),
    /// The sender has left and says nothing more.
    Leave,
}

impl Message {
    /// The number of the decision that the sender wants to make, where the message says it.
    pub(super) fn instance(&self) -> Option<u64> {
        match self {
            Self::Vote { instance, .. }
            | Self::Prepare { instance, .. }
            | Self::Promise { instance, .. }
            | Self::Propose { instance, .. }
            | Self::Accept { instance, .. }
            | Self::Waiting { instance }
            | Self::Behind { instance } => Some(*instance),
            Self::Decided { .. } | Self::Join { .. } | Self::Welcome(_) | Self::Leave => None,
        }
    }
}
