//! Plans replayed on CPU devices.
//!
//! - `random`: random programs against a serial run that knows nothing of plans
//! - `failure`: errors, panics, cancels and deadlines, and the run after them
//! - `balance`: idle lanes that take ops of busy ones
//! - `overlap`: successive runs that are under way at the same time
//! - `many`: many tasks, plans and threads, and the end of everything in any order
//! - `measured`: plans made from what earlier runs took
//! - `binding`: what may be bound to a plan, and what is refused
//! - `device_lanes`: the same and more for lanes of devices

mod balance;
mod binding;
mod device_lanes;
mod failure;
mod many;
mod measured;
mod overlap;
mod random;
mod serial;

use std::sync::{Arc, OnceLock};

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{Buffer, Device};
use syncline_plan::{
    BufferSpec, CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskInfo, TaskSpec,
};
use syncline_runtime::replay::{LoadedPlan, TaskBody};
use syncline_tensor::{Arg, View};

/// Three CPU devices for all tests: opening one starts threads.
fn devices() -> &'static [Arc<dyn Device>] {
    static DEVICES: OnceLock<Vec<Arc<dyn Device>>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        // Some bodies wait for others in ways that the runtime does not see.
        let options = |index| CpuOptions::new(index).compute_lanes(1).workers(3);
        let open = |index| CpuDevice::open(options(index)).unwrap();
        (0..3).map(open).collect()
    })
}

fn compile(graph: &TaskGraph, machine: &Machine) -> Arc<ExecutionPlan> {
    let plan = ExecutionPlan::compile(graph, machine, &CompileOptions::default()).unwrap();
    plan.check().unwrap();
    Arc::new(plan)
}

fn load(plan: &Arc<ExecutionPlan>, mut body: impl FnMut(TaskInfo<'_>) -> TaskBody) -> LoadedPlan {
    LoadedPlan::load(Arc::clone(plan), devices(), |task, _| Some(body(task))).unwrap()
}

/// `count` independent words in one buffer, and `rounds` tasks one after the other on each of them.
fn words(count: u64, rounds: u64) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let buffer = graph.add_buffer(BufferSpec::external("words", count * 8)).unwrap();
    for _ in 0..rounds {
        for at in 0..count {
            let view = View::strided(syncline_tensor::Dtype::U64, at * 8, &[1], &[8]).unwrap();
            graph.submit(&TaskSpec::new("word", &[Arg::inout(buffer, view)])).unwrap();
        }
    }
    graph
}

fn increment() -> TaskBody {
    TaskBody::new(|args| args.open().slice_mut::<u64>(0).map(|words| words[0] += 1))
}

fn zeroed(bytes: u64) -> Buffer {
    let buffer = devices()[0].buffer(bytes);
    buffer.write(0, &vec![0u8; bytes as usize]).unwrap();
    buffer
}
