//! The chain that data forces: the longest time that dependencies alone make a run take.
//!
//! The critical path of a run goes through lanes that were busy, too. This chain does not: with any
//! number of lanes and no delay between ops, a run of the same ops is as long as it.

use crate::RunRecord;
use crate::graph::Graph;

/// One op of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStep {
    /// Position of the op.
    pub op: u32,
    /// Position of the edge from the step before; `None` for the first.
    pub edge: Option<u32>,
}

/// The chain of dependencies whose ops took longest together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataChain {
    /// From the first op to the last.
    pub steps: Vec<ChainStep>,
    /// The time of its ops.
    pub time_ns: u64,
}

impl DataChain {
    /// The chain of `run`; empty if nothing was timed.
    pub fn of(run: &RunRecord, graph: &Graph) -> Self {
        let duration_ns = |op: u32| {
            run.ops[op as usize].timing.map_or(0, |timing| timing.end_ns - timing.start_ns)
        };
        if !run.is_timed() {
            return Self::default();
        }
        let mut ends = vec![0u64; run.ops.len()];
        let mut longest: Option<u32> = None;
        for &op in graph.order() {
            let before = latest(run, graph, &ends, op).map_or(0, |(end_ns, _)| end_ns);
            ends[op as usize] = before.saturating_add(duration_ns(op));
            if longest.is_none_or(|longest| ends[op as usize] > ends[longest as usize]) {
                longest = Some(op);
            }
        }
        let mut steps = Vec::new();
        let mut next = longest;
        while let Some(op) = next {
            let before = latest(run, graph, &ends, op);
            steps.push(ChainStep { op, edge: before.map(|(_, edge)| edge) });
            next = before.map(|(_, edge)| run.edges[edge as usize].pred);
        }
        steps.reverse();
        Self { steps, time_ns: longest.map_or(0, |op| ends[op as usize]) }
    }
}

/// The end of the longest chain before `op`, and the edge from its last op.
fn latest(run: &RunRecord, graph: &Graph, ends: &[u64], op: u32) -> Option<(u64, u32)> {
    let edges = graph.fanin(op).iter();
    edges.map(|&edge| (ends[run.edges[edge as usize].pred as usize], edge)).max()
}
