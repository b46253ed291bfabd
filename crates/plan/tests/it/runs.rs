//! Successive runs that overlap, and ops out of their lanes' order.

use std::collections::HashSet;

use syncline_plan::{
    BufferSpec, CheckError, CompileOptions, ExecutionPlan, LaneIndex, Machine, OpDep, OpDeps,
    OpIndex, TaskGraph, TaskSpec,
};
use syncline_tensor::{Arg, View};
use syncline_testing::for_seeds;

use crate::program::{any_plan, stencil};

#[test]
fn runs_of_any_plan_overlap_safely_and_no_wait_between_them_is_idle() {
    for_seeds("runs_of_any_plan_overlap_safely_and_no_wait_between_them_is_idle", 150, |rng| {
        let (_, _, plan) = any_plan(rng, 30);
        let deps = plan.op_deps();
        plan.check_deps(&deps).unwrap();
        let waits = plan.run_waits(&deps);
        plan.check_runs(&waits).unwrap();
        for at in 0..waits.all().len() {
            let error = plan.check_runs(&waits.without(at)).unwrap_err();
            assert!(matches!(error, CheckError::RunRace { .. }), "{error}");
        }
    });
}

#[test]
fn the_deps_of_a_chain_cannot_do_without_one_another() {
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 64)).unwrap();
    let b = graph.add_buffer(BufferSpec::external("b", 64)).unwrap();
    let all = View::bytes_at(0, 64).unwrap();
    for (from, to) in [(a, b), (b, a), (a, b)] {
        let args = [Arg::input(from, all), Arg::output_existing(to, all)];
        graph.submit(&TaskSpec::new("k", &args)).unwrap();
    }
    let plan = ExecutionPlan::compile(&graph, &Machine::cpu(2), &CompileOptions::default());
    let plan = plan.unwrap();
    let deps = plan.op_deps();
    plan.check_deps(&deps).unwrap();
    for at in 0..deps.all().len() {
        plan.check_deps(&deps.without(at)).unwrap_err();
    }
}

/// The checker agrees with a plain search: a dep may go exactly if others imply it.
#[test]
fn a_dep_may_go_only_if_others_imply_it() {
    for_seeds("a_dep_may_go_only_if_others_imply_it", 150, |rng| {
        let (_, _, plan) = any_plan(rng, 20);
        let deps = plan.op_deps();
        let pairs = (0..deps.len() as u32).flat_map(|op| {
            let deps = deps.of(OpIndex(op)).to_vec();
            deps.into_iter().map(move |dep| (op, dep))
        });
        for (at, (op, dep)) in pairs.enumerate() {
            let less = deps.without(at);
            assert_eq!(
                plan.check_deps(&less).is_ok(),
                is_implied(&less, op, dep),
                "{dep:?} of {op}"
            );
        }
    });
}

/// Whether `op` comes after `dep`: a search through two runs.
fn is_implied(deps: &OpDeps, op: u32, dep: OpDep) -> bool {
    let goal = (u32::from(!dep.is_of_last_run), dep.op.0);
    let (mut open, mut seen) = (vec![(1, op)], HashSet::new());
    while let Some((run, op)) = open.pop() {
        if !seen.insert((run, op)) {
            continue;
        }
        if (run, op) == goal {
            return true;
        }
        for dep in deps.of(OpIndex(op)) {
            match (run, dep.is_of_last_run) {
                (0, true) => {}
                (_, is_of_last_run) => open.push((run - u32::from(is_of_last_run), dep.op.0)),
            }
        }
        if run == 1 {
            open.push((0, op));
        }
    }
    false
}

/// The cost grows with the ops and what they share, not with the pairs of ops.
#[test]
fn plans_of_very_many_ops_are_verified() {
    let plan =
        ExecutionPlan::compile(&stencil(500, 100), &Machine::cpu(4), &CompileOptions::default());
    let plan = plan.unwrap();
    plan.verify().unwrap();
    let deps = plan.op_deps();
    plan.check_deps(&deps).unwrap();
    plan.check_runs(&plan.run_waits(&deps)).unwrap();
}

/// Every column is its own: no lane has to see anything of another's last run.
#[test]
fn independent_columns_wait_for_nothing_between_runs() {
    let mut graph = TaskGraph::new();
    let buffer = graph.add_buffer(BufferSpec::external("columns", 128)).unwrap();
    for _ in 0..10 {
        for column in 0..2 {
            let view = View::bytes_at(column * 64, 64).unwrap();
            graph.submit(&TaskSpec::new("k", &[Arg::inout(buffer, view)])).unwrap();
        }
    }
    let plan = ExecutionPlan::compile(&graph, &Machine::cpu(2), &CompileOptions::default());
    let plan = plan.unwrap();
    assert!((0..2).all(|lane| plan.lane_ops(LaneIndex(lane)).len() == 10));
    assert_eq!(plan.run_waits(&plan.op_deps()).all(), []);
}

#[test]
fn neighbours_wait_for_each_other_between_runs_too() {
    let plan = ExecutionPlan::compile(&stencil(8, 4), &Machine::cpu(2), &CompileOptions::default());
    let plan = plan.unwrap();
    let waits = plan.run_waits(&plan.op_deps());
    assert!(!waits.all().is_empty());
    // An op may be ready in the next run long before the last one of this run is done.
    let ends =
        waits.all().iter().filter(|wait| wait.count as usize == plan.lane_ops(wait.lane).len());
    assert!(ends.count() < waits.all().len(), "{waits:?}");
}
