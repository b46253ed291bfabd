//! Recording, and refusals.

use syncline_deps::{EdgeKinds, ScopeKind};
use syncline_plan::{BufferSpec, GraphError, TaskGraph, TaskSpec};
use syncline_tensor::{Arg, BufferId, TaskId, View};

fn bytes(start: u64, end: u64) -> View {
    View::bytes_at(start, end - start).unwrap()
}

#[test]
fn a_refused_task_leaves_nothing_behind() {
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 64)).unwrap();
    graph.submit(&TaskSpec::new("good", &[Arg::inout(a, bytes(0, 64))])).unwrap();
    let before = graph.fingerprint();
    for args in [
        [Arg::inout(a, bytes(0, 64)), Arg::input(a, bytes(32, 65))],
        [Arg::inout(a, bytes(0, 64)), Arg::input(BufferId(7), bytes(0, 1))],
    ] {
        let error = graph.submit(&TaskSpec::new("bad", &args)).unwrap_err();
        assert!(matches!(error, GraphError::Submit { .. }));
        assert!(error.to_string().contains("bad"), "{error}");
    }
    let never = [TaskId::new(0, 9)];
    assert!(graph.submit(&TaskSpec::new("bad", &[]).deps(&never)).is_err());
    assert_eq!(graph.fingerprint(), before);
    assert!(matches!(graph.leave_scope(), Err(GraphError::Scope(_))));
}

#[test]
fn edges_say_why_they_are_there() {
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 64)).unwrap();
    let all = bytes(0, 64);
    let first = graph.submit(&TaskSpec::new("w", &[Arg::output_existing(a, all)])).unwrap();
    graph.submit(&TaskSpec::new("r", &[Arg::input(a, all)])).unwrap();
    graph.enter_scope(ScopeKind::Manual);
    graph.submit(&TaskSpec::new("m", &[Arg::inout(a, all)]).deps(&[first])).unwrap();
    graph.leave_scope().unwrap();
    let tasks: Vec<_> = graph.tasks().collect();
    assert!(tasks[1].edges()[0].kinds.contains(EdgeKinds::RAW));
    assert_eq!(tasks[2].edges().len(), 1);
    assert!(tasks[2].edges()[0].kinds.contains(EdgeKinds::EXPLICIT));
    assert!(tasks[2].is_manual() && !tasks[1].is_manual());
}

#[test]
fn fingerprints_tell_graphs_apart() {
    let with = |cost: u64, start: u64| {
        let mut graph = TaskGraph::new();
        let a = graph.add_buffer(BufferSpec::external("a", 64)).unwrap();
        let args = [Arg::inout(a, bytes(start, 64))];
        graph.submit(&TaskSpec::new("w", &args).cost_ns(cost)).unwrap();
        graph.fingerprint()
    };
    assert_eq!(with(1, 0), with(1, 0));
    assert_ne!(with(1, 0), with(2, 0));
    assert_ne!(with(1, 0), with(1, 32));
}
