//! Which edges others already imply, exactly.
//!
//! An edge is redundant if its target is reached from its source through other ops as well.
//! Ancestor sets of all ops would take memory that grows with the square of their number. So
//! sources are taken a block at a time: one bit for each source of the block, carried along the
//! topological order, only as far as the block's edges reach.

use crate::RunRecord;
use crate::graph::Graph;

const WORDS: usize = 8;
const BLOCK: usize = WORDS * 64;

/// Set operations of 64 bytes before the rest is left undecided: about two seconds.
const BUDGET: u64 = 400_000_000;

/// For each edge of a run whether others imply it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redundant {
    /// By position of the edge.
    pub edges: Vec<bool>,
    /// Whether all were decided; if not, some redundant ones are not marked.
    pub complete: bool,
}

/// Finds the edges that others imply. Of several edges between the same two ops none makes another
/// redundant.
pub(crate) fn redundant(run: &RunRecord, graph: &Graph) -> Redundant {
    let order = graph.order();
    let mut place = vec![0u32; order.len()];
    for (position, &op) in (0u32..).zip(order) {
        place[op as usize] = position;
    }
    let mut sets = vec![[0u64; WORDS]; order.len()];
    let mut found = Redundant { edges: vec![false; run.edges.len()], complete: true };
    let mut spent = 0;
    for start in (0..order.len()).step_by(BLOCK) {
        let end = (start + BLOCK).min(order.len());
        let succs = order[start..end].iter().flat_map(|&op| graph.fanout(op));
        let reach = succs.map(|&edge| place[run.edges[edge as usize].succ as usize] as usize).max();
        for position in start..=reach.unwrap_or(start).max(start) {
            let mut set = [0u64; WORDS];
            let fanin = graph.fanin(order[position]);
            spent += fanin.len() as u64 + 1;
            let before = |edge: u32| place[run.edges[edge as usize].pred as usize] as usize;
            for &edge in fanin.iter().filter(|&&edge| before(edge) >= start) {
                union(&mut set, &sets[before(edge)]);
            }
            // The sets are of proper ancestors: a source in one of them is reached through another
            // op.
            for &edge in fanin.iter().filter(|&&edge| (start..end).contains(&before(edge))) {
                let bit = before(edge) - start;
                found.edges[edge as usize] = set[bit / 64] >> (bit % 64) & 1 == 1;
            }
            for &edge in fanin.iter().filter(|&&edge| (start..end).contains(&before(edge))) {
                let bit = before(edge) - start;
                set[bit / 64] |= 1 << (bit % 64);
            }
            sets[position] = set;
        }
        if spent > BUDGET {
            found.complete = end == order.len();
            break;
        }
    }
    found
}

fn union(into: &mut [u64; WORDS], from: &[u64; WORDS]) {
    for (into, from) in into.iter_mut().zip(from) {
        *into |= from;
    }
}
