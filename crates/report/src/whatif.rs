//! What would shorten the run: the same schedule, timed anew with something made faster.
//!
//! Each op starts after whatever it followed in the run, plus the delay that it had then. With
//! nothing changed, that gives the measured times exactly; with kernels halved or copies free, an
//! estimate for the same order on the same lanes.

use std::collections::HashMap;

use crate::graph::Graph;
use crate::path::{CriticalPath, StepKind};
use crate::{RunOpKind, RunRecord, RunTiming};

/// Kernels are tried in the order of their time on the critical path, this many at most.
const KERNELS_MAX: usize = 8;

/// Something that could be made faster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Every op of this name takes half its time.
    Halve(String),
    /// Copies take no time.
    FreeCopies,
    /// Ops start the moment that they can.
    NoStalls,
    /// No op waits for its lane, only for what it depends on.
    MoreLanes,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Change::Halve(name) => write!(f, "`{name}` twice as fast"),
            Change::FreeCopies => f.write_str("copies that take no time"),
            Change::NoStalls => f.write_str("no delay between ready and started"),
            Change::MoreLanes => f.write_str("a lane for every task that is ready"),
        }
    }
}

/// A change and how long the run would take with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The difference.
    pub change: Change,
    /// The estimate.
    pub makespan_ns: u64,
}

/// Every change that would shorten the run, the best first.
pub(crate) fn scenarios(run: &RunRecord, graph: &Graph, path: &CriticalPath) -> Vec<Scenario> {
    let Some(replay) = Replay::new(run, graph) else { return Vec::new() };
    let mut changes: Vec<Change> = kernels_by_path_time(run, path)
        .into_iter()
        .take(KERNELS_MAX)
        .map(|name| Change::Halve(name.to_owned()))
        .collect();
    changes.extend([Change::FreeCopies, Change::NoStalls, Change::MoreLanes]);
    let mut scenarios: Vec<Scenario> = changes
        .into_iter()
        .map(|change| Scenario { makespan_ns: replay.makespan_ns(Some(&change)), change })
        .filter(|scenario| scenario.makespan_ns < path.makespan_ns())
        .collect();
    scenarios.sort_by_key(|scenario| scenario.makespan_ns);
    scenarios
}

fn kernels_by_path_time<'a>(run: &'a RunRecord, path: &CriticalPath) -> Vec<&'a str> {
    let mut times: HashMap<&str, u64> = HashMap::new();
    for step in path.steps.iter().filter(|step| step.kind == StepKind::Compute) {
        *times.entry(&run.ops[step.op as usize].name).or_default() += step.duration_ns();
    }
    let mut names: Vec<(&str, u64)> = times.into_iter().filter(|(_, time)| *time > 0).collect();
    names.sort_by_key(|&(name, time)| (std::cmp::Reverse(time), name));
    names.into_iter().map(|(name, _)| name).collect()
}

/// The run's schedule in the order of its starts, ready to be timed anew.
pub(crate) struct Replay<'a> {
    run: &'a RunRecord,
    graph: &'a Graph,
    order: Vec<u32>,
    place: Vec<u32>,
    from_ns: u64,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(run: &'a RunRecord, graph: &'a Graph) -> Option<Self> {
        let (from_ns, _) = run.span_ns()?;
        let timing = |op: u32| run.ops[op as usize].timing;
        let mut order: Vec<u32> =
            graph.order().iter().copied().filter(|&op| timing(op).is_some()).collect();
        order.sort_by_key(|&op| timing(op).map(|timing| (timing.start_ns, timing.end_ns)));
        let mut place = vec![u32::MAX; run.ops.len()];
        for (position, &op) in (0u32..).zip(&order) {
            place[op as usize] = position;
        }
        Some(Self { run, graph, order, place, from_ns })
    }

    pub(crate) fn makespan_ns(&self, change: Option<&Change>) -> u64 {
        let mut ends = vec![0i64; self.run.ops.len()];
        let mut makespan = 0;
        for &op in &self.order {
            let (start, end) = self.measured(op);
            let (was, is) = self.latest(op, change, &ends);
            let delay = match change {
                Some(Change::NoStalls) => (start - was).min(0),
                _ => start - was,
            };
            // Where clocks disagree, delays are negative, and a chain of them must not end before
            // the beginning.
            ends[op as usize] = (is + delay).max(0) + self.duration(op, end - start, change);
            makespan = makespan.max(ends[op as usize]);
        }
        u64::try_from(makespan).unwrap_or(0)
    }

    /// When the last of all that `op` followed ended: as measured, and under `change`.
    fn latest(&self, op: u32, change: Option<&Change>, ends: &[i64]) -> (i64, i64) {
        let edges = self.graph.fanin(op).iter();
        let preds = edges.map(|&edge| (self.run.edges[edge as usize].pred, true));
        let lane = self.graph.lane_before(op).map(|before| (before, false));
        let (mut was, mut is) = (0, 0);
        for (before, by_edge) in preds.chain(lane) {
            // An op that the clocks put later cannot have been waited for.
            if self.place[before as usize] >= self.place[op as usize] {
                continue;
            }
            was = was.max(self.measured(before).1);
            if by_edge || change != Some(&Change::MoreLanes) {
                is = is.max(ends[before as usize]);
            }
        }
        (was, is)
    }

    fn duration(&self, op: u32, measured: i64, change: Option<&Change>) -> i64 {
        let op = &self.run.ops[op as usize];
        match change {
            Some(Change::Halve(name)) if *name == op.name => measured / 2,
            Some(Change::FreeCopies) if op.kind == RunOpKind::Copy => 0,
            _ => measured,
        }
    }

    fn measured(&self, op: u32) -> (i64, i64) {
        let RunTiming { start_ns, end_ns, .. } =
            self.run.ops[op as usize].timing.expect("only timed ops are in the order");
        ((start_ns - self.from_ns) as i64, (end_ns - self.from_ns) as i64)
    }
}

#[cfg(test)]
mod tests;
