//! A bound plan runs without allocating. A program of its own, since the counter is the whole process's.

use std::sync::Arc;
use std::time::Duration;

use syncline_deps::{Arg, Dtype, View};
use syncline_device::Device;
use syncline_device::cpu::CpuDevice;
use syncline_plan::{BufferSpec, CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskSpec};
use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};
use syncline_testing::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// A butterfly: both words are read by both tasks of the next step, so that two lanes wait for each other all along.
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

/// Runs the butterfly `runs` times on `lanes` lanes; returns allocations and bytes gained over the runs.
///
/// A lane's thread allocates while it starts, and the caller does not wait for it: `settle` is how long it may take.
fn gained(device: &Arc<dyn Device>, lanes: u16, runs: u64, settle: Duration) -> (u64, i64) {
    let plan =
        ExecutionPlan::compile(&butterfly(6), &Machine::cpu(lanes), &CompileOptions::default());
    let mut loaded =
        LoadedPlan::load(Arc::new(plan.unwrap()), std::slice::from_ref(device), |_, _| {
            Some(TaskBody::new(|args| {
                let args = args.open();
                let sum = args.slice::<u64>(0)?[0].wrapping_add(args.slice::<u64>(1)?[0]);
                args.slice_mut::<u64>(2)?[0] = sum;
                Ok::<(), syncline_device::DeviceError>(())
            }))
        })
        .unwrap();
    let (even, odd) = (device.buffer(128), device.buffer(128));
    even.write(0, &[1u64; 16]).unwrap();
    odd.write(0, &[0u64; 16]).unwrap();
    let bindings = Bindings::new().bind("even", &even).bind("odd", &odd);
    let mut bound = loaded.bind(&bindings).unwrap();
    bound.run().unwrap();
    std::thread::sleep(settle);
    let before = (ALLOCATOR.allocations(), ALLOCATOR.bytes_live() as i64);
    for _ in 0..runs {
        bound.run().unwrap();
    }
    let gained = (ALLOCATOR.allocations() - before.0, ALLOCATOR.bytes_live() as i64 - before.1);
    drop(bound);
    // Six doublings a run, and all runs were done.
    let doublings = 6 * (runs + 1);
    let expected = if doublings < 64 { 1u64 << doublings } else { 0 };
    assert_eq!(even.read::<u64>(0, 1).unwrap(), [expected]);
    gained
}

/// One test, since others would allocate beside it. The system's own threads may do so at any time, but not each time:
/// what a run allocates shows in every try.
#[test]
fn runs_allocate_nothing_and_memory_stays_as_it_was() {
    let device = CpuDevice::open_default().unwrap();
    for (lanes, runs) in [(1, 8), (1, 200_000), (2, 200), (3, 100)] {
        let nothing = [20, 200, 1_000].into_iter().any(|ms| {
            let gained = gained(&device, lanes, runs, Duration::from_millis(ms));
            println!("{lanes} lanes, {runs} runs: {gained:?}");
            gained == (0, 0)
        });
        assert!(nothing, "{lanes} lanes, {runs} runs");
    }
}
