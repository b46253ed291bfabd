//! Walking back in time: what an op's start had to wait for, step by step.
//!
//! Both the critical path and the causes of gaps are such walks. The pieces of a walk tile the time
//! that it covers: each ends where the one after it begins, whatever the clocks say. An op that is
//! recorded as ending after its successor began counts only up to that moment.

use crate::graph::Graph;
use crate::{RunRecord, RunTiming};

/// What an op followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathLink {
    /// An op that it waited for: the position of the edge.
    Edge(u32),
    /// The op before it on the same lane.
    Lane,
}

/// One piece of a walk, from late to early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkPiece {
    /// `op` ran; `link` says how the op after it in time depends on it.
    Ran { op: u32, link: Option<PathLink>, start_ns: u64, end_ns: u64 },
    /// `before` could have started, and had not.
    Idle { before: u32, start_ns: u64, end_ns: u64 },
    /// Nothing that `before` depends on is known from this time.
    Unknown { before: u32, start_ns: u64, end_ns: u64 },
}

/// Walks of one run; keeps its scratch memory from walk to walk.
pub(crate) struct Walker<'a> {
    run: &'a RunRecord,
    graph: &'a Graph,
    visited: Vec<u32>,
    walk: u32,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(run: &'a RunRecord, graph: &'a Graph) -> Self {
        Self { run, graph, visited: vec![0; run.ops.len()], walk: 0 }
    }

    /// From the end of `op` back to `from_ns`.
    pub(crate) fn ending_with(&mut self, op: u32, from_ns: u64, emit: impl FnMut(WalkPiece)) {
        let until_ns = self.timing(op).end_ns;
        self.go(op, None, true, from_ns, until_ns, emit);
    }

    /// From the start of `op` back to `from_ns`, leaving aside what else its lane did.
    pub(crate) fn leading_to(&mut self, op: u32, from_ns: u64, emit: impl FnMut(WalkPiece)) {
        let until_ns = self.timing(op).start_ns;
        self.go(op, None, false, from_ns, until_ns, emit);
    }

    fn go(
        &mut self,
        mut op: u32,
        mut link: Option<PathLink>,
        with_op: bool,
        from_ns: u64,
        until_ns: u64,
        mut emit: impl FnMut(WalkPiece),
    ) {
        // Marks that are never cleared: a walk visits an op once, so that it ends even if clocks
        // run in circles.
        self.walk += 1;
        let (mut cursor, mut on_lane) = (until_ns, with_op);
        self.visited[op as usize] = self.walk;
        if with_op {
            let start_ns = self.timing(op).start_ns.max(from_ns);
            emit(WalkPiece::Ran { op, link, start_ns, end_ns: cursor });
            cursor = start_ns;
        }
        while cursor > from_ns {
            let Some((before, how, end_ns)) = self.latest(op, on_lane, cursor) else {
                emit(WalkPiece::Unknown { before: op, start_ns: from_ns, end_ns: cursor });
                return;
            };
            let end_ns = end_ns.max(from_ns);
            if end_ns < cursor {
                emit(WalkPiece::Idle { before: op, start_ns: end_ns, end_ns: cursor });
                cursor = end_ns;
            }
            if cursor == from_ns {
                return;
            }
            (op, link, on_lane) = (before, Some(how), true);
            self.visited[op as usize] = self.walk;
            let start_ns = self.timing(op).start_ns.max(from_ns);
            emit(WalkPiece::Ran { op, link, start_ns, end_ns: cursor });
            cursor = start_ns;
        }
    }

    /// Of all that `op` came after, what ended last; an edge wins over the lane's order.
    fn latest(&self, op: u32, on_lane: bool, cursor: u64) -> Option<(u32, PathLink, u64)> {
        let edges = self.graph.fanin(op).iter();
        let preds =
            edges.map(|&edge| (self.run.edges[edge as usize].pred, Some(PathLink::Edge(edge))));
        let lane = self.graph.lane_before(op).filter(|_| on_lane).map(|op| (op, None));
        let mut best: Option<(u32, PathLink, u64)> = None;
        for (before, link) in preds.chain(lane) {
            let Some(timing) = self.run.ops[before as usize].timing else { continue };
            if timing.start_ns > cursor || self.visited[before as usize] == self.walk {
                continue;
            }
            let end_ns = timing.end_ns.min(cursor);
            if best.is_none_or(|(_, _, latest)| end_ns > latest) {
                best = Some((before, link.unwrap_or(PathLink::Lane), end_ns));
            }
        }
        best
    }

    fn timing(&self, op: u32) -> RunTiming {
        self.run.ops[op as usize].timing.expect("walks go through timed ops only")
    }
}
