//! Runs from traces: lanes, kinds, regions and memory.

use serde_json::{Value, json};
use syncline_deps::EdgeKinds;
use syncline_report::{Analysis, RunOpKind, RunRecord, RunTiming, StepKind, render};
use syncline_trace::Trace;

/// Half a row of a 2 x 8 matrix of f32.
fn arg(access: &str, buffer: u64, offset: u64, columns: u64) -> Value {
    json!({"access": access, "buffer": buffer, "offset": offset, "dtype": "f32",
           "shape": [1, columns], "strides": [32, 4]})
}

fn trace() -> Trace {
    let document = json!({"format": "syncline-trace", "version": 1,
        "buffers": [{"id": 0, "bytes": 64, "name": "A", "device": "cpu:0"}, {"id": 1, "bytes": 64, "name": "T"}],
        "tasks": [
            {"id": 3, "name": "fill", "args": [arg("inout", 0, 0, 8)], "device": "cpu:0", "lane": "cpu:0/10",
             "start_ns": 1000, "end_ns": 1100},
            {"id": 5, "kind": "copy", "args": [arg("input", 0, 16, 4), arg("output", 1, 0, 4)], "device": "cpu:1",
             "lane": 0, "start_ns": 1110, "end_ns": 1150},
            {"id": 8, "kernel": "scale", "args": [arg("inout", 1, 0, 8)], "device": "cpu:0", "lane": "cpu:0/9",
             "start_ns": 1150, "end_ns": 1200},
            {"id": 9, "name": "never", "args": [arg("input", 0, 0, 8)], "start_ns": 1200}]});
    Trace::from_json(document.to_string().as_bytes()).unwrap()
}

#[test]
fn lanes_ops_and_times_are_those_of_the_trace() {
    let run = RunRecord::from_trace(&trace()).unwrap();
    let lanes: Vec<_> =
        run.lanes.iter().map(|lane| (lane.device.as_str(), lane.name.as_str())).collect();
    assert_eq!(lanes, [("cpu:0", "9"), ("cpu:0", "10"), ("cpu:1", "lane 0")]);
    let names: Vec<_> = run.ops.iter().map(|op| (op.task, op.name.as_str(), op.kind)).collect();
    let compute = RunOpKind::Compute;
    assert_eq!(
        names,
        [
            (3, "fill", compute),
            (5, "copy", RunOpKind::Copy),
            (8, "scale", compute),
            (9, "never", compute)
        ]
    );
    assert_eq!(run.ops[0].timing, Some(RunTiming { lane: 1, start_ns: 1000, end_ns: 1100 }));
    assert_eq!(run.ops[3].timing, None, "a task that did not end was not timed");
    assert_eq!(run.ops[1].bytes, 16);
    assert_eq!(run.ops[1].args, ["input A[4:8]", "output T[0:4]"]);
}

#[test]
fn lanes_that_ran_nothing_are_shown() {
    let mut trace = trace();
    trace.extra.insert("lanes".to_owned(), json!(["cpu:0/9", "cpu:0/10", "cpu:0/11", "cpu:2/0"]));
    let run = RunRecord::from_trace(&trace).unwrap();
    let lanes: Vec<_> =
        run.lanes.iter().map(|lane| (lane.device.as_str(), lane.name.as_str())).collect();
    let [nine, ten, eleven] = ["9", "10", "11"].map(|name| ("cpu:0", name));
    assert_eq!(lanes, [nine, ten, eleven, ("cpu:1", "lane 0"), ("cpu:2", "0")]);
    assert_eq!(run.ops[1].timing.unwrap().lane, 3);
    let summary = Analysis::of(&run).unwrap().summary;
    assert_eq!((summary.lanes[2].ops, summary.lanes[2].busy_ns), (0, 0));
}

/// Three tasks that could run at once, and a lane that slept.
#[test]
fn what_limited_a_run_says_so_where_lanes_ran_nothing() {
    let task = |id: u64, start_ns: u64| {
        json!({"id": id, "name": "fill", "args": [arg("inout", id, 0, 8)], "lane": "cpu:0/0",
               "start_ns": start_ns, "end_ns": start_ns + 1000})
    };
    let mut document = json!({"format": "syncline-trace", "version": 1,
        "buffers": [{"id": 0, "bytes": 64}, {"id": 1, "bytes": 64}, {"id": 2, "bytes": 64}],
        "tasks": [task(0, 0), task(1, 1000), task(2, 2000)]});
    let limit = |document: &Value| {
        let trace = Trace::from_json(document.to_string().as_bytes()).unwrap();
        let run = RunRecord::from_trace(&trace).unwrap();
        Analysis::of(&run).unwrap().summary.limit
    };
    assert!(limit(&document).contains("; more lanes would shorten"), "{}", limit(&document));
    document["lanes"] = json!(["cpu:0/0", "cpu:0/1"]);
    let said = limit(&document);
    assert!(said.contains("more lanes at work, one ran nothing, would shorten"), "{said}");
}

#[test]
fn edges_carry_hazard_and_region() {
    let run = RunRecord::from_trace(&trace()).unwrap();
    let edges: Vec<_> = (run.edges.iter())
        .map(|edge| (edge.pred, edge.succ, edge.kinds, edge.region.as_str()))
        .collect();
    assert!(edges.contains(&(0, 1, EdgeKinds::RAW, "A[4:8]")), "{edges:?}");
    let to_scale = edges.iter().find(|edge| (edge.0, edge.1) == (1, 2)).unwrap();
    assert!(to_scale.2.contains(EdgeKinds::RAW), "{to_scale:?}");
    assert_eq!(to_scale.3, "T[0:4]");
    let path = Analysis::of(&run).unwrap().path;
    assert_eq!(
        [StepKind::Compute, StepKind::Copy, StepKind::Stall].map(|kind| path.time_ns(kind)),
        [150, 40, 10]
    );
}

#[test]
fn created_buffers_live_as_long_as_they_are_used_and_others_all_the_time() {
    let run = RunRecord::from_trace(&trace()).unwrap();
    let lives: Vec<_> = (run.memory.iter())
        .map(|one| (one.name.as_str(), one.place.as_str(), one.start_ns, one.end_ns))
        .collect();
    assert_eq!(lives, [("A", "cpu:0", 1000, 1200), ("T", "cpu:1", 1110, 1200)]);
}

#[test]
fn a_trace_without_times_and_an_empty_one_have_pages_too() {
    let mut plain = trace();
    plain.tasks.iter_mut().for_each(|task| task.start_ns = None);
    let run = RunRecord::from_trace(&plain).unwrap();
    assert!(!run.is_timed() && run.lanes.is_empty() && run.memory.is_empty());
    render(&[run, RunRecord::from_trace(&Trace::default()).unwrap()]).unwrap();
}

#[test]
fn a_trace_that_cannot_be_replayed_is_refused_with_the_task() {
    let mut bad = trace();
    bad.buffers.truncate(1);
    let message = RunRecord::from_trace(&bad).unwrap_err().to_string();
    assert!(message.contains("task 1") || message.contains("id 5"), "{message}");
}
