//! Plans on paper.

use syncline_plan::{
    BufferSpec, CompileOptions, DeviceModel, ExecutionPlan, Machine, TaskGraph, TaskSpec,
};
use syncline_tensor::{Arg, View};

fn plan() -> ExecutionPlan {
    let devices = vec![DeviceModel::new("cpu:0", 1), DeviceModel::new("cpu:1", 1)];
    let machine = Machine::new(devices).unwrap();
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 64)).unwrap();
    let t = graph.add_buffer(BufferSpec::temporary("t", 64)).unwrap();
    let all = View::bytes_at(0, 64).unwrap();
    let make = [Arg::input(a, all), Arg::output(t, all)];
    graph.submit(&TaskSpec::new("ma\"ke", &make).on("cpu:0")).unwrap();
    let take = [Arg::input(t, all), Arg::output_existing(a, all)];
    graph.submit(&TaskSpec::new("take", &take).on("cpu:1")).unwrap();
    ExecutionPlan::compile(&graph, &machine, &CompileOptions::default()).unwrap()
}

#[test]
fn text_says_what_runs_where_and_waits_for_what() {
    let text = plan().to_text();
    let expected = "\
plan: 2 tasks, 2 copies, 3 waits, 4 lanes, expected 3016 ns
device cpu:0: 128 bytes, 64 of them in the arena
device cpu:1: 128 bytes, 128 of them in the arena
memory a on cpu:0: 64 bytes, bound by the caller
memory a on cpu:1: 64 bytes, arena at 64
memory t on cpu:0: 64 bytes, arena at 0
memory t on cpu:1: 64 bytes, arena at 0
lane 0, cpu:0 compute:
     0         0..1000     t0 ma\"ke
lane 1, cpu:0 copy:
     0      2958..3466     c1 copy a cpu:1 -> cpu:0, 64 bytes  [after 1 of lane 2]
lane 2, cpu:1 compute:
     0      1808..2808     t1 take  [after 1 of lane 3]
lane 3, cpu:1 copy:
     0      1150..1658     c0 copy t cpu:0 -> cpu:1, 64 bytes  [after 1 of lane 0]
";
    // Times follow from the machine's defaults, which may be tuned: compare all but the first
    // line's.
    let tail = |text: &str| text.split_once('\n').map(|(_, tail)| tail.to_owned());
    assert_eq!(tail(&text), tail(expected), "{text}");
}

#[test]
fn json_is_json_and_names_everything() {
    let value: serde_json::Value = serde_json::from_str(&plan().to_json()).unwrap();
    assert_eq!(value["format"], "syncline-plan");
    assert_eq!(value["version"], 1);
    assert_eq!(value["lanes"][2]["ops"][0]["name"], "take");
    assert_eq!(value["lanes"][2]["ops"][0]["waits"][0]["lane"], 3);
    assert_eq!(value["lanes"][3]["ops"][0]["copy"]["bytes"], 64);
    assert_eq!(value["devices"][0]["memory_bytes"], u64::MAX.to_string());
}

#[test]
fn dot_quotes_names_and_draws_waits() {
    let dot = plan().to_dot();
    assert!(dot.contains("ma\\\"ke"), "{dot}");
    assert!(dot.contains("n3_0 -> n2_0;"), "{dot}");
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
}
