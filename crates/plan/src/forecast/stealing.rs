//! Idle lanes that take ready ops of busy ones, as the queues of a replay let them: a lane searches
//! through its own ops first, in their order, then through those of the other lanes of its device.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Range;

use super::{Forecast, OpCost};
use crate::hazards::OpDeps;
use crate::plan::{ExecutionPlan, LaneIndex, OpIndex};
use crate::successors::Successors;

/// A lane searches an op; it has just finished the one given, if any. Earliest first, then by
/// lane.
type Look = Reverse<(u64, u16, Option<u32>)>;

struct Events<'a> {
    costs: &'a [OpCost],
    succs: Successors,
    open_deps: Vec<u32>,
    /// By lane: its ops that are ready and not taken.
    ready: Vec<BTreeSet<u32>>,
    /// By op: the lane it belongs to.
    homes: Vec<u16>,
    /// By lane: the lanes that take each other's ops.
    pools: Vec<Range<usize>>,
    is_idle: Vec<bool>,
    looks: BinaryHeap<Look>,
    times: Vec<Forecast>,
}

pub(super) fn run(
    plan: &ExecutionPlan,
    deps: &OpDeps,
    costs: &[OpCost],
    wake_ns: u64,
) -> Vec<Forecast> {
    let homes = (plan.lanes.iter().enumerate())
        .flat_map(|(at, lane)| (0..lane.count).map(move |_| at as u16))
        .collect();
    let same_run = |op: u32| deps.of(OpIndex(op)).iter().filter(|dep| !dep.is_of_last_run);
    let preds = |op: u32| same_run(op).map(|dep| dep.op.0);
    let own = plan.callers_lane();
    follow(costs, homes, pools(plan), preds, |lane| if lane == own { 0 } else { wake_ns })
}

/// Follows lanes through `homes.len()` ops; `preds` says what an op comes after, `wake_ns` when a
/// lane begins.
pub(super) fn follow<Preds: Iterator<Item = u32>>(
    costs: &[OpCost],
    homes: Vec<u16>,
    pools: Vec<Range<usize>>,
    preds: impl Fn(u32) -> Preds,
    wake_ns: impl Fn(usize) -> u64,
) -> Vec<Forecast> {
    let count = homes.len();
    let mut events = Events {
        costs,
        succs: Successors::new(count, &preds),
        open_deps: (0..count as u32).map(|op| preds(op).count() as u32).collect(),
        ready: vec![BTreeSet::new(); pools.len()],
        homes,
        is_idle: vec![false; pools.len()],
        pools,
        looks: BinaryHeap::new(),
        times: vec![Forecast::default(); count],
    };
    for op in 0..count as u32 {
        if events.open_deps[op as usize] == 0 {
            events.ready[usize::from(events.homes[op as usize])].insert(op);
        }
    }
    for lane in 0..events.pools.len() {
        events.looks.push(Reverse((wake_ns(lane), lane as u16, None)));
    }
    while let Some(Reverse((now, lane, finished))) = events.looks.pop() {
        events.step(now, usize::from(lane), finished);
    }
    events.times
}

impl Events<'_> {
    fn step(&mut self, now: u64, lane: usize, finished: Option<u32>) {
        self.is_idle[lane] = false;
        if let Some(op) = finished {
            for place in self.succs.places(op) {
                let succ = self.succs.at(place);
                self.open_deps[succ as usize] -= 1;
                if self.open_deps[succ as usize] == 0 {
                    self.ready[usize::from(self.homes[succ as usize])].insert(succ);
                }
            }
        }
        match self.take(lane) {
            Some(op) => {
                let cost = self.costs[op as usize];
                // What an idle lane waits has passed before it polls.
                let pause_ns = if finished.is_some() { cost.dispatch_ns } else { 0 };
                let start_ns = now.saturating_add(pause_ns);
                let end_ns = start_ns.saturating_add(cost.body_ns);
                let lane = lane as u16;
                self.times[op as usize] = Forecast { lane: LaneIndex(lane), start_ns, end_ns };
                self.looks.push(Reverse((end_ns, lane, Some(op))));
            }
            None => self.is_idle[lane] = true,
        }
        if finished.is_some() {
            self.call_idle(now);
        }
    }

    /// An op for `lane`: the first of its own, or else of the lanes beside it.
    fn take(&mut self, lane: usize) -> Option<u32> {
        let from = self.order(lane).find(|&from| !self.ready[from].is_empty())?;
        self.ready[from].pop_first()
    }

    /// The lanes whose ops `lane` takes: its own first.
    fn order(&self, lane: usize) -> impl Iterator<Item = usize> + use<> {
        let pool = self.pools[lane].clone();
        (lane..pool.end).chain(pool.start..lane)
    }

    /// Lanes with nothing to do are told of the remaining ops.
    fn call_idle(&mut self, now: u64) {
        for lane in 0..self.is_idle.len() {
            if !self.is_idle[lane] {
                continue;
            }
            if let Some(&op) = self.order(lane).find_map(|from| self.ready[from].first()) {
                self.is_idle[lane] = false;
                let when = now.saturating_add(self.costs[op as usize].sync_ns);
                self.looks.push(Reverse((when, lane as u16, None)));
            }
        }
    }
}

/// Lanes of one device and kind are neighbours.
fn pools(plan: &ExecutionPlan) -> Vec<Range<usize>> {
    let key = |at: usize| (plan.lanes[at].device, plan.lanes[at].kind);
    let count = plan.lanes.len();
    (0..count)
        .map(|at| {
            let start = (0..at).rev().take_while(|&other| key(other) == key(at)).last();
            let end = (at..count).take_while(|&other| key(other) == key(at)).last();
            start.unwrap_or(at)..end.unwrap_or(at) + 1
        })
        .collect()
}
