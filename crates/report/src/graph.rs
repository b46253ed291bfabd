//! The order that a run had to keep: edges by either end, a topological order, and the order on
//! each lane.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{ReportError, RunRecord};

/// A run's edges and lanes, indexed both ways. Positions are those of [`RunRecord::ops`] and
/// [`RunRecord::edges`].
#[derive(Debug)]
pub struct Graph {
    fanin: Lists,
    fanout: Lists,
    order: Vec<u32>,
    lane_before: Vec<Option<u32>>,
    lanes: Vec<Vec<u32>>,
}

impl Graph {
    /// The graph of `run`; an error if something refers to nothing, or the edges form a cycle.
    pub fn new(run: &RunRecord) -> Result<Self, ReportError> {
        run.check()?;
        let fanin = Lists::new(run.ops.len(), run.edges.iter().map(|edge| edge.succ));
        let fanout = Lists::new(run.ops.len(), run.edges.iter().map(|edge| edge.pred));
        let order = topological_order(run, &fanin, &fanout)?;
        let lanes = lane_order(run);
        let mut lane_before = vec![None; run.ops.len()];
        for pair in lanes.iter().flat_map(|lane| lane.windows(2)) {
            lane_before[pair[1] as usize] = Some(pair[0]);
        }
        Ok(Self { fanin, fanout, order, lane_before, lanes })
    }

    /// The edges that `op` waits through.
    pub fn fanin(&self, op: u32) -> &[u32] {
        self.fanin.of(op)
    }

    /// The edges through which others wait for `op`.
    pub fn fanout(&self, op: u32) -> &[u32] {
        self.fanout.of(op)
    }

    /// All ops, each after the ops that it waits for, otherwise in the order of the run.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// The timed op that started before `op` on its lane.
    pub fn lane_before(&self, op: u32) -> Option<u32> {
        self.lane_before[op as usize]
    }

    /// The timed ops of each lane by start.
    pub fn lanes(&self) -> &[Vec<u32>] {
        &self.lanes
    }
}

/// For each op a list of edges, all in one allocation.
#[derive(Debug)]
struct Lists {
    starts: Vec<u32>,
    edges: Vec<u32>,
}

impl Lists {
    fn new(ops: usize, ends: impl Iterator<Item = u32> + Clone) -> Self {
        let mut starts = vec![0u32; ops + 1];
        for op in ends.clone() {
            starts[op as usize + 1] += 1;
        }
        for op in 0..ops {
            starts[op + 1] += starts[op];
        }
        let mut next = starts.clone();
        let mut edges = vec![0; starts[ops] as usize];
        for (edge, op) in ends.enumerate() {
            edges[next[op as usize] as usize] = edge as u32;
            next[op as usize] += 1;
        }
        Self { starts, edges }
    }

    fn of(&self, op: u32) -> &[u32] {
        let op = op as usize;
        &self.edges[self.starts[op] as usize..self.starts[op + 1] as usize]
    }
}

/// Kahn's algorithm with the lowest position first, so that a run in submission order keeps it.
fn topological_order(
    run: &RunRecord,
    fanin: &Lists,
    fanout: &Lists,
) -> Result<Vec<u32>, ReportError> {
    let ops = 0..run.ops.len() as u32;
    let mut missing: Vec<u32> = ops.clone().map(|op| fanin.of(op).len() as u32).collect();
    let mut ready: BinaryHeap<Reverse<u32>> =
        ops.clone().filter(|&op| missing[op as usize] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(run.ops.len());
    while let Some(Reverse(op)) = ready.pop() {
        order.push(op);
        for &edge in fanout.of(op) {
            let succ = run.edges[edge as usize].succ;
            missing[succ as usize] -= 1;
            if missing[succ as usize] == 0 {
                ready.push(Reverse(succ));
            }
        }
    }
    match ops.into_iter().find(|&op| missing[op as usize] > 0) {
        Some(op) => {
            let op = &run.ops[op as usize];
            Err(ReportError::Cycle { task: op.task, name: op.name.clone() })
        }
        None => Ok(order),
    }
}

fn lane_order(run: &RunRecord) -> Vec<Vec<u32>> {
    let mut lanes = vec![Vec::new(); run.lanes.len()];
    for (position, op) in run.ops.iter().enumerate() {
        if let Some(timing) = op.timing {
            lanes[timing.lane as usize].push(position as u32);
        }
    }
    for lane in &mut lanes {
        lane.sort_by_key(|&op| {
            let timing = run.ops[op as usize].timing.expect("only timed ops are on lanes");
            (timing.start_ns, timing.end_ns, op)
        });
    }
    lanes
}
