//! A simulation of the machine: lanes that take ops, each for as long as it costs.
//!
//! An op belongs to the lane that holds most of what it waits for. A lane that is free takes, of
//! its own ops that can start, the one with the longest way to the end. It takes another lane's
//! when it has none, or when one over there is so much more urgent that it is worth a wait across
//! lanes. Of equally urgent ones it takes the last, its owner the first, so that neighbours stay
//! together and few waits are needed.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::{LaneChoice, Schedule, ready_on};
use crate::compile::lower::Lowered;
use crate::machine::Machine;
use crate::successors::Successors;

/// How many waits across lanes an op must be ahead of a lane's own ones to be taken over.
const URGENT_SYNCS: u64 = 16;

/// How many of its most urgent ops a lane offers to others; comparing all of them would take too
/// long.
const OFFERS: usize = 4;

/// Highest priority first, then the longest way to the end, then first submitted.
type Key = (Reverse<i32>, Reverse<u64>, u32);

/// The ops that belong to one lane and are not scheduled yet, though all their predecessors are.
#[derive(Default)]
struct Queue {
    ready: BTreeSet<Key>,
    coming: BinaryHeap<Reverse<(u64, u32)>>,
    free_at: u64,
}

struct Simulation<'a> {
    lowered: &'a Lowered,
    ranks: &'a [u64],
    sync_ns: u64,
    choice: LaneChoice,
    queues: Vec<Queue>,
    /// What each lane offers to others: found anew whenever its ready ops change, asked for at
    /// every step.
    offers: Vec<Option<(u64, Key)>>,
    succs: Successors,
    open_preds: Vec<u32>,
    /// When each op can start where it belongs.
    ready_at: Vec<u64>,
    out: Schedule,
}

pub(crate) fn run(lowered: &Lowered, machine: &Machine, ranks: &[u64]) -> Schedule {
    let choice = LaneChoice::new(machine);
    let mut simulation = Simulation {
        lowered,
        ranks,
        sync_ns: machine.sync_ns(),
        queues: (0..choice.lanes).map(|_| Queue::default()).collect(),
        offers: vec![None; choice.lanes],
        succs: Successors::new(lowered.len(), |op| lowered.preds_of(op as usize).iter().copied()),
        open_preds: (0..lowered.len()).map(|op| lowered.preds_of(op).len() as u32).collect(),
        ready_at: vec![0; lowered.len()],
        out: Schedule::new(choice.lanes, lowered.len()),
        choice,
    };
    simulation.start();
    while let Some((lane, now)) = simulation.next_lane() {
        simulation.step(lane, now);
    }
    let mut out = simulation.out;
    assert_eq!(out.sequence.len(), lowered.len(), "every op was scheduled");
    // Stable: ops that start at one time stay in the order in which they depend on each other.
    let starts = &out.starts;
    out.sequence.sort_by_key(|&op| starts[op as usize]);
    out
}

