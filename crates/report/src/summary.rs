//! The numbers of a run: how long, how busy, how much moved, and what limited it.

use std::collections::HashMap;

use crate::gaps::{Gap, GapCause};
use crate::graph::Graph;
use crate::outliers::{Outlier, median_and_p95};
use crate::path::CriticalPath;
use crate::verdict::Findings;
use crate::whatif::Scenario;
use crate::{RunOpKind, RunRecord};

/// All ops of one name together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSummary {
    /// The name.
    pub name: String,
    /// Whether it computes or moves.
    pub kind: RunOpKind,
    /// How many ops have it.
    pub count: u64,
    /// Their time together.
    pub total_ns: u64,
    /// Half of the timed ones took no longer.
    pub median_ns: u64,
    /// 95 of 100 timed ones took no longer.
    pub p95_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Their time on the critical path.
    pub path_ns: u64,
    /// Bytes that they moved.
    pub bytes: u64,
}

/// One lane's share of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneUse {
    /// Number of ops.
    pub ops: u64,
    /// Time with an op running.
    pub busy_ns: u64,
    /// Idle time by cause, in the order of [`GapCause::ALL`].
    pub idle_ns: [u64; 5],
}

/// The numbers of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// First start to last end; zero if nothing was timed.
    pub makespan_ns: u64,
    /// Time of all ops together.
    pub work_ns: u64,
    /// By name, the longest first.
    pub kernels: Vec<KernelSummary>,
    /// By lane.
    pub lanes: Vec<LaneUse>,
    /// A sentence or two: what limited the run.
    pub limit: String,
}

impl RunSummary {
    /// Adds up what the analyses found.
    pub fn of(
        run: &RunRecord,
        graph: &Graph,
        path: &CriticalPath,
        gaps: &[Gap],
        outliers: &[Outlier],
        scenarios: &[Scenario],
    ) -> Self {
        let makespan_ns = path.makespan_ns();
        let kernels = kernels(run, path);
        let work_ns = kernels.iter().fold(0u64, |sum, one| sum.saturating_add(one.total_ns));
        let lanes = lanes(graph, gaps, makespan_ns);
        let limit =
            Findings { run, path, kernels: &kernels, lanes: &lanes, outliers, scenarios }.verdict();
        Self { makespan_ns, work_ns, kernels, lanes, limit }
    }
}

fn kernels(run: &RunRecord, path: &CriticalPath) -> Vec<KernelSummary> {
    let mut place: HashMap<(&str, RunOpKind), usize> = HashMap::new();
    let mut kernels: Vec<KernelSummary> = Vec::new();
    let mut durations: Vec<Vec<u64>> = Vec::new();
    let mut of_op = Vec::with_capacity(run.ops.len());
    for op in &run.ops {
        let at = *place.entry((&op.name, op.kind)).or_insert_with(|| {
            let (name, kind) = (op.name.clone(), op.kind);
            kernels.push(KernelSummary {
                name,
                kind,
                count: 0,
                total_ns: 0,
                median_ns: 0,
                p95_ns: 0,
                max_ns: 0,
                path_ns: 0,
                bytes: 0,
            });
            durations.push(Vec::new());
            kernels.len() - 1
        });
        let duration_ns = op.timing.map_or(0, |timing| timing.end_ns - timing.start_ns);
        durations[at].extend(op.timing.map(|_| duration_ns));
        let kernel = &mut kernels[at];
        kernel.count += 1;
        kernel.total_ns = kernel.total_ns.saturating_add(duration_ns);
        kernel.max_ns = kernel.max_ns.max(duration_ns);
        kernel.bytes = kernel.bytes.saturating_add(op.bytes);
        of_op.push(at);
    }
    for (kernel, durations) in kernels.iter_mut().zip(&mut durations) {
        [kernel.median_ns, kernel.p95_ns] = median_and_p95(durations);
    }
    for step in path.steps.iter().filter(|step| step.kind.ran()) {
        kernels[of_op[step.op as usize]].path_ns += step.duration_ns();
    }
    kernels.sort_by(|a, b| {
        let key =
            |one: &KernelSummary| (std::cmp::Reverse(one.total_ns), std::cmp::Reverse(one.count));
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    kernels
}

fn lanes(graph: &Graph, gaps: &[Gap], makespan_ns: u64) -> Vec<LaneUse> {
    let mut lanes: Vec<LaneUse> = graph
        .lanes()
        .iter()
        .map(|ops| LaneUse { ops: ops.len() as u64, busy_ns: makespan_ns, idle_ns: [0; 5] })
        .collect();
    for gap in gaps {
        let lane = &mut lanes[gap.lane as usize];
        let cause = GapCause::ALL.iter().position(|&one| one == gap.cause).expect("all are there");
        lane.idle_ns[cause] += gap.end_ns - gap.start_ns;
        lane.busy_ns -= gap.end_ns - gap.start_ns;
    }
    lanes
}
