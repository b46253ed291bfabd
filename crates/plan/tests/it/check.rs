//! The checker finds what was broken on purpose.

use syncline_plan::{
    BufferSpec, CheckError, CompileOptions, DeviceModel, ExecutionPlan, Machine, TaskGraph,
    TaskSpec,
};
use syncline_tensor::{Arg, View};

use crate::program::stencil;

fn all() -> View {
    View::bytes_at(0, 64).unwrap()
}

#[test]
fn a_dropped_wait_is_a_race_that_names_both_tasks() {
    let plan = ExecutionPlan::compile(&stencil(8, 4), &Machine::cpu(2), &CompileOptions::default())
        .unwrap();
    assert!(!plan.waits().is_empty());
    for wait in 0..plan.waits().len() {
        let reason = plan.reason_for(wait).expect("every wait has a reason");
        assert!(matches!(reason, CheckError::Race { .. }), "{reason}");
        assert!(reason.to_string().contains("`stencil`"), "{reason}");
    }
}

#[test]
fn a_dropped_wait_before_a_copy_is_found() {
    let devices = vec![DeviceModel::new("cpu:0", 1), DeviceModel::new("cpu:1", 1)];
    let machine = Machine::new(devices).unwrap();
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 64)).unwrap();
    for device in ["cpu:0", "cpu:1", "cpu:0"] {
        graph.submit(&TaskSpec::new("k", &[Arg::inout(a, all())]).on(device)).unwrap();
    }
    let plan = ExecutionPlan::compile(&graph, &machine, &CompileOptions::default()).unwrap();
    plan.check().unwrap();
    assert_eq!(plan.waits().len(), 4, "{}", plan.to_text());
    for wait in 0..4 {
        let reason = plan.reason_for(wait).expect("every wait has a reason");
        assert!(reason.to_string().contains('a'), "{reason}");
    }
}

#[test]
fn an_explicit_dep_is_kept() {
    let devices = vec![DeviceModel::new("cpu:0", 1), DeviceModel::new("cpu:1", 1)];
    let machine = Machine::new(devices).unwrap();
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 64)).unwrap();
    let b = graph.add_buffer(BufferSpec::external("b", 64).on("cpu:1")).unwrap();
    let args = [Arg::inout(a, all())];
    let first = graph.submit(&TaskSpec::new("first", &args).on("cpu:0")).unwrap();
    let args = [Arg::inout(b, all())];
    graph.submit(&TaskSpec::new("after", &args).on("cpu:1").deps(&[first])).unwrap();
    let plan = ExecutionPlan::compile(&graph, &machine, &CompileOptions::default()).unwrap();
    plan.check().unwrap();
    assert_eq!(plan.waits().len(), 1, "{}", plan.to_text());
    assert!(matches!(plan.reason_for(0), Some(CheckError::Order { .. })));
}
