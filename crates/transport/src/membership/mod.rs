//! Membership and commit: a state machine without I/O.
//!
//! A [`Member`] is told what happens to one PE (votes, messages, lost connections, deaths, the time
//! that passes) and answers with messages to send and decisions to carry out. It knows no sockets,
//! clocks or threads, so that a simulator runs it through any order of events. `README.md` beside
//! this file states the protocol and why it is safe.

mod message;
mod quorum;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::Failure;
pub use message::{Ballot, Decision, Message, Snapshot, Verdict, Vote};

/// Ticks without progress after which the member that leads starts another ballot.
const PATIENCE: u64 = 4;

/// Decisions kept for members that are behind.
const LOG_MAX: usize = 64;

/// One PE's part in the decisions of its group.
#[derive(Clone, Debug)]
pub struct Member {
    me: usize,
    /// The number of the decision to be made.
    instance: u64,
    epoch: u64,
    version: u64,
    members: BTreeSet<usize>,
    /// Members of before: a request to join that comes late makes none of them a member again.
    past: BTreeSet<usize>,
    /// The last decisions, the oldest first; the last is number `instance - 1`.
    log: VecDeque<Decision>,
    standing: Standing,
    /// Members that may be gone.
    suspects: BTreeSet<usize>,
    /// Members that are gone for good, also where a message of theirs comes late.
    dead: BTreeSet<usize>,
    /// Those of them that have said that they leave.
    left: BTreeSet<usize>,
    /// Who wants to join.
    joiners: BTreeSet<usize>,
    round: Round,
    outbox: Vec<(usize, Message)>,
    decided: Vec<Decision>,
}

/// Whether a PE is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has asked to join.
    Joining,
    /// It takes part.
    Member,
    /// The others go on without it.
    Evicted,
    /// It has left.
    Left,
}

/// The state of the decision to be made.
#[derive(Clone, Debug, Default)]
struct Round {
    vote: Option<Vote>,
    /// Votes heard, by member.
    votes: BTreeMap<usize, Vote>,
    promised: Ballot,
    accepted: Option<(Ballot, Decision)>,
    leading: Option<Leading>,
    /// Ticks since something has moved.
    idle: u64,
    /// Ballots that this member has started.
    attempts: u64,
    /// Whether this member has begun a refit.
    is_busy: bool,
}

/// A ballot of this member's.
#[derive(Clone, Debug)]
struct Leading {
    ballot: Ballot,
    /// What others have accepted before, by who has promised.
    promises: BTreeMap<usize, Option<(Ballot, Decision)>>,
    /// Whether enough have promised, or no promise is needed.
    is_prepared: bool,
    proposed: Option<Decision>,
    accepts: BTreeSet<usize>,
}

impl Member {
    /// PE `me` of a new group of `members`, of which all know that it is complete.
    ///
    /// # Panics
    /// If `me` is not one of them.
    pub fn new(me: usize, members: BTreeSet<usize>) -> Self {
        assert!(members.contains(&me), "PE {me} of {members:?}");
        let past = BTreeSet::new();
        let snapshot = Snapshot { instance: 1, epoch: 1, version: 0, members, past };
        let mut member = Self::blank(me, Standing::Joining);
        member.adopt(snapshot);
        member
    }

    /// PE `me`, which asks `contacts` to let it join. A PE that was a member before needs a new
    /// number.
    pub fn joining(me: usize, contacts: BTreeSet<usize>) -> Self {
        let mut member = Self::blank(me, Standing::Joining);
        member.members = contacts;
        member.ask_to_join();
        member
    }

    fn blank(me: usize, standing: Standing) -> Self {
        Self {
            me,
            instance: 0,
            epoch: 0,
            version: 0,
            members: BTreeSet::new(),
            past: BTreeSet::new(),
            log: VecDeque::new(),
            standing,
            suspects: BTreeSet::new(),
            dead: BTreeSet::new(),
            left: BTreeSet::new(),
            joiners: BTreeSet::new(),
            round: Round::default(),
            outbox: Vec::new(),
            decided: Vec::new(),
        }
    }

    fn adopt(&mut self, snapshot: Snapshot) {
        let Snapshot { instance, epoch, version, members, past } = snapshot;
        (self.instance, self.epoch, self.version) = (instance, epoch, version);
        (self.members, self.past) = (members, past);
        self.standing = Standing::Member;
        self.begin();
    }

    /// This PE.
    pub fn me(&self) -> usize {
        self.me
    }

    /// Whether it is a member.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// The number of the decision to be made next.
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// Counts changes of the members.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Counts refits that were committed.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The members.
    pub fn members(&self) -> &BTreeSet<usize> {
        &self.members
    }

