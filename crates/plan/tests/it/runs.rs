//! Successive runs that overlap, and ops out of their lanes' order.

use syncline_deps::{Arg, View};
use syncline_plan::{
    BufferSpec, CheckError, CompileOptions, ExecutionPlan, LaneIndex, Machine, TaskGraph, TaskSpec,
};
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
