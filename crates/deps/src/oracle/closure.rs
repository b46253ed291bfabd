//! Who comes before whom: transitive closures as rows of bits, one block of columns at a time.

use std::ops::Range;

use super::{OracleError, OracleLimits};
use crate::graph::{DepEdge, DepGraph};

/// For each task, which tasks of a block come before it by way of edges to wait for.
pub(crate) struct Ancestors {
    block: Range<u32>,
    words: usize,
    rows: Vec<u64>,
}

/// Blocks of tasks that together are all, each small enough for its [`Ancestors`].
pub(crate) fn blocks(
    graph: &DepGraph,
    limits: OracleLimits,
) -> Result<impl Iterator<Item = Range<u32>> + use<>, OracleError> {
    let (tasks, edges) = (graph.tasks(), graph.edges().len());
    let words = (tasks.div_ceil(64) as u64).saturating_mul((edges + tasks) as u64);
    if words > limits.closure_words || u32::try_from(tasks).is_err() {
        return Err(OracleError::Closure { tasks, edges });
    }
    let tasks = tasks as u32;
    let width =
        ((limits.closure_bytes / 8 / (tasks as usize).max(1)) as u32).max(1).saturating_mul(64);
    Ok((0..tasks.div_ceil(width)).map(move |block| {
        let start = block * width;
        start..start.saturating_add(width).min(tasks)
    }))
}

impl Ancestors {
    /// Closes the part of `graph` that leads to tasks of `block`. Edges that go backwards are
    /// passed over.
    pub(crate) fn of(graph: &DepGraph, block: Range<u32>) -> Self {
        let words = block.len().div_ceil(64);
        let mut ancestors = Self { rows: vec![0; words * graph.tasks()], words, block };
        for edge in graph.edges().iter().filter(|edge| edge.waits() && edge.pred < edge.succ) {
            ancestors.add(edge);
        }
        ancestors
    }

    /// Returns `true` if `task` comes after `ancestor`, a task of the block.
    pub(crate) fn contains(&self, task: u32, ancestor: u32) -> bool {
        let bit = (ancestor - self.block.start) as usize;
        self.rows[task as usize * self.words + bit / 64] >> (bit % 64) & 1 == 1
    }

    /// Marks those of `edges`, all into one task, that other ones of them imply.
    pub(crate) fn mark_implied(&self, edges: &[DepEdge], implied: &mut [bool]) {
        let mut through = vec![0; self.words];
        for edge in edges.iter().filter(|edge| edge.waits()) {
            let pred = edge.pred as usize * self.words;
            let row = &self.rows[pred..pred + self.words];
            through.iter_mut().zip(row).for_each(|(to, from)| *to |= from);
        }
        for (edge, implied) in edges.iter().zip(implied) {
            if self.block.contains(&edge.pred) {
                let bit = (edge.pred - self.block.start) as usize;
                *implied = through[bit / 64] >> (bit % 64) & 1 == 1;
            }
        }
    }

    /// Edges come ordered by successor, so that the row of a predecessor is complete when it is
    /// used.
    fn add(&mut self, edge: &DepEdge) {
        let (pred, succ) = (edge.pred as usize * self.words, edge.succ as usize * self.words);
        let (before, after) = self.rows.split_at_mut(succ);
        let row = &mut after[..self.words];
        row.iter_mut().zip(&before[pred..pred + self.words]).for_each(|(to, from)| *to |= from);
        if self.block.contains(&edge.pred) {
            let bit = (edge.pred - self.block.start) as usize;
            row[bit / 64] |= 1 << (bit % 64);
        }
    }
}