    /// Returns `true` if `peer` has said that it leaves.
    pub fn has_left(&self, peer: usize) -> bool {
        self.left.contains(&peer)
    }

    /// Returns the member that this one waits for, as far as it knows.
    pub fn awaited(&self) -> usize {
        let leader = self.leader();
        let has_voted = |member: &usize| self.round.votes.contains_key(member);
        match leader == self.me {
            true => self.members.iter().copied().find(|one| !has_voted(one)).unwrap_or(leader),
            false => leader,
        }
    }

    /// Returns `true` if the members that are not known to be gone are enough to decide.
    pub fn can_decide(&self) -> bool {
        self.standing == Standing::Member
            && quorum::is_quorum(&self.members, &self.alive().collect())
    }

    /// Returns the first member that is known to be gone, as the failure that it amounts to.
    pub fn loss(&self) -> Option<Failure> {
        let rank = self.members.iter().copied().find(|member| self.is_gone(*member))?;
        Some(match self.left.contains(&rank) {
            true => Failure::PeerLeft { rank },
            false => Failure::PeerDied { rank },
        })
    }

    /// This member's vote on the refit under way.
    pub fn own_vote(&self) -> Option<&Vote> {
        self.round.vote.as_ref()
    }

    /// Takes the messages to send.
    pub fn take_messages(&mut self) -> Vec<(usize, Message)> {
        std::mem::take(&mut self.outbox)
    }

