//! `replay`: what running a compiled plan costs per task, and what compiling costs.
//!
//! Bodies are empty boxed closures, declared to cost a microsecond each, so that the planner
//! spreads them over the lanes as it would real ones. Peers run the same edges: a bare loop over
//! boxed closures in order, a runner with atomic counters on rayon, and oneTBB's flow graph. All
//! are measured in turns within one run. Besides: what stealing and overlap bring, and what a
//! kernel costs without a plan.

mod graphs;
mod kernels;
mod lanes;
pub(crate) mod runners;

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_device::cpu::CpuDevice;
use syncline_device::{Buffer, Device};
use syncline_plan::{CompileOptions, ExecutionPlan, Machine, TaskGraph};
use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};

use crate::Effort;
use crate::measure::{Figure, figure, timed};
use crate::peers::Peer;
use crate::row::Row;
use runners::{BareLoop, Edges, RayonRunner};

/// Runs the benchmark.
pub(crate) fn run(effort: Effort) -> Vec<Row> {
    let (times, small) = match effort {
        Effort::Smoke => (2, true),
        Effort::Quick => (31, false),
        Effort::Full => (101, false),
    };
    let device = CpuDevice::open_default().expect("there is always a CPU");
    let tbb = Peer::compile("tbb_flow.cpp", "g++", &["-std=c++17", "-ltbb"]);
    let mut rows = Vec::new();
    for (name, graph) in graphs::all(small) {
        rows.extend(beside_peers(&device, &name, &graph, times, tbb.as_ref()));
    }
    rows.extend(on_one_lane(&device, small, times));
    rows.extend(lanes::run(&device, small, times.min(31)));
    rows.extend(kernels::run(if small { 100 } else { 100_000 }, times.min(15)));
    rows.extend(compiling(effort));
    rows
}

/// A loaded plan of empty bodies, and the memory it works on.
struct Loaded {
    plan: LoadedPlan,
    bindings: Bindings,
}

impl Loaded {
    fn new(device: &Arc<dyn Device>, graph: &TaskGraph, lanes: u16) -> Self {
        let machine = Machine::cpu(lanes);
        let plan = ExecutionPlan::compile(graph, &machine, &CompileOptions::default());
        let plan = Arc::new(plan.expect("the benchmark's graphs compile"));
        let mut bindings = Bindings::new();
        for (_, memory) in plan.bound_memories() {
            // Bodies are empty: nothing is read or written.
            let buffer: Buffer = device.buffer(memory.bytes);
            bindings = bindings.bind_id(memory.buffer, &buffer);
        }
        let devices = std::slice::from_ref(device);
        let plan = LoadedPlan::load(plan, devices, |_, _| Some(TaskBody::new(|_| ())));
        Self { plan: plan.expect("every task has a body"), bindings }
    }
}

/// How often a graph is run in one sample, so that the clock and a stray interrupt do not count.
const RUNS: u32 = 10;

fn sample(count: usize, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..RUNS).for_each(|_| run());
    start.elapsed().as_nanos() as f64 / (f64::from(RUNS) * count as f64)
}

fn beside_peers(
    device: &Arc<dyn Device>,
    name: &str,
    graph: &TaskGraph,
    times: usize,
    tbb: Option<&Peer>,
) -> Vec<Row> {
    let count = graph.tasks().len();
    let edges = Edges::of(graph);
    let bare = BareLoop::new(count);
    let mut rayon = RayonRunner::new(&edges, 2);
    let mut loaded = Loaded::new(device, graph, 2);
    let mut bound = loaded.plan.bind(&loaded.bindings).expect("the buffers are the plan's");
    let (mut ours, mut loops, mut rayons) = (Vec::new(), Vec::new(), Vec::new());
    bound.run().expect("empty bodies do not fail");
    // In turns: what the machine does besides disturbs all alike.
    for _ in 0..times {
        ours.push(sample(count, || bound.run().expect("empty bodies do not fail")));
        loops.push(sample(count, || bare.run()));
        rayons.push(sample(count, || rayon.run()));
    }
    let row = Row::new("replay", name, "ns_per_task", count as u64, figure(ours));
    let mut rows = vec![
        row.beside("bare loop of boxed closures", figure(loops).median),
        row.beside("rayon, atomic counters", figure(rayons).median),
    ];
    if let Some(tbb) = tbb
        && let Some(theirs) = edges.with_file(|path| tbb.run(&[path, "2"], &[]))
        && let [median, ..] = theirs[..]
    {
        rows.push(row.beside("oneTBB flow graph", median));
    }
    rows
}

/// Plans without waits: the cost of the machinery alone.
fn on_one_lane(device: &Arc<dyn Device>, small: bool, times: usize) -> Vec<Row> {
    let works = [
        ("cholesky, 1 lane", graphs::cholesky(if small { 5 } else { 40 })),
        ("chain, 2 lanes", graphs::chain(if small { 50 } else { 10_000 })),
    ];
    let lanes = [1, 2];
    (works.iter().zip(lanes))
        .map(|((name, graph), lanes)| {
            let count = graph.tasks().len();
            let bare = BareLoop::new(count);
            let mut loaded = Loaded::new(device, graph, lanes);
            let mut bound = loaded.plan.bind(&loaded.bindings).expect("the plan's buffers");
            let (mut ours, mut loops) = (Vec::new(), Vec::new());
            for _ in 0..times {
                ours.push(sample(count, || bound.run().expect("empty bodies do not fail")));
                loops.push(sample(count, || bare.run()));
            }
            Row::new("replay", *name, "ns_per_task", count as u64, figure(ours))
                .beside("bare loop of boxed closures", figure(loops).median)
        })
        .collect()
}

/// What compiling costs per task, by the number of tasks.
fn compiling(effort: Effort) -> Vec<Row> {
    let sizes: &[u64] = match effort {
        Effort::Smoke => &[100],
        Effort::Quick => &[1_000, 10_000, 100_000],
        Effort::Full => &[1_000, 10_000, 100_000, 1_000_000],
    };
    let random_slices: fn(u64) -> TaskGraph = graphs::random_slices;
    let works = [("random tiles", graphs::random_tiles as _), ("random slices", random_slices)];
    (works.iter())
        .flat_map(|work| sizes.iter().map(move |&count| (work, count)))
        .map(|((name, graph), count)| {
            let graph = graph(count);
            let samples = (0..if count > 200_000 { 3 } else { 7 })
                .map(|_| compile_ns(&graph).as_nanos() as f64 / count as f64);
            let ours: Figure = figure(samples.collect());
            let work = format!("compile, {name}, 2 lanes");
            Row::new("replay", work, "ns_per_task", count, ours)
        })
        .collect()
}

fn compile_ns(graph: &TaskGraph) -> Duration {
    let machine = Machine::cpu(2);
    timed(|| {
        let plan = ExecutionPlan::compile(graph, &machine, &CompileOptions::default());
        std::hint::black_box(plan.expect("the benchmark's graphs compile"));
    })
}
