//! Redundant edges against brute force, and what must hold of every layout.

use syncline_report::{Analysis, ReportError, RunOp, RunOpKind, RunRecord};
use syncline_testing::for_seeds;

use crate::runs::{edge, random_run};

/// Whether `to` is reached from `from` without taking an edge straight from the one to the other.
fn reached_otherwise(run: &RunRecord, from: u32, to: u32) -> bool {
    let mut seen = vec![false; run.ops.len()];
    let mut stack = vec![from];
    while let Some(op) = stack.pop() {
        for next in run.edges.iter().filter(|edge| edge.pred == op) {
            if (op, next.succ) == (from, to) {
                continue;
            }
            if next.succ == to {
                return true;
            }
            if !std::mem::replace(&mut seen[next.succ as usize], true) {
                stack.push(next.succ);
            }
        }
    }
    false
}

#[test]
fn redundant_edges_are_those_that_others_imply() {
    for_seeds("redundant_edges_are_those_that_others_imply", 60, |rng| {
        // Now and then more ops than one block of sources holds.
        let ops = if rng.one_in(12) { 700 } else { 1 + rng.below(60) };
        let run = random_run(rng, ops, 2);
        let redundant = Analysis::of(&run).unwrap().redundant(&run);
        assert!(redundant.complete);
        for (edge, &found) in run.edges.iter().zip(&redundant.edges) {
            assert_eq!(found, reached_otherwise(&run, edge.pred, edge.succ), "{edge:?}");
        }
    });
}

#[test]
fn every_edge_points_down_and_no_two_ops_lie_on_each_other() {
    for_seeds("every_edge_points_down_and_no_two_ops_lie_on_each_other", 80, |rng| {
        let ops = 1 + rng.below(300);
        let run = random_run(rng, ops, 3);
        let analysis = Analysis::of(&run).unwrap();
        let layout = analysis.layout(&run, &analysis.redundant(&run));
        for edge in &run.edges {
            let row = |op: u32| layout.row[op as usize];
            assert!(row(edge.pred) < row(edge.succ), "{edge:?}");
        }
        let mut places: Vec<(u32, f32)> =
            layout.row.iter().copied().zip(layout.x.iter().copied()).collect();
        places.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for pair in places.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            assert!(pair[1].1 - pair[0].1 > 0.99, "{pair:?}");
        }
    });
}

#[test]
fn a_wide_row_is_folded() {
    let mut run = RunRecord::new("wide");
    run.ops = (0..10_000).map(|task| RunOp::new(task, "one", RunOpKind::Compute)).collect();
    let analysis = Analysis::of(&run).unwrap();
    let layout = analysis.layout(&run, &analysis.redundant(&run));
    assert_eq!((layout.depth, layout.rows), (1, 50));
}

#[test]
fn a_cycle_is_refused_with_its_task() {
    let mut run = RunRecord::new("cycle");
    run.ops = (0..3).map(|task| RunOp::new(task + 10, "one", RunOpKind::Compute)).collect();
    run.edges = vec![edge(0, 1), edge(1, 2), edge(2, 1)];
    let error = Analysis::of(&run).unwrap_err();
    assert_eq!(error, ReportError::Cycle { task: 11, name: "one".into() });
}
