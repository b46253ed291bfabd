//! Replay against the oracle, and the oracle against simpler ones.

use std::collections::BTreeSet;

use syncline_deps::{
    DepGraph, EdgeKinds, OracleError, OracleLimits, ScopeKind, SubmitOptions, check_edges,
    full_graph, reduced_graph,
};
use syncline_tensor::{Arg, BufferId, View};
use syncline_testing::for_seeds;
use syncline_trace::{Trace, TraceBuffer, TraceTask, read_edges, replay, write_edges};

use crate::random;

const LIMITS: OracleLimits = OracleLimits {
    intervals: 1 << 20,
    comparisons: 1 << 24,
    conflicts: 1 << 20,
    closure_words: 1 << 30,
    closure_bytes: 4096,
};

fn wired(trace: &Trace) -> DepGraph {
    replay(trace, SubmitOptions::default()).expect("a valid trace").graph
}

fn pairs(graph: &DepGraph) -> BTreeSet<(u32, u32)> {
    graph.edges().iter().filter(|edge| edge.waits()).map(|edge| (edge.pred, edge.succ)).collect()
}

/// The transitive closure, in the plainest way.
fn closure(tasks: usize, edges: &BTreeSet<(u32, u32)>) -> BTreeSet<(u32, u32)> {
    let mut before = vec![BTreeSet::new(); tasks];
    for succ in 0..tasks as u32 {
        let mut all = BTreeSet::new();
        for &(pred, _) in edges.iter().filter(|edge| edge.1 == succ) {
            all.insert(pred);
            all.extend(&before[pred as usize]);
        }
        before[succ as usize] = all;
    }
    let of = |succ: usize| before[succ].iter().map(move |&pred| (pred, succ as u32));
    (0..tasks).flat_map(of).collect()
}

#[test]
fn replay_orders_exactly_what_conflicts() {
    for_seeds("replay_orders_exactly_what_conflicts", 600, |rng| {
        let trace = random::program(rng, 30);
        let full = pairs(&full_graph(&trace, LIMITS).expect("small"));
        let graph = wired(&trace);
        let tasks = trace.tasks.len();
        assert_eq!(closure(tasks, &pairs(&graph)), closure(tasks, &full), "{}", trace.to_json());
        let report = check_edges(&trace, &graph, LIMITS).expect("small");
        assert!(report.is_clean(), "{report:?}");
    });
}

#[test]
fn the_reduction_is_exact() {
    for_seeds("the_reduction_is_exact", 300, |rng| {
        let trace = random::program(rng, 25);
        let full = full_graph(&trace, LIMITS).expect("small");
        let reduced = pairs(&reduced_graph(&full, LIMITS).expect("small"));
        let whole = closure(trace.tasks.len(), &pairs(&full));
        assert_eq!(closure(trace.tasks.len(), &reduced), whole);
        for edge in &reduced {
            let mut fewer = reduced.clone();
            fewer.remove(edge);
            assert_ne!(closure(trace.tasks.len(), &fewer), whole, "{edge:?} can go");
        }
    });
}

#[test]
fn the_check_finds_what_was_changed() {
    for_seeds("the_check_finds_what_was_changed", 300, |rng| {
        let trace = random::program(rng, 25);
        let full = full_graph(&trace, LIMITS).expect("small");
        let reduced = reduced_graph(&full, LIMITS).expect("small");
        let tasks = trace.tasks.len();
        let whole = closure(tasks, &pairs(&full));
        let mut edges: Vec<(u32, u32)> = pairs(&reduced).into_iter().collect();
        let removed = (!edges.is_empty()).then(|| edges.swap_remove(rng.below(edges.len())));
        let absent: Vec<(u32, u32)> = (0..tasks as u32)
            .flat_map(|succ| (0..succ).map(move |pred| (pred, succ)))
            .filter(|pair| !whole.contains(pair))
            .collect();
        let added = (!absent.is_empty()).then(|| *rng.pick(&absent));
        edges.extend(added);
        let given = read_edges(edges_json(&trace, &edges).as_bytes(), &trace).expect("well-formed");
        let report = check_edges(&trace, &given, LIMITS).expect("small");
        assert_eq!(pairs(&report.superfluous), added.into_iter().collect());
        let closed = closure(tasks, &edges.iter().copied().collect());
        let missing: BTreeSet<_> = pairs(&full).difference(&closed).copied().collect();
        assert_eq!(pairs(&report.missing), missing);
        assert!(removed.is_none() || added.is_some() || !missing.is_empty());
    });
}

