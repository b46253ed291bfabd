//! The membership protocol in a simulated network: random schedules of votes, deaths, suspicions,
//! partitions, delays and reordering, each from a seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use syncline_testing::{Rng, for_seeds};
use syncline_transport::Failure;
use syncline_transport::membership::{Decision, Member, Message, Standing, Verdict, Vote};

/// What happens to a process.
enum Event {
    Hear {
        from: usize,
        message: Message,
    },
    Tick,
    /// Its program ends its part of the refit, if it has not yet.
    Act,
    Suspect(usize),
    Bury(usize),
    Crash,
    Leave,
    Join,
}

struct Process {
    member: Option<Member>,
    /// Every decision that it has carried out, by number.
    carried_out: BTreeMap<u64, Decision>,
    /// Its votes, by number of the decision: `true` is ready.
    ready: BTreeSet<u64>,
    is_alive: bool,
}

struct Network<'r> {
    rng: &'r mut Rng,
    now: u64,
    number: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: BTreeMap<u64, Event>,
    processes: Vec<Process>,
    /// The side of each process while the network is split.
    sides: Option<Vec<usize>>,
    /// From then on messages arrive, and nothing new goes wrong.
    is_calm: bool,
    loss_percent: usize,
    failed_percent: usize,
    delay_max: u64,
    bury_percent: usize,
}

const TICK: u64 = 50;
const CHAOS_END: u64 = 2_000;
const END: u64 = 12_000;

