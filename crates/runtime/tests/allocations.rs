//! A bound plan runs without allocating. A program of its own, since the counter is the whole
//! process's.

use std::sync::Arc;

use syncline_device::Device;
use syncline_device::cpu::CpuDevice;
use syncline_plan::{BufferSpec, CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskSpec};
use syncline_runtime::replay::{Bindings, LoadOptions, LoadedPlan, Steal, TaskBody};
use syncline_tensor::{Arg, Dtype, View};
use syncline_testing::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// A butterfly: both words are read by both tasks of the next step, so that two lanes wait for each
/// other all along.
fn butterfly(steps: u64) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let [even, odd] =
        ["even", "odd"].map(|name| graph.add_buffer(BufferSpec::external(name, 128)).unwrap());
    let word = |at: u64| View::strided(Dtype::U64, at * 64, &[1], &[8]).unwrap();
    for step in 0..steps {
        let (from, to) = if step % 2 == 0 { (even, odd) } else { (odd, even) };
        for at in 0..2 {
            let inputs = [Arg::input(from, word(0)), Arg::input(from, word(1))];
            let args = [inputs[0], inputs[1], Arg::output_existing(to, word(at))];
            graph.submit(&TaskSpec::new("add", &args)).unwrap();
        }
    }
    graph
}

/// How the butterfly is run.
#[derive(Clone, Copy, Debug)]
struct Way {
    lanes: u16,
    runs: u64,
    steal: Steal,
    /// Whether runs are started before the ones before have ended.
    overlaps: bool,
}

/// Runs the butterfly; returns the allocations of all threads that run its bodies, and the bytes
/// gained by the process.
fn gained(device: &Arc<dyn Device>, way: Way) -> (u64, i64) {
    let Way { lanes, runs, steal, overlaps } = way;
    let plan =
        ExecutionPlan::compile(&butterfly(6), &Machine::cpu(lanes), &CompileOptions::default());
    let options = LoadOptions::default().with_steal(steal);
    let body = |_: syncline_plan::TaskInfo<'_>, _| {
        Some(TaskBody::new(|args| {
            CountingAllocator::watch_this_thread();
            let args = args.open();
            let sum = args.slice::<u64>(0)?[0].wrapping_add(args.slice::<u64>(1)?[0]);
            args.slice_mut::<u64>(2)?[0] = sum;
            Ok::<(), syncline_device::DeviceError>(())
        }))
    };
    let devices = std::slice::from_ref(device);
    let mut loaded =
        LoadedPlan::load_with(Arc::new(plan.unwrap()), devices, body, options).unwrap();
    let (even, odd) = (device.buffer(128), device.buffer(128));
    even.write(0, &[1u64; 16]).unwrap();
    odd.write(0, &[0u64; 16]).unwrap();
    let bindings = Bindings::new().bind("even", &even).bind("odd", &odd);
    let mut bound = loaded.bind(&bindings).unwrap();
    let mut run = |count: u64| {
        for _ in 0..count {
            match overlaps {
                true => drop(bound.start().unwrap()),
                false => bound.run().unwrap(),
            }
        }
        if overlaps {
            bound.start().unwrap().wait().unwrap();
        } else {
            bound.run().unwrap();
        }
    };
    CountingAllocator::watch_this_thread();
    run(3);
    let before = (ALLOCATOR.watched_allocations(), ALLOCATOR.bytes_live() as i64);
    run(runs);
    let after = (ALLOCATOR.watched_allocations(), ALLOCATOR.bytes_live() as i64);
    drop(bound);
    // Six doublings a run, and all runs were done.
    let doublings = 6 * (runs + 5);
    let expected = if doublings < 64 { 1u64 << doublings } else { 0 };
    assert_eq!(even.read::<u64>(0, 1).unwrap(), [expected]);
    (after.0 - before.0, after.1 - before.1)
}

/// One test, since others would allocate beside it.
#[test]
fn runs_allocate_nothing_and_memory_stays_as_it_was() {
    let device = CpuDevice::open_default().unwrap();
    let way = |lanes, runs, steal, overlaps| Way { lanes, runs, steal, overlaps };
    for way in [
        way(1, 3, Steal::Off, false),
        way(1, 1_000_000, Steal::Off, false),
        way(2, 200, Steal::Off, false),
        way(2, 200, Steal::On, false),
        way(1, 1_000, Steal::Off, true),
        way(2, 200, Steal::Off, true),
        way(2, 200, Steal::On, true),
        way(3, 100, Steal::Auto, false),
    ] {
        let (allocations, bytes) = gained(&device, way);
        // The caller, and every lane that ever ran a body: none of them may allocate.
        assert_eq!(allocations, 0, "{way:?}");
        // Others in the process may; a million runs that kept a byte each would show.
        assert!(bytes.abs() < 100_000, "{way:?}: {bytes} bytes more");
    }
}