fn edges_json(trace: &Trace, edges: &[(u32, u32)]) -> String {
    let id = |position: u32| trace.tasks[position as usize].id;
    let edges: Vec<String> = edges
        .iter()
        .map(|&(pred, succ)| format!("{{\"pred\": {}, \"succ\": {}}}", id(pred), id(succ)))
        .collect();
    let tasks = trace.tasks.len();
    let edges = edges.join(", ");
    format!(
        "{{\"format\": \"syncline-deps\", \"version\": 1, \"tasks\": {tasks}, \"edges\": [{edges}]}}"
    )
}

#[test]
fn graphs_come_back_from_their_json() {
    for_seeds("graphs_come_back_from_their_json", 100, |rng| {
        let trace = random::program(rng, 25);
        for graph in [wired(&trace), full_graph(&trace, LIMITS).expect("small")] {
            let mut text = Vec::new();
            write_edges(&graph, &mut text).expect("memory");
            assert_eq!(read_edges(&text, &trace).expect("our own JSON"), graph);
        }
    });
}

#[test]
fn a_closure_in_many_blocks_is_the_same() {
    // A chain of 3,000 tasks takes several blocks of columns.
    let x = BufferId(0);
    let mut trace = Trace::default();
    trace.buffers.push(TraceBuffer::new(x, 8));
    let limits = OracleLimits { closure_bytes: 1 << 18, ..OracleLimits::default() };
    let mut edges = Vec::new();
    for id in 0..3_000u64 {
        let byte = View::bytes_at(id % 4, 1).expect("small");
        let mut task = TraceTask::new(id, "t", [Arg::input(x, byte)]);
        if id > 0 {
            task.deps.push(id - 1);
            edges.push((id as u32 - 1, id as u32));
        }
        trace.tasks.push(task);
    }
    edges.push((0, 2_999));
    let given = read_edges(edges_json(&trace, &edges).as_bytes(), &trace).expect("well-formed");
    assert!(check_edges(&trace, &given, limits).expect("within limits").is_clean());
    assert_eq!(reduced_graph(&given, limits).expect("within limits").edges().len(), 2_999);
}

#[test]
fn past_its_limits_the_oracle_says_so() {
    let x = BufferId(0);
    let mut trace = Trace::default();
    trace.buffers.push(TraceBuffer::new(x, 1 << 40));
    let comb = View::strided(syncline_tensor::Dtype::U8, 0, &[1 << 30], &[64]).expect("in range");
    trace.tasks.push(TraceTask::new(0, "comb", [Arg::input(x, comb)]));
    let error = full_graph(&trace, OracleLimits::default()).expect_err("a billion intervals");
    assert_eq!(error, OracleError::Intervals { limit: 1 << 24 });

    let mut trace = crate::examples::cholesky(8, 4).expect("small");
    trace.tasks.truncate(100);
    let few = OracleLimits { conflicts: 10, ..LIMITS };
    assert!(matches!(full_graph(&trace, few), Err(OracleError::Conflicts { limit: 10, .. })));
    let few = OracleLimits { comparisons: 10, ..LIMITS };
    assert_eq!(full_graph(&trace, few), Err(OracleError::Comparisons { limit: 10 }));
    let full = full_graph(&trace, LIMITS).expect("small");
    let few = OracleLimits { closure_words: 10, ..LIMITS };
    assert!(matches!(reduced_graph(&full, few), Err(OracleError::Closure { tasks: 100, .. })));
}

#[test]
fn manual_tasks_are_found_by_later_auto_ones_only() {
    let x = BufferId(0);
    let whole = View::bytes_at(0, 8).expect("small");
    let mut trace = Trace::default();
    trace.buffers.push(TraceBuffer::new(x, 8));
    for (id, scope) in [ScopeKind::Auto, ScopeKind::Manual, ScopeKind::Manual, ScopeKind::Auto]
        .into_iter()
        .enumerate()
    {
        let mut task = TraceTask::new(id as u64, "t", [Arg::inout(x, whole)]);
        task.scope = scope;
        trace.tasks.push(task);
    }
    let full = full_graph(&trace, LIMITS).expect("small");
    assert_eq!(pairs(&full), BTreeSet::from([(0, 3), (1, 3), (2, 3)]));
    assert!(full.edges()[1].kinds.contains(EdgeKinds::BARRIER));
    assert_eq!(pairs(&wired(&trace)), pairs(&full));
}