    /// Takes the decisions made since the last call, the oldest first.
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decided)
    }

    /// Says that a refit has begun: who wants to join waits for its end.
    pub fn begin_refit(&mut self) {
        self.round.is_busy = true;
    }

    /// Votes on the refit under way. A member that was ready may still fail; it then carries out
    /// whatever is decided.
    pub fn vote(&mut self, vote: Vote) {
        let is_news = match (&self.round.vote, &vote) {
            (None, _) | (Some(Vote::Ready), Vote::Failed(_)) => true,
            (Some(_), _) => false,
        };
        if self.standing == Standing::Member && is_news {
            self.round.vote = Some(vote.clone());
            self.round.votes.insert(self.me, vote);
            self.tell_vote();
            self.lead();
        }
    }

    /// Says that `peer` may be gone: its connection is lost, or it has been silent for too long.
    /// Hearing from it ends that.
    pub fn suspect(&mut self, peer: usize) {
        if peer != self.me && self.suspects.insert(peer) {
            self.tell_vote();
            self.lead();
        }
    }

    /// Says that `peer` has ended, so that hearing from it means nothing any more.
    pub fn bury(&mut self, peer: usize) {
        if peer != self.me && self.dead.insert(peer) {
            self.tell_vote();
            self.lead();
        }
    }

    /// Leaves the group; nothing is said after that.
    pub fn leave(&mut self) {
        self.tell_all(&Message::Leave);
        self.standing = Standing::Left;
    }

    /// Some time has passed: says again what may have been lost, and takes over where nothing
    /// moves.
    pub fn tick(&mut self) {
        match self.standing {
            Standing::Evicted | Standing::Left => return,
            Standing::Joining => return self.ask_to_join(),
            Standing::Member => {}
        }
        if !self.has_work() {
            return;
        }
        self.round.idle += 1;
        self.tell_vote();
        let joiners: Vec<usize> = self.joiners.iter().copied().collect();
        let leader = self.leader();
        if leader != self.me {
            for member in joiners {
                self.send(leader, Message::Join { member });
            }
        }
        // Members further behind wait longer, so that two rarely start at once; so do members that
        // have tried before.
        let place = self.alive().position(|member| member == self.me).unwrap_or(0) as u64;
        let patience = PATIENCE * (1 + 2 * place) + PATIENCE * self.round.attempts.min(8);
        if self.round.idle >= patience {
            self.start_ballot();
        } else if let Some(leading) = self.round.leading.clone() {
            self.repeat(&leading);
        } else {
            self.lead();
        }
    }

    fn ask_to_join(&mut self) {
        let me = self.me;
        self.tell_all(&Message::Join { member: me });
    }

    /// Returns `true` if there is something to decide.
    fn has_work(&self) -> bool {
        let round = &self.round;
        round.vote.is_some()
            || !round.votes.is_empty()
            || round.accepted.is_some()
            || !self.joiners.is_empty()
            || self.members.iter().any(|member| self.is_gone(*member))
    }

    fn is_gone(&self, member: usize) -> bool {
        self.suspects.contains(&member) || self.dead.contains(&member)
    }

    /// Members that are not known to be gone.
    fn alive(&self) -> impl Iterator<Item = usize> {
        self.members.iter().copied().filter(|member| !self.is_gone(*member))
    }

    /// Who should lead.
    fn leader(&self) -> usize {
        self.alive().next().unwrap_or(self.me)
    }

    fn send(&mut self, to: usize, message: Message) {
        if to == self.me {
            self.hear(to, message);
        } else {
            self.outbox.push((to, message));
        }
    }

    /// Sends to all members but this one.
    fn tell_all(&mut self, message: &Message) {
        let me = self.me;
        let others = self.members.iter().filter(|member| **member != me);
        self.outbox.extend(others.map(|member| (*member, message.clone())));
    }

    fn tell_vote(&mut self) {
        let leader = self.leader();
        if let Some(vote) = self.round.vote.clone().filter(|_| leader != self.me) {
            self.send(leader, Message::Vote { instance: self.instance, vote });
        }
    }

    /// Hears a message.
    pub fn hear(&mut self, from: usize, message: Message) {
        match self.standing {
            Standing::Evicted => return self.hear_evicted(from, &message),
            Standing::Left => return,
            Standing::Joining | Standing::Member => {}
        }
        self.suspects.remove(&from);
        match message {
            Message::Join { member } => self.hear_join(member),
            Message::Welcome(snapshot) => self.hear_welcome(snapshot),
            Message::Leave => {
                self.left.insert(from);
                self.bury(from);
            }
            Message::Behind { instance } => self.bring_up(from, instance),
            Message::Decided { instance, decision } => self.hear_decided(from, instance, decision),
            Message::Vote { instance, vote } => {
                if self.is_current(from, instance) {
                    self.hear_vote(from, vote);
                    self.lead();
                    self.calm(from, instance);
                }
            }
            Message::Waiting { instance } => {
                if self.is_current(from, instance) {
                    self.round.idle = 0;
                }
            }
            Message::Prepare { instance, ballot } => {
                if self.is_current(from, instance) && ballot.proposer == from {
                    self.hear_prepare(from, ballot);
                }
            }
            Message::Promise { instance, ballot, accepted, vote } => {
                if self.is_current(from, instance) {
                    self.hear_promise(from, ballot, accepted, vote);
                }
            }
            Message::Propose { instance, ballot, decision } => {
                if self.is_current(from, instance) && ballot.proposer == from {
                    self.hear_propose(from, ballot, decision);
                }
            }
            Message::Accept { instance, ballot } => {
                if self.is_current(from, instance) {
                    self.hear_accept(from, ballot);
                }
            }
        }
    }

    /// Tells members that are behind what this one still knows.
    fn hear_evicted(&mut self, from: usize, message: &Message) {
        if let Some(instance) = message.instance() {
            self.bring_up(from, instance);
        }
    }

    /// Returns `true` if a message is about the decision to be made. Who is behind is brought up;
    /// where this member is behind, it asks.
    fn is_current(&mut self, from: usize, instance: u64) -> bool {
        if self.standing != Standing::Member {
            return false;
        }
        if instance < self.instance {
            self.bring_up(from, instance);
        } else if instance > self.instance {
            self.send(from, Message::Behind { instance: self.instance });
        }
        instance == self.instance && self.members.contains(&from)
    }

    /// Tells `peer` what was decided from `instance` on.
    fn bring_up(&mut self, peer: usize, instance: u64) {
        let oldest = self.instance - self.log.len() as u64;
        for number in instance.max(oldest)..self.instance {
            let decision = self.log[(number - oldest) as usize].clone();
            self.send(peer, Message::Decided { instance: number, decision });
        }
    }

    fn hear_join(&mut self, member: usize) {
        if self.standing != Standing::Member || self.past.contains(&member) {
            return;
        }
        if self.members.contains(&member) {
            self.welcome(member);
        } else if self.joiners.insert(member) {
            let leader = self.leader();
            if leader != self.me {
                self.send(leader, Message::Join { member });
            }
            self.lead();
        }
    }

    fn welcome(&mut self, member: usize) {
        let snapshot = Snapshot {
            instance: self.instance,
            epoch: self.epoch,
            version: self.version,
            members: self.members.clone(),
            past: self.past.clone(),
        };
        self.send(member, Message::Welcome(snapshot));
    }

    fn hear_welcome(&mut self, snapshot: Snapshot) {
        if self.standing == Standing::Joining && snapshot.members.contains(&self.me) {
            self.adopt(snapshot);
        }
    }

    /// Tells a member that has voted that this one leads, and waits for others: so it does not take
    /// over.
    fn calm(&mut self, voter: usize, instance: u64) {
        let leading = self.round.leading.as_ref();
        let waits = leading.is_some_and(|own| own.is_prepared && own.proposed.is_none());
        if waits && instance == self.instance {
            self.send(voter, Message::Waiting { instance });
        }
    }

    fn hear_vote(&mut self, from: usize, vote: Vote) {
        // Votes may arrive in any order; a failure is the last word.
        let votes = &mut self.round.votes;
        if !matches!(votes.get(&from), Some(Vote::Failed(_))) {
            self.round.idle = 0;
            votes.insert(from, vote);
        }
    }

    fn hear_prepare(&mut self, from: usize, ballot: Ballot) {
        if ballot < self.round.promised {
            return;
        }
        self.promise(ballot);
        let promise = Message::Promise {
            instance: self.instance,
            ballot,
            accepted: self.round.accepted.clone(),
            vote: self.round.vote.clone(),
        };
        self.send(from, promise);
    }

    /// Takes part in no lower ballot from here on.
    fn promise(&mut self, ballot: Ballot) {
        self.round.promised = ballot;
        self.round.idle = 0;
        if self.round.leading.as_ref().is_some_and(|leading| leading.ballot < ballot) {
            self.round.leading = None;
        }
    }

    fn hear_promise(
        &mut self,
        from: usize,
        ballot: Ballot,
        accepted: Option<(Ballot, Decision)>,
        vote: Option<Vote>,
    ) {
        if let Some(vote) = vote {
            self.hear_vote(from, vote);
        }
        if let Some(leading) = self.round.leading.as_mut().filter(|own| own.ballot == ballot) {
            leading.promises.insert(from, accepted);
            self.lead();
        }
    }

    fn hear_propose(&mut self, from: usize, ballot: Ballot, decision: Decision) {
        if ballot < self.round.promised {
            return;
        }
        self.promise(ballot);
        self.round.accepted = Some((ballot, decision));
        self.send(from, Message::Accept { instance: self.instance, ballot });
    }

    fn hear_accept(&mut self, from: usize, ballot: Ballot) {
        let Some(leading) = self.round.leading.as_mut().filter(|own| own.ballot == ballot) else {
            return;
        };
        leading.accepts.insert(from);
        if let Some(decision) = leading.proposed.clone()
            && quorum::is_quorum(&self.members, &leading.accepts)
        {
            self.tell_all(&Message::Decided {
                instance: self.instance,
                decision: decision.clone(),
            });
            self.decide(decision);
        }
    }

    fn hear_decided(&mut self, from: usize, instance: u64, decision: Decision) {
        if self.standing == Standing::Member && instance == self.instance {
            self.decide(decision);
        } else if instance > self.instance && !decision.members.contains(&self.me) {
            self.standing = Standing::Evicted;
        } else if self.standing == Standing::Member && instance > self.instance {
            self.send(from, Message::Behind { instance: self.instance });
        }
    }

    fn decide(&mut self, decision: Decision) {
        self.version += u64::from(decision.verdict == Verdict::Committed);
        let before = std::mem::replace(&mut self.members, decision.members.clone());
        self.epoch += u64::from(before != self.members);
        self.instance += 1;
        self.log.push_back(decision.clone());
        if self.log.len() > LOG_MAX {
            self.log.pop_front();
        }
        self.decided.push(decision);
        self.past.extend(before.difference(&self.members));
        self.joiners.retain(|one| !self.members.contains(one) && !self.past.contains(one));
        if !self.members.contains(&self.me) {
            self.standing = Standing::Evicted;
            return;
        }
        self.begin();
        let joined: Vec<usize> = self.members.difference(&before).copied().collect();
        joined.into_iter().for_each(|member| self.welcome(member));
        self.lead();
    }

    /// Begins the next decision. Its first ballot is that of the first member, who needs no
    /// promises for it.
    fn begin(&mut self) {
        let first = self.members.first().copied().unwrap_or(self.me);
        let promised = Ballot { round: 0, proposer: first };
        self.round = Round { promised, ..Round::default() };
        if first == self.me {
            self.round.leading = Some(Leading::new(promised, true));
        }
    }

    /// Starts a ballot that is higher than all that this member knows.
    fn start_ballot(&mut self) {
        let ballot = Ballot { round: self.round.promised.round + 1, proposer: self.me };
        self.round.attempts += 1;
        self.round.promised = ballot;
        self.round.idle = 0;
        let leading = Leading::new(ballot, false);
        self.round.leading = Some(leading.clone());
        self.repeat(&leading);
        // Its own promise.
        let accepted = self.round.accepted.clone();
        self.hear_promise(self.me, ballot, accepted, None);
    }

    /// Says again what a ballot of this member's waits for.
    fn repeat(&mut self, leading: &Leading) {
        let (instance, ballot) = (self.instance, leading.ballot);
        match &leading.proposed {
            Some(decision) => {
                let decision = decision.clone();
                self.tell_all(&Message::Propose { instance, ballot, decision });
            }
            None if !leading.is_prepared => {
                self.tell_all(&Message::Prepare { instance, ballot });
            }
            None => self.lead(),
        }
    }

    /// Goes on as the one that leads, if this member does.
    fn lead(&mut self) {
        if self.standing != Standing::Member {
            return;
        }
        if self.round.leading.is_none() {
            // The first member is gone: the next one takes over.
            if self.leader() == self.me && self.has_work() && self.is_orphaned() {
                self.start_ballot();
            }
            return;
        }
        let Some(leading) = &mut self.round.leading else { return };
        if leading.proposed.is_some() {
            return;
        }
        if !leading.is_prepared {
            let promised = leading.promises.keys().copied().collect();
            if !quorum::is_quorum(&self.members, &promised) {
                return;
            }
            leading.is_prepared = true;
        }
        let accepted = leading.promises.values().flatten().max_by_key(|(ballot, _)| *ballot);
        let decision = match accepted {
            // It may have been decided already: nothing else may be.
            Some((_, decision)) => Some(decision.clone()),
            None => self.choose(),
        };
        let Some(decision) = decision else { return };
        let Some(leading) = &mut self.round.leading else { return };
        leading.proposed = Some(decision.clone());
        let leading = leading.clone();
        self.round.accepted = Some((leading.ballot, decision));
        self.round.idle = 0;
        self.repeat(&leading);
        self.hear_accept(self.me, leading.ballot);
    }

    /// Returns `true` if the proposer of the highest ballot seen is gone.
    fn is_orphaned(&self) -> bool {
        self.is_gone(self.round.promised.proposer)
    }

    /// What to propose where nothing can have been decided; `None` while there is a vote to wait
    /// for.
    fn choose(&self) -> Option<Decision> {
        let votes = &self.round.votes;
        let mut gone: BTreeSet<usize> =
            self.members.iter().copied().filter(|member| self.is_gone(*member)).collect();
        let mut failed = None;
        for (member, vote) in votes {
            // Of two that accuse each other the first is believed.
            if let (Vote::Failed(failure), false) = (vote, gone.contains(member)) {
                if let Failure::PeerDied { rank } | Failure::PeerLeft { rank } = failure
                    && self.members.contains(rank)
                    && *rank != self.me
                {
                    gone.insert(*rank);
                }
                failed.get_or_insert(failure);
            }
        }
        let all_ready =
            self.members.iter().all(|member| matches!(votes.get(member), Some(Vote::Ready)));
        let missing = |member: &&usize| !matches!(votes.get(member), Some(Vote::Ready));
        let verdict = match (all_ready, failed, gone.iter().find(missing)) {
            (true, ..) => Verdict::Committed,
            (false, Some(failure), _) => Verdict::Abandoned(failure.clone()),
            (false, None, Some(&rank)) if self.left.contains(&rank) => {
                Verdict::Abandoned(Failure::PeerLeft { rank })
            }
            (false, None, Some(&rank)) => Verdict::Abandoned(Failure::PeerDied { rank }),
            (false, None, None) if !votes.is_empty() => {
                // A vote of a member that is gone may be a failure that only it has told.
                match votes.iter().find_map(failure_of) {
                    Some(failure) => Verdict::Abandoned(failure),
                    None => return None,
                }
            }
            (false, None, None) => Verdict::Changed,
        };
        let mut members: BTreeSet<usize> = self.members.difference(&gone).copied().collect();
        if verdict != Verdict::Changed || !self.round.is_busy {
            members.extend(&self.joiners);
        }
        (verdict != Verdict::Changed || members != self.members)
            .then_some(Decision { verdict, members })
    }
}

fn failure_of((_, vote): (&usize, &Vote)) -> Option<Failure> {
    match vote {
        Vote::Ready => None,
        Vote::Failed(failure) => Some(failure.clone()),
    }
}

impl Leading {
    fn new(ballot: Ballot, is_prepared: bool) -> Self {
        Self {
            ballot,
            promises: BTreeMap::new(),
            is_prepared,
            proposed: None,
            accepts: BTreeSet::new(),
        }
    }
}
