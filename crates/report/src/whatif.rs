//! What would shorten the run: the same schedule, timed anew with something made faster.
//!
//! Each op starts after whatever it followed in the run, plus the delay that it had then. With
//! nothing changed, that gives the measured times exactly; with kernels halved or copies free, an
//! estimate for the same order on the same lanes. Outliers count as the median of their like, so
//! that no change is judged by one op that the system interrupted. More lanes ask for another
//! order: `more_lanes` has them simulated by the forecasts of plans.

mod more_lanes;

use std::collections::HashMap;

use crate::graph::Graph;
use crate::outliers::Outlier;
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
    /// A device has another number of lanes that compute.
    Lanes {
        /// The device, as the run names it.
        device: String,
        /// How many it had.
        had: usize,
        /// How many it would have.
        lanes: usize,
    },
    /// Outliers take the median of their like.
    NoOutliers,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Change::Halve(name) => write!(f, "`{name}` twice as fast"),
            Change::FreeCopies => f.write_str("copies that take no time"),
            Change::NoStalls => f.write_str("no delay between ready and started"),
            Change::MoreLanes => f.write_str("a lane for every task that is ready"),
            Change::Lanes { device, had, lanes } if device.is_empty() => {
                write!(f, "{lanes} lanes instead of {had}")
            }
            Change::Lanes { device, had, lanes } => {
                write!(f, "{lanes} lanes on {device} instead of {had}")
            }
            Change::NoOutliers => f.write_str("outliers no longer than others of their name"),
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

/// Every change that would shorten the run, the best first. What a change gains beside outliers is
/// taken off the run as it was, so that gains can be compared.
pub(crate) fn scenarios(
    run: &RunRecord,
    graph: &Graph,
    path: &CriticalPath,
    outliers: &[Outlier],
) -> Vec<Scenario> {
    let Some(replay) = Replay::new(run, graph, outliers) else { return Vec::new() };
    let makespan_ns = path.makespan_ns();
    let usual_ns = replay.makespan_ns(Some(&Change::NoOutliers));
    let mut changes: Vec<Change> = kernels_by_path_time(run, path)
        .into_iter()
        .take(KERNELS_MAX)
        .map(|name| Change::Halve(name.to_owned()))
        .collect();
    changes.extend([Change::FreeCopies, Change::NoStalls, Change::MoreLanes]);
    let mut scenarios: Vec<Scenario> = changes
        .into_iter()
        .map(|change| {
            let gain_ns = usual_ns.saturating_sub(replay.makespan_ns(Some(&change)));
            Scenario { makespan_ns: makespan_ns.saturating_sub(gain_ns), change }
        })
        .collect();
    scenarios.push(Scenario { change: Change::NoOutliers, makespan_ns: usual_ns });
    scenarios.extend(more_lanes::scenarios(run, &replay, makespan_ns));
    scenarios.retain(|scenario| scenario.makespan_ns < makespan_ns);
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
    /// The median of its like for every op that is an outlier.
    usual_ns: HashMap<u32, i64>,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(run: &'a RunRecord, graph: &'a Graph, outliers: &[Outlier]) -> Option<Self> {
        let (from_ns, _) = run.span_ns()?;
        let timing = |op: u32| run.ops[op as usize].timing;
        let mut order: Vec<u32> =
            graph.order().iter().copied().filter(|&op| timing(op).is_some()).collect();
        order.sort_by_key(|&op| timing(op).map(|timing| (timing.start_ns, timing.end_ns)));
        let mut place = vec![u32::MAX; run.ops.len()];
        for (position, &op) in (0u32..).zip(&order) {
            place[op as usize] = position;
        }
        let usual_ns = outliers.iter().map(|one| (one.op, one.median_ns as i64)).collect();
        Some(Self { run, graph, order, place, from_ns, usual_ns })
    }

    pub(crate) fn makespan_ns(&self, change: Option<&Change>) -> u64 {
        let mut ends = vec![0i64; self.run.ops.len()];
        let mut makespan = 0;
        for &op in &self.order {
            let (start, end) = self.measured(op);
            let is = self.latest(op, change, &ends);
            let delay = match change {
                Some(Change::NoStalls) => self.delay(op).min(0),
                _ => self.delay(op),
            };
            // Where clocks disagree, delays are negative, and a chain of them must not end before
            // the beginning.
            ends[op as usize] = (is + delay).max(0) + self.duration(op, end - start, change);
            makespan = makespan.max(ends[op as usize]);
        }
        u64::try_from(makespan).unwrap_or(0)
    }

    /// All that `op` followed: the ops that it waited for, and the one before it on its lane, with
    /// whether an edge says so. An op that the clocks put later cannot have been waited for.
    fn followed(&self, op: u32) -> impl Iterator<Item = (u32, bool)> {
        let edges = self.graph.fanin(op).iter();
        let preds = edges.map(|&edge| (self.run.edges[edge as usize].pred, true));
        let lane = self.graph.lane_before(op).map(|before| (before, false));
        let place = self.place[op as usize];
        preds.chain(lane).filter(move |&(before, _)| self.place[before as usize] < place)
    }

    /// The ops that the op at `place` of the order waited for, as places.
    fn preds(&self, place: u32) -> impl Iterator<Item = u32> {
        let followed = self.followed(self.order[place as usize]);
        followed.filter(|(_, by_edge)| *by_edge).map(|(before, _)| self.place[before as usize])
    }

    /// How long `op` had not started after the last of all that it followed; negative where clocks
    /// disagree.
    fn delay(&self, op: u32) -> i64 {
        let ended = self.followed(op).map(|(before, _)| self.measured(before).1);
        self.measured(op).0 - ended.fold(0, i64::max)
    }

    /// When the last of all that `op` follows under `change` ends.
    fn latest(&self, op: u32, change: Option<&Change>, ends: &[i64]) -> i64 {
        let by_lane = change != Some(&Change::MoreLanes);
        let followed = self.followed(op).filter(|(_, by_edge)| *by_edge || by_lane);
        followed.map(|(before, _)| ends[before as usize]).fold(0, i64::max)
    }

    fn duration(&self, op: u32, measured: i64, change: Option<&Change>) -> i64 {
        let Some(change) = change else { return measured };
        let usual = self.usual_ns.get(&op).copied().unwrap_or(measured);
        let op = &self.run.ops[op as usize];
        match change {
            Change::Halve(name) if *name == op.name => usual / 2,
            Change::FreeCopies if op.kind == RunOpKind::Copy => 0,
            _ => usual,
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