impl Network<'_> {
    fn at(&mut self, delay: u64, process: usize, event: Event) {
        self.number += 1;
        self.queue.push(Reverse((self.now + delay, self.number, process)));
        self.events.insert(self.number, event);
    }

    fn delay(&mut self) -> u64 {
        // Mostly quick, sometimes very late: so messages overtake each other.
        match self.rng.below(8) {
            0 => self.rng.below(self.delay_max as usize * 10 + 1) as u64,
            _ => self.rng.below(self.delay_max as usize + 1) as u64,
        }
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.sides.as_ref().is_some_and(|sides| sides[a] != sides[b])
    }

    /// Sends what a process has to say, and notes what it has decided.
    fn flush(&mut self, at: usize) {
        let Some(member) = &mut self.processes[at].member else { return };
        let (messages, decisions) = (member.take_messages(), member.take_decisions());
        let next = member.instance();
        let first = next - decisions.len() as u64;
        for (number, decision) in (first..).zip(decisions) {
            let before = self.processes[at].carried_out.insert(number, decision);
            assert_eq!(before, None, "process {at} carries out decision {number} twice");
        }
        for (to, message) in messages {
            let is_lost =
                self.is_cut(at, to) || (!self.is_calm && self.rng.below(100) < self.loss_percent);
            if !is_lost {
                let delay = self.delay();
                self.at(delay, to, Event::Hear { from: at, message });
            }
        }
        if self.processes[at].is_alive {
            let delay = 1 + self.rng.below(200) as u64;
            let member = self.processes[at].member.as_ref().unwrap();
            // Its program goes on with the next refit.
            if member.own_vote().is_none() && member.standing() == Standing::Member {
                self.at(delay, at, Event::Act);
            }
        }
    }

    fn crash(&mut self, at: usize) {
        self.processes[at].is_alive = false;
        // Of those on one host, the death can be known.
        let is_certain = self.rng.below(100) < self.bury_percent;
        for other in 0..self.processes.len() {
            let delay = 1 + self.rng.below(300) as u64;
            self.at(delay, other, Event::Suspect(at));
            if is_certain {
                let delay = 1 + self.rng.below(600) as u64;
                self.at(delay, other, Event::Bury(at));
            }
        }
    }

    fn handle(&mut self, at: usize, event: Event) {
        if !self.processes[at].is_alive {
            return;
        }
        if let Event::Join = event {
            let contacts = (0..self.processes.len()).filter(|other| *other != at).collect();
            self.processes[at].member = Some(Member::joining(at, contacts));
        }
        if let Event::Tick = event {
            self.at(TICK, at, Event::Tick);
        }
        let refits_go_on = self.now < CHAOS_END + 500;
        let Process { member: Some(member), ready, .. } = &mut self.processes[at] else { return };
        match event {
            Event::Hear { from, message } => member.hear(from, message),
            Event::Tick => member.tick(),
            Event::Act if member.own_vote().is_none() && refits_go_on => {
                member.begin_refit();
                if member.standing() == Standing::Member
                    && self.rng.below(100) >= self.failed_percent
                {
                    ready.insert(member.instance());
                    member.vote(Vote::Ready);
                } else {
                    member.vote(Vote::Failed(Failure::Cancelled { rank: at }));
                }
            }
            Event::Act => {}
            Event::Suspect(peer) => {
                member.suspect(peer);
                // Silence goes on.
                if !self.processes[peer].is_alive {
                    self.at(300, at, Event::Suspect(peer));
                }
            }
            Event::Bury(peer) => member.bury(peer),
            Event::Crash => return self.crash(at),
            Event::Leave => {
                member.leave();
                self.flush(at);
                self.processes[at].is_alive = false;
                for other in 0..self.processes.len() {
                    self.at(300, other, Event::Bury(at));
                }
                return;
            }
            Event::Join => {}
        }
        self.flush(at);
    }

    fn run(&mut self) {
        while let Some(Reverse((time, number, at))) = self.queue.pop() {
            let event = self.events.remove(&number).expect("each event comes once");
            self.now = time;
            if !self.is_calm && time >= CHAOS_END {
                self.calm();
            }
            if time > END || (self.is_calm && time % 16 == 0 && self.is_settled()) {
                return;
            }
            self.handle(at, event);
        }
    }

    fn calm(&mut self) {
        self.is_calm = true;
        self.sides = None;
        self.delay_max = 5;
    }

    /// No living process waits for anything.
    fn is_settled(&self) -> bool {
        self.now > CHAOS_END + 1_000 && self.waiting().is_none()
    }

    /// The longest history: that of the group that goes on.
    fn last_decision(&self) -> Option<(&u64, &Decision)> {
        let all = self.processes.iter().filter(|process| process.is_alive);
        all.filter_map(|process| process.carried_out.last_key_value())
            .max_by_key(|(number, _)| **number)
    }

    /// A living process that waits for something, although the group can decide.
    fn waiting(&self) -> Option<usize> {
        let members = match self.last_decision() {
            Some((_, decision)) => decision.members.clone(),
            None => self.first_members(),
        };
        let instance = self.last_decision().map_or(1, |(number, _)| number + 1);
        let alive: BTreeSet<usize> =
            members.iter().copied().filter(|member| self.processes[*member].is_alive).collect();
        let has_first = members.first().is_some_and(|first| alive.contains(first));
        let is_quorum =
            2 * alive.len() > members.len() || (2 * alive.len() == members.len() && has_first);
        if !is_quorum {
            return None;
        }
        alive.into_iter().find(|at| {
            let Some(member) = &self.processes[*at].member else { return true };
            if member.standing() == Standing::Evicted {
                return false;
            }
            let is_behind = member.instance() != instance;
            // A vote stays open only while others have not voted, who do not go on any more here.
            let others_voted = members.iter().all(|other| {
                let other = &self.processes[*other];
                let voted = other.member.as_ref().is_some_and(|member| {
                    member.instance() == instance && member.own_vote().is_some()
                });
                !other.is_alive || voted
            });
            let is_open = member.own_vote().is_some() && others_voted;
            let someone_is_gone = members.iter().any(|other| !self.processes[*other].is_alive);
            is_behind || is_open || (someone_is_gone && member.own_vote().is_some())
        })
    }

    fn first_members(&self) -> BTreeSet<usize> {
        let founders = self.processes.iter().enumerate();
        founders.filter(|(_, process)| process.ready.contains(&0)).map(|(at, _)| at).collect()
    }

    fn check(&self) {
        let mut agreed: BTreeMap<u64, (&Decision, usize)> = BTreeMap::new();
        for (at, process) in self.processes.iter().enumerate() {
            for (number, decision) in &process.carried_out {
                let (other, by) = *agreed.entry(*number).or_insert((decision, at));
                assert_eq!(decision, other, "decision {number} of processes {at} and {by}");
            }
        }
        let mut members = self.first_members();
        for (number, (decision, _)) in &agreed {
            if decision.verdict == Verdict::Committed {
                let torn = members.iter().find(|at| !self.processes[**at].ready.contains(number));
                assert_eq!(torn, None, "refit {number} was committed without it");
            }
            members = decision.members.clone();
        }
        let version = |at: usize| {
            let carried_out = self.processes[at].carried_out.values();
            carried_out.filter(|decision| decision.verdict == Verdict::Committed).count() as u64
        };
        for (at, process) in self.processes.iter().enumerate() {
            if let (Some(member), true) = (&process.member, process.ready.contains(&0)) {
                assert_eq!(member.version(), version(at), "versions of process {at}");
            }
        }
        for (at, process) in self.processes.iter().enumerate().filter(|(_, one)| one.is_alive) {
            let Some(member) = &process.member else { continue };
            let is_left_out = || {
                let all = self.processes.iter().flat_map(|one| one.carried_out.values());
                all.into_iter().any(|decision| !decision.members.contains(&at))
            };
            assert!(member.standing() != Standing::Evicted || is_left_out(), "process {at}");
        }
        let waiting = self.waiting();
        let members: Vec<_> =
            self.processes.iter().map(|process| (process.is_alive, &process.member)).collect();
        assert_eq!(waiting, None, "it waits for ever at {}: {members:?}", self.now);
    }
}

