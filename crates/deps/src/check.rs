//! Checking edges against the oracle: missing orders and superfluous orders.

use crate::graph::{DepEdge, DepGraph};
use crate::oracle::{Ancestors, OracleError, OracleLimits, RecordedTasks, blocks, full_graph};

/// The faults of the edges of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Pairs of tasks that conflict, or of which one was asked to wait for the other, and that the
    /// edges do not order: races.
    pub missing: DepGraph,
    /// Edges that order what might have run at once.
    pub superfluous: DepGraph,
    /// Number of pairs of tasks that had to be ordered.
    pub pairs: usize,
}

impl CheckReport {
    /// Returns `true` if nothing was found.
    pub fn is_clean(&self) -> bool {
        self.missing.edges().is_empty() && self.superfluous.edges().is_empty()
    }
}

/// Compares the edges in `given` with every conflict of `program`.
///
/// Only the orders count, not the edges that make them: an edge may be missing as long as others
/// imply it.
pub fn check_edges(
    program: &impl RecordedTasks,
    given: &DepGraph,
    limits: OracleLimits,
) -> Result<CheckReport, OracleError> {
    let full = full_graph(program, limits)?;
    let missing = edges_outside(&full, given, limits)?;
    let superfluous = edges_outside(given, &full, limits)?;
    Ok(CheckReport { missing, superfluous, pairs: full.edges().len() })
}

/// Returns the edges of `graph` to wait for that `closed` does not imply.
fn edges_outside(
    graph: &DepGraph,
    closed: &DepGraph,
    limits: OracleLimits,
) -> Result<DepGraph, OracleError> {
    let mut implied = vec![false; graph.edges().len()];
    for block in blocks(closed, limits)? {
        let ancestors = Ancestors::of(closed, block.clone());
        for (edge, implied) in graph.edges().iter().zip(&mut implied) {
            if block.contains(&edge.pred) {
                *implied = is_forward(edge) && ancestors.contains(edge.succ, edge.pred);
            }
        }
    }
    let mut implied = implied.into_iter();
    Ok(graph.filtered(|edge| !implied.next().unwrap_or(false) && edge.waits()))
}

fn is_forward(edge: &DepEdge) -> bool {
    edge.pred < edge.succ
}