impl Simulation<'_> {
    /// Shares the ops that depend on nothing out among the lanes: neighbours together, costs even.
    fn start(&mut self) {
        let sources: Vec<usize> =
            (0..self.lowered.len()).filter(|&op| self.open_preds[op] == 0).collect();
        let mut totals = vec![0u128; self.choice.lanes];
        for &op in &sources {
            totals[self.choice.of(self.lowered, op).start] += u128::from(self.lowered.costs_ns[op]);
        }
        let mut given = vec![0u128; self.choice.lanes];
        for &op in &sources {
            let lanes = self.choice.of(self.lowered, op);
            let (total, given) = (totals[lanes.start].max(1), &mut given[lanes.start]);
            let share = (*given * lanes.len() as u128 / total) as usize;
            *given += u128::from(self.lowered.costs_ns[op]);
            let lane = lanes.start + share.min(lanes.len() - 1);
            let key = self.key(op);
            self.queues[lane].ready.insert(key);
        }
        (0..self.choice.lanes).for_each(|lane| self.find_offer(lane));
    }

    /// The lane that can start an op soonest, and when.
    fn next_lane(&self) -> Option<(usize, u64)> {
        let mut best: Option<(u64, bool, usize)> = None;
        for pool in self.pools() {
            let heads = Heads::of(pool.clone().filter_map(|lane| self.head(lane)));
            for lane in pool {
                let queue = &self.queues[lane];
                let own = match (queue.ready.is_empty(), queue.coming.peek()) {
                    (false, _) => Some(queue.free_at),
                    (true, Some(&Reverse((when, _)))) => Some(queue.free_at.max(when)),
                    (true, None) => None,
                };
                // Taking over costs a wait: a lane that would reach its own op before that keeps
                // it.
                let taken = heads
                    .soonest_beside(lane)
                    .map(|(when, _)| queue.free_at.max(when).saturating_add(self.sync_ns));
                let own = own.map(|when| (when, false, lane));
                let taken = taken.map(|when| (when, true, lane));
                for one in [own, taken].into_iter().flatten() {
                    if best.is_none_or(|best| one < best) {
                        best = Some(one);
                    }
                }
            }
        }
        best.map(|(when, _, lane)| (lane, when))
    }

    /// Of the most urgent ops of `lane`, the one that was ready first: what another lane would
    /// take.
    fn offer(&self, lane: usize) -> Option<(u64, Key)> {
        self.offers[lane]
    }

    fn find_offer(&mut self, lane: usize) {
        let urgent = self.queues[lane].ready.iter().filter(|key| self.can_move(key)).take(OFFERS);
        let timed = urgent.map(|&key| (self.ready_at[key.2 as usize], key));
        self.offers[lane] = timed.min_by_key(|&(when, _)| when);
    }

    /// What `lane` offers; of equally urgent ones, the last that is ready now.
    fn last_alike(&self, lane: usize, now: u64) -> Option<Key> {
        let (when, first) = self.offer(lane)?;
        let alike = self.queues[lane].ready.range(first..=(first.0, first.1, u32::MAX)).rev();
        let ready = |key: &&Key| self.ready_at[key.2 as usize] <= now.max(when);
        let mut alike = alike.filter(|key| self.can_move(key)).take(OFFERS);
        Some(*alike.find(ready).unwrap_or(&first))
    }

    /// Returns `true` if the op may run on any lane of its pool.
    fn can_move(&self, key: &Key) -> bool {
        self.lowered.pinned[key.2 as usize].is_none()
    }

    fn head(&self, lane: usize) -> Option<(u64, usize)> {
        self.offer(lane).map(|(when, _)| (when, lane))
    }

    /// The groups of lanes that can take each other's ops.
    fn pools(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let copies = self.choice.copies.iter().zip(&self.choice.tasks);
        let own_copies = copies.filter(|(copies, tasks)| copies != tasks).map(|(copies, _)| copies);
        self.choice.tasks.iter().chain(own_copies).cloned()
    }

    fn pool_of(&self, lane: usize) -> std::ops::Range<usize> {
        self.pools().find(|pool| pool.contains(&lane)).expect("every lane is in a pool")
    }

    fn step(&mut self, lane: usize, now: u64) {
        let queue = &mut self.queues[lane];
        let coming = queue.coming.len();
        while let Some(&Reverse((when, op))) = queue.coming.peek()
            && when <= now
        {
            queue.coming.pop();
            let at = op as usize;
            let key = (Reverse(self.lowered.priorities[at]), Reverse(self.ranks[at]), op);
            queue.ready.insert(key);
        }
        let own = queue.ready.first().copied();
        if queue.coming.len() < coming {
            self.find_offer(lane);
        }
        let from = self.victim(lane, own).unwrap_or(lane);
        let key = if from == lane { own } else { self.last_alike(from, now) };
        let key = key.expect("the lane was chosen because there is an op");
        self.queues[from].ready.remove(&key);
        self.find_offer(from);
        self.schedule(key.2 as usize, lane);
    }

    /// The lane to take an op from instead of `own`, if it is worth it.
    fn victim(&self, lane: usize, own: Option<Key>) -> Option<usize> {
        let pool = self.pool_of(lane);
        if pool.len() == 1 {
            return None;
        }
        let Some(own) = own else {
            let heads = Heads::of(pool.filter_map(|lane| self.head(lane)));
            return heads.soonest_beside(lane).map(|(_, victim)| victim);
        };
        let now = self.queues[lane].free_at;
        // An owner that is free about when this lane is takes its urgent op itself.
        let busy = |other: &usize| self.queues[*other].free_at > now.saturating_add(self.sync_ns);
        let others = pool.filter(|&other| other != lane).filter(busy);
        let offers = others.filter_map(|other| Some((self.offer(other)?, other)));
        let there = offers.filter(|((when, _), _)| *when <= now);
        let (best, victim) = there.map(|((_, key), other)| (key, other)).min()?;
        let margin = self.sync_ns.saturating_mul(URGENT_SYNCS);
        let ahead = best.1.0 > own.1.0.saturating_add(margin);
        (best.0 < own.0 || (best.0 == own.0 && ahead)).then_some(victim)
    }

    fn schedule(&mut self, op: usize, lane: usize) {
        let ready = ready_on(self.lowered, &self.out, op, lane, self.sync_ns);
        let start = self.queues[lane].free_at.max(ready);
        self.queues[lane].free_at = self.out.put(op, lane, start, self.lowered.costs_ns[op]);
        for place in self.succs.places(op as u32) {
            let succ = self.succs.at(place) as usize;
            self.open_preds[succ] -= 1;
            if self.open_preds[succ] == 0 {
                self.make_ready(succ);
            }
        }
    }

    fn make_ready(&mut self, op: usize) {
        let lanes = self.choice.of(self.lowered, op);
        let home = if lanes.len() == 1 { lanes.start } else { self.home(op, lanes) };
        let when = ready_on(self.lowered, &self.out, op, home, self.sync_ns);
        self.ready_at[op] = when;
        if when <= self.queues[home].free_at {
            let key = self.key(op);
            self.queues[home].ready.insert(key);
            self.find_offer(home);
        } else {
            self.queues[home].coming.push(Reverse((when, op as u32)));
        }
    }

    /// The lane that holds most of what `op` waits for; of several, the one that is done last.
    fn home(&self, op: usize, lanes: std::ops::Range<usize>) -> usize {
        let mut best: Option<(usize, u64, usize)> = None;
        let preds = self.lowered.preds_of(op);
        let lane_of = |pred: u32| self.out.lanes[pred as usize].index();
        for (at, &pred) in preds.iter().enumerate() {
            let lane = lane_of(pred);
            let counted = preds[..at].iter().any(|&before| lane_of(before) == lane);
            if counted || !lanes.contains(&lane) {
                continue;
            }
            let here = preds[at..].iter().filter(|&&other| lane_of(other) == lane);
            let (count, last) = here.fold((0, 0), |(count, last), &other| {
                (count + 1, last.max(self.out.ends[other as usize]))
            });
            if best.is_none_or(|known| (count, last) > (known.0, known.1)) {
                best = Some((count, last, lane));
            }
        }
        match best {
            Some((_, _, lane)) => lane,
            // All its predecessors are on other devices: wherever there is room.
            None => lanes.min_by_key(|&lane| self.queues[lane].free_at).expect("lanes there are"),
        }
    }

    fn key(&self, op: usize) -> Key {
        (Reverse(self.lowered.priorities[op]), Reverse(self.ranks[op]), op as u32)
    }
}

/// The two lanes of a pool whose most urgent ops are ready first.
#[derive(Default)]
struct Heads {
    first: Option<(u64, usize)>,
    second: Option<(u64, usize)>,
}

impl Heads {
    fn of(heads: impl Iterator<Item = (u64, usize)>) -> Self {
        let mut found = Self::default();
        for head in heads {
            if found.first.is_none_or(|first| head < first) {
                found.second = found.first.replace(head);
            } else if found.second.is_none_or(|second| head < second) {
                found.second = Some(head);
            }
        }
        found
    }

    /// The first of another lane than `lane`.
    fn soonest_beside(&self, lane: usize) -> Option<(u64, usize)> {
        self.first.filter(|first| first.1 != lane).or(self.second)
    }
}