/// Runs one schedule. Returns how many refits were committed and abandoned.
fn schedule(rng: &mut Rng) -> (usize, usize) {
    let founders = 1 + rng.below(5);
    let joiners = rng.below(3) * usize::from(rng.one_in(2));
    let calm = rng.one_in(4);
    let mut network = Network {
        now: 0,
        number: 0,
        queue: BinaryHeap::new(),
        events: BTreeMap::new(),
        processes: Vec::new(),
        sides: None,
        is_calm: false,
        loss_percent: if calm { 0 } else { *rng.pick(&[0, 2, 20]) },
        failed_percent: *rng.pick(&[0, 3, 20]),
        delay_max: *rng.pick(&[2, 20, 100]),
        bury_percent: *rng.pick(&[0, 50, 100]),
        rng,
    };
    let members: BTreeSet<usize> = (0..founders).collect();
    for at in 0..founders + joiners {
        let is_founder = at < founders;
        network.processes.push(Process {
            member: is_founder.then(|| Member::new(at, members.clone())),
            carried_out: BTreeMap::new(),
            // Decisions count from 1; 0 says who was there from the start.
            ready: if is_founder { BTreeSet::from([0]) } else { BTreeSet::new() },
            is_alive: true,
        });
    }
    for at in 0..founders + joiners {
        let start = network.rng.below(TICK as usize) as u64;
        if at >= founders {
            let join = network.rng.below(CHAOS_END as usize) as u64;
            network.at(join, at, Event::Join);
        }
        network.at(start, at, Event::Tick);
        network.flush(at);
    }
    if !calm {
        for _ in 0..network.rng.below(4) {
            let (at, when) = (network.rng.below(founders + joiners), network.rng.below(1_900));
            let event = match network.rng.below(8) {
                0..=3 => Event::Crash,
                4 => Event::Leave,
                _ => Event::Suspect(network.rng.below(founders + joiners)),
            };
            network.at(when as u64, at, event);
        }
        if network.rng.one_in(3) {
            split(&mut network);
        }
    }
    network.run();
    network.check();
    let count = |is: fn(&Verdict) -> bool| {
        let longest = network.processes.iter().map(|process| {
            process.carried_out.values().filter(|decision| is(&decision.verdict)).count()
        });
        longest.max().unwrap_or(0)
    };
    (
        count(|verdict| *verdict == Verdict::Committed),
        count(|verdict| matches!(verdict, Verdict::Abandoned(_))),
    )
}

/// Splits the network in two until the chaos ends; each side suspects the other.
fn split(network: &mut Network<'_>) {
    let count = network.processes.len();
    let sides: Vec<usize> = (0..count).map(|_| network.rng.below(2)).collect();
    for at in 0..count {
        for other in (0..count).filter(|other| sides[*other] != sides[at]) {
            let when = 200 + network.rng.below(1_500) as u64;
            network.at(when, at, Event::Suspect(other));
        }
    }
    network.sides = Some(sides);
}

#[test]
fn no_schedule_tears_a_version_or_leaves_a_member_waiting() {
    let (mut schedules, mut committed, mut abandoned) = (0, 0, 0);
    for_seeds("no_schedule_tears_a_version_or_leaves_a_member_waiting", 10_000, |rng| {
        let (more, others) = schedule(rng);
        schedules += 1;
        committed += more;
        abandoned += others;
    });
    // Schedules in which nothing happens would prove nothing.
    let shown = format!("{committed} and {abandoned} in {schedules} schedules");
    assert!(committed > schedules && abandoned > schedules / 10, "{shown}");
}
