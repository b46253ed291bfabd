//! Plans and streams have no threads of their own. A program of its own, since the threads of the
//! whole process are counted.

use std::sync::Arc;

use syncline_device::Device;
use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_plan::{
    BufferSpec, CompileOptions, DeviceModel, ExecutionPlan, Machine, TaskGraph, TaskSpec,
};
use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};
use syncline_runtime::stream::{Stream, StreamOptions, Task};
use syncline_tensor::{Arg, Dtype, View};
use syncline_testing::threads_named;

/// `count` independent words in one buffer, and `rounds` tasks one after the other on each of them.
fn words(count: u64, rounds: u64) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let buffer = graph.add_buffer(BufferSpec::external("words", count * 8)).unwrap();
    for _ in 0..rounds {
        for at in 0..count {
            let view = View::strided(Dtype::U64, at * 8, &[1], &[8]).unwrap();
            graph.submit(&TaskSpec::new("word", &[Arg::inout(buffer, view)])).unwrap();
        }
    }
    graph
}

fn load(plan: &Arc<ExecutionPlan>, device: &Arc<dyn Device>) -> LoadedPlan {
    let body = |_: syncline_plan::TaskInfo<'_>, _| {
        let add = |args: syncline_runtime::replay::TaskArgs<'_>| {
            args.open().slice_mut::<u64>(0).map(|words| words[0] += 1)
        };
        Some(TaskBody::new(add))
    };
    LoadedPlan::load(plan.clone(), std::slice::from_ref(device), body).unwrap()
}

/// The threads of this process when the device's have their names.
fn threads_now() -> usize {
    assert_eq!(threads_named("cpu:0", 2), 2);
    // The thread that registers the process with the system ends by itself.
    assert_eq!(threads_named("syncline-barri", 0), 0);
    threads_named("", usize::MAX)
}

/// One test, since others would start threads beside it.
#[test]
fn two_hundred_plans_and_twenty_streams_add_no_thread() {
    let device = CpuDevice::open(CpuOptions::new(0).compute_lanes(1).workers(2)).unwrap();
    let model = DeviceModel::new("cpu:0", 8).without_copy_lane();
    let machine = Machine::new(vec![model]).unwrap().with_sync_ns(0);
    let compiled = ExecutionPlan::compile(&words(8, 4), &machine, &CompileOptions::default());
    let plan = Arc::new(compiled.unwrap());
    assert!(plan.lanes().iter().filter(|lane| lane.count > 0).count() == 8);
    let before = threads_now();
    let mut plans: Vec<LoadedPlan> = (0..200).map(|_| load(&plan, &device)).collect();
    let streams: Vec<Stream> =
        (0..20).map(|_| Stream::on(&*device, StreamOptions::default()).unwrap()).collect();
    let buffer = device.buffer(64);
    buffer.write(0, &[0u64; 8]).unwrap();
    let bindings = Bindings::new().bind("words", &buffer);
    for plan in &mut plans {
        plan.run(&bindings).unwrap();
        plan.bind(&bindings).unwrap().start().unwrap().wait().unwrap();
    }
    for stream in &streams {
        stream.submit(Task::new("nothing").body(|_| ())).unwrap();
        stream.wait_all().unwrap();
    }
    assert_eq!(threads_named("", before), before);
    drop((plans, streams));
    assert_eq!(buffer.read::<u64>(0, 8).unwrap(), [200 * 2 * 4; 8]);
    drop(device);
    assert_eq!(threads_named("", before - 2), before - 2);
}
