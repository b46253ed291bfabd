//! Plans made from what earlier runs took.

use std::sync::Arc;
use std::time::Duration;

use syncline_device::DeviceSpec;
use syncline_plan::{
    BufferSpec, CompileOptions, CostModel, DeviceIndex, DeviceModel, ExecutionPlan, Machine,
    TaskGraph, TaskSpec,
};
use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};
use syncline_tensor::{Arg, View};

use super::{devices, zeroed};

const WORDS: u64 = 4;

/// Three tasks one after the other on each of four words, on `device` or on any.
fn graph(device: Option<&str>) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let buffer = graph.add_buffer(BufferSpec::external("words", WORDS * 8).on("cpu:0")).unwrap();
    for at in (0..WORDS).cycle().take(3 * WORDS as usize) {
        let args = [Arg::inout(buffer, View::bytes_at(at * 8, 8).unwrap())];
        let task = TaskSpec::new("word", &args);
        graph.submit(&device.map_or(task, |device| task.on(device))).unwrap();
    }
    graph
}

/// Compiles `graph` with `costs`, runs it with bodies that are slow on `slow`, and adds what they
/// took.
fn measure(graph: &TaskGraph, costs: &mut CostModel, slow: DeviceSpec) -> Arc<ExecutionPlan> {
    let machine = Machine::new(["cpu:0", "cpu:1"].map(|name| DeviceModel::new(name, 1)).into());
    let options = CompileOptions::default().with_costs(costs);
    let plan = Arc::new(ExecutionPlan::compile(graph, &machine.unwrap(), &options).unwrap());
    let body = |device: DeviceSpec| {
        TaskBody::new(move |_| {
            if device == slow {
                std::thread::sleep(Duration::from_millis(5));
            }
        })
    };
    let load = LoadedPlan::load(Arc::clone(&plan), devices(), |_, device| Some(body(device)));
    let mut loaded = load.unwrap();
    let bindings = Bindings::new().bind("words", &zeroed(WORDS * 8));
    let mut bound = loaded.bind(&bindings).unwrap();
    bound.run_timed().unwrap();
    bound.observe(costs);
    drop(bound);
    plan
}

#[test]
fn placement_follows_what_was_measured() {
    for (slow, fast) in [(0, 1), (1, 0)] {
        let mut costs = CostModel::default();
        for device in ["cpu:0", "cpu:1"] {
            measure(&graph(Some(device)), &mut costs, DeviceSpec::cpu(slow));
        }
        // What is known is kept to, and stays so when it has been measured once more.
        for _ in 0..2 {
            let plan = measure(&graph(None), &mut costs, DeviceSpec::cpu(slow));
            let is_fast = |task| plan.device_of(task) == DeviceIndex(fast);
            assert!(plan.tasks().all(|task| is_fast(task.index())), "{}", plan.to_text());
        }
    }
}
