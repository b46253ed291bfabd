//! Graphs of dependencies: the edges of a whole program, with the reasons for them.

use crate::{EdgeFlags, EdgeKinds};

/// The edges of a program, ordered by successor and then by predecessor, each pair once.
///
/// Tasks are named by their position in the program; [`DepGraph::id`] returns their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DepGraph {
    ids: Vec<u64>,
    edges: Vec<DepEdge>,
    args: Vec<ArgPair>,
}

/// Positions of two arguments that conflict: the predecessor's and the successor's.
pub type ArgPair = (u32, u32);

/// One edge of a [`DepGraph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepEdge {
    /// The position of the task that comes first.
    pub pred: u32,
    /// The position of the task that comes after it.
    pub succ: u32,
    /// What the edge does.
    pub flags: EdgeFlags,
    /// Why it is there.
    pub kinds: EdgeKinds,
    args_start: u32,
    args_end: u32,
}

impl DepEdge {
    /// Returns `true` if the edge orders its tasks, rather than only keeping something alive.
    pub fn waits(&self) -> bool {
        self.flags.contains(EdgeFlags::WAIT)
    }
}

/// One reason for an edge, before the reasons of a pair of tasks are merged.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    /// The position of the task that comes first.
    pub pred: u32,
    /// What the edge does.
    pub flags: EdgeFlags,
    /// Why it is there.
    pub kinds: EdgeKinds,
    /// The arguments that conflict, where there are some.
    pub args: Option<ArgPair>,
}

impl DepGraph {
    /// Creates a graph of the tasks with these ids, without edges.
    pub fn new(ids: Vec<u64>) -> Self {
        Self { ids, ..Self::default() }
    }

    /// Number of tasks.
    pub fn tasks(&self) -> usize {
        self.ids.len()
    }

    /// Returns the id of the task at `position`.
    pub fn id(&self, position: u32) -> u64 {
        self.ids[position as usize]
    }

    /// Returns all edges, ordered by successor and then by predecessor.
    pub fn edges(&self) -> &[DepEdge] {
        &self.edges
    }

    /// Returns the edges into the task at `position`.
    pub fn edges_into(&self, position: u32) -> &[DepEdge] {
        let start = self.edges.partition_point(|edge| edge.succ < position);
        let count = self.edges[start..].partition_point(|edge| edge.succ == position);
        &self.edges[start..start + count]
    }

    /// Returns the arguments that conflict, in order.
    pub fn args(&self, edge: &DepEdge) -> &[ArgPair] {
        &self.args[edge.args_start as usize..edge.args_end as usize]
    }

    /// Adds the edges into `succ`. Reasons for one pair of tasks are merged, and `reasons` is left
    /// empty.
    ///
    /// # Panics
    /// If an edge into a later task than `succ` has been added before.
    pub fn push_reasons(&mut self, succ: u32, reasons: &mut Vec<Reason>) {
        let last = self.edges.last().map_or(0, |edge| edge.succ);
        assert!(last <= succ, "edges into task {succ} follow edges into task {last}");
        reasons.sort_unstable_by_key(|reason| (reason.pred, reason.args));
        for reason in reasons.drain(..) {
            let known =
                self.edges.last().is_some_and(|edge| (edge.pred, edge.succ) == (reason.pred, succ));
            if !known {
                let at = self.args.len() as u32;
                self.edges.push(DepEdge {
                    pred: reason.pred,
                    succ,
                    flags: EdgeFlags::EMPTY,
                    kinds: EdgeKinds::EMPTY,
                    args_start: at,
                    args_end: at,
                });
            }
            let edge = self.edges.last_mut().expect("pushed above, or known");
            edge.flags |= reason.flags;
            edge.kinds |= reason.kinds;
            if let Some(pair) = reason.args
                && self.args[edge.args_start as usize..].last() != Some(&pair)
            {
                self.args.push(pair);
                edge.args_end += 1;
            }
        }
    }

    /// Returns the same graph with only the edges that `keep` wants.
    #[must_use]
    pub(crate) fn filtered(&self, mut keep: impl FnMut(&DepEdge) -> bool) -> Self {
        let mut graph = Self { ids: self.ids.clone(), ..Self::default() };
        for edge in self.edges.iter().filter(|edge| keep(edge)) {
            let args_start = graph.args.len() as u32;
            graph.args.extend_from_slice(self.args(edge));
            graph.edges.push(DepEdge { args_start, args_end: graph.args.len() as u32, ..*edge });
        }
        graph
    }
}
