//! Replays on lanes of Vulkan and OpenCL devices allocate nothing. A program of its own, since the
//! counter is the whole process's: every thread of ours counts, the caller's and those of the
//! backends. What drivers allocate by themselves is not seen.

#![cfg(all(feature = "vulkan", feature = "opencl"))]

use std::sync::Arc;

use syncline::device::cpu::{CpuDevice, CpuOptions};
use syncline::device::registry::BackendProbe;
use syncline::device::{Device, DeviceSpec, Scalar};
use syncline::kernels::Library;
use syncline::plan::{BufferSpec, CompileOptions, ExecutionPlan, TaskGraph, TaskSpec};
use syncline::runtime::executor::machine_of;
use syncline::runtime::replay::{Bindings, LoadOptions, LoadedPlan, TaskBody};
use syncline::tensor::{Arg, Dtype, View};
use syncline::vulkan::VulkanOptions;
use syncline_testing::{CountingAllocator, need};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const STEPS: u64 = 8;
const WORDS: u64 = 1 << 14;
/// Runs in which lists may still grow to what they need.
const WARM_UPS: u64 = 20;

/// Two columns of tasks, each of which reads what both wrote in the step before: lanes wait for
/// each other all along. Columns are on the devices of these names, in turns.
fn butterfly(names: &[String]) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let whole = View::contiguous(Dtype::I32, &[WORDS]).unwrap();
    let mut add = |name| graph.add_buffer(BufferSpec::external(name, WORDS * 4)).unwrap();
    let columns = [[add("a0"), add("a1")], [add("b0"), add("b1")]];
    for step in 0..STEPS as usize {
        let (from, to) = (columns[step % 2], columns[1 - step % 2]);
        for at in 0..2 {
            let args = [
                Arg::input(from[0], whole),
                Arg::input(from[1], whole),
                Arg::output_existing(to[at], whole),
            ];
            // Long enough for the planner to use both lanes.
            let task = TaskSpec::new("add", &args).cost_ns(10_000_000);
            graph.submit(&task.on(&names[at % names.len()])).unwrap();
        }
    }
    graph
}

/// Runs the butterfly `runs` times after a few others. Returns how many allocations there were
/// meanwhile.
fn allocations(devices: &[Arc<dyn Device>], runs: u64) -> u64 {
    let machine = machine_of(devices, &[]).unwrap();
    let names: Vec<String> = devices.iter().map(|device| device.spec().to_string()).collect();
    let graph = butterfly(&names);
    let plan = ExecutionPlan::compile(&graph, &machine, &CompileOptions::default()).unwrap();
    let busy = plan.lanes().iter().filter(|lane| lane.count > 0).count();
    assert!(busy >= 2, "{busy} lanes have work:\n{}", plan.to_text());
    let library = Library::builtin();
    let kernel = library.get("add").unwrap().kernel.clone();
    let body = |_: syncline::plan::TaskInfo<'_>, _: DeviceSpec| {
        Some(TaskBody::kernel(&kernel, Vec::<Scalar>::new()))
    };
    let mut loaded =
        LoadedPlan::load_with(Arc::new(plan), devices, body, LoadOptions::default()).unwrap();
    let names = ["a0", "a1", "b0", "b1"];
    let buffers = names.map(|_| devices[0].buffer(WORDS * 4));
    for buffer in &buffers {
        buffer.write(0, &vec![1i32; WORDS as usize]).unwrap();
    }
    let bindings = (names.iter().zip(&buffers))
        .fold(Bindings::new(), |bindings, (name, buffer)| bindings.bind(name, buffer));
    let mut bound = loaded.bind(&bindings).unwrap();
    (0..WARM_UPS).for_each(|_| bound.run().unwrap());
    let before = ALLOCATOR.allocations();
    (0..runs).for_each(|_| bound.run().unwrap());
    let after = ALLOCATOR.allocations();
    drop(bound);
    // Every step doubles, and all runs were done.
    let doublings = STEPS * (runs + WARM_UPS);
    let expected = if doublings < 32 { 1i32 << doublings } else { 0 };
    let found = buffers[0].read::<i32>(0, WORDS as usize).unwrap();
    assert_eq!(found, vec![expected; WORDS as usize]);
    after - before
}

/// One test, since others would allocate beside it.
#[test]
fn replays_on_devices_allocate_nothing() {
    let options = VulkanOptions::default().with_lanes(2, 1);
    let vulkan = syncline::vulkan::Probe::with_options(options);
    let opencl = syncline::opencl::Probe::new();
    for probe in [&vulkan as &dyn BackendProbe, &opencl] {
        let Some(device) = need(&format!("a {} device", probe.backend()), probe.open(0)) else {
            continue;
        };
        let name = device.spec();
        assert_eq!(allocations(std::slice::from_ref(&device), 200), 0, "on {name} alone");
        // Beside threads of the host, with copies to and fro.
        let cpu = CpuDevice::open(CpuOptions::new(0).compute_lanes(1)).unwrap();
        assert_eq!(allocations(&[cpu, device], 200), 0, "on cpu:0 and {name}");
    }
}
