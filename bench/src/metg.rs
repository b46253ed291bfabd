//! `metg`: the smallest task at which half the machine's power is still useful work, METG(50%).
//!
//! As Task Bench measures it: a pattern of tasks over time steps; each body is a compute loop, and
//! its length is halved until less than half of what the cores could do is done. The figure is the
//! time a task takes there, overhead included: elapsed time times cores over tasks, interpolated at
//! 50%. Smaller is better.
//!
//! Ours is the replay of a plan that was compiled before; peers run the same edges with the same
//! loop. The power of the machine is what plain threads, one a core, reach with the loop in the
//! same process: the best of several tries.
//!
//! Steps are as wide as there are cores, and eight tasks wide. A loop goes on with the value of the
//! one before it on its thread: otherwise a core would run several short loops at once, out of
//! order, and one thread alone would reach more than its share of the peak, which long loops have.

mod patterns;
pub(crate) mod streamed;

use std::cell::Cell;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use syncline_device::Device;
use syncline_device::cpu::CpuDevice;
use syncline_plan::{CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskSpec};
use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};

use crate::Effort;
use crate::measure::figure;
use crate::peers::Peer;
use crate::replay::runners::{Body, Edges, RayonRunner};
use crate::row::Row;
use patterns::Pattern;

/// Cores and lanes.
const CORES: usize = 2;
/// Tasks of a step.
const WIDTHS: [u32; 2] = [CORES as u32, 8];
/// Loop lengths from this power of two downwards.
const POWER_MAX: u32 = 14;
const POWER_MIN: u32 = 2;

/// Runs the benchmark.
pub(crate) fn run(effort: Effort) -> Vec<Row> {
    let (times, steps, power_max) = match effort {
        Effort::Smoke => (1, 10, 4),
        Effort::Quick => (3, 1_000, 12),
        Effort::Full => (7, 1_000, POWER_MAX),
    };
    let device = CpuDevice::open_default().expect("there is always a CPU");
    let tbb = Peer::compile("metg_tbb.cpp", "g++", &["-std=c++17", "-ltbb", "-pthread"]);
    let openmp = Peer::compile("metg_openmp.cpp", "g++", &["-std=c++17", "-fopenmp"]);
    let mut rows = Vec::new();
    for (width, pattern) in WIDTHS.iter().flat_map(|&width| Pattern::ALL.map(|of| (width, of))) {
        let pairs = pattern.edges(width, steps);
        let edges = Edges::of_pairs(width as usize * steps as usize, &pairs);
        let samples =
            |mut one: Box<dyn FnMut() -> f64 + '_>| figure((0..times).map(|_| one()).collect());
        let ours = samples(Box::new(|| metg(&ours_by_length(&device, &edges, power_max))));
        let rayon = samples(Box::new(|| metg(&rayon_by_length(&edges, power_max))));
        let mut others = vec![("rayon, atomic counters", rayon.median)];
        for (name, peer) in [("oneTBB flow graph", &tbb), ("OpenMP tasks (gcc)", &openmp)] {
            let Some(peer) = peer else { continue };
            let theirs = samples(Box::new(|| metg(&peer_by_length(peer, &edges, power_max))));
            others.push((name, theirs.median));
        }
        let name = format!("{}, width {width}", pattern.name());
        let row = Row::new("metg", name, "metg50_ns", edges.preds.len() as u64, ours);
        rows.extend(others.iter().map(|&(name, theirs)| row.beside(name, theirs)));
    }
    rows
}

/// One point of the curve: time of a task, overhead included, and the share of it that is useful.
#[derive(Clone, Copy, Debug)]
struct Point {
    granularity_ns: f64,
    efficiency: f64,
}

/// Where the curve, longest tasks first, crosses one half; infinite if it never does more.
fn metg(curve: &[Point]) -> f64 {
    let Some(last) = curve.iter().rposition(|point| point.efficiency >= 0.5) else {
        return f64::INFINITY;
    };
    let above = curve[last];
    match curve.get(last + 1) {
        None => above.granularity_ns,
        Some(below) => {
            let share = (above.efficiency - 0.5) / (above.efficiency - below.efficiency);
            above.granularity_ns + share * (below.granularity_ns - above.granularity_ns)
        }
    }
}

thread_local! {
    /// What the last loop of this thread ended with.
    static VALUE: Cell<f64> = const { Cell::new(1.0) };
}

/// The body: a chain of multiplications and additions, which continues the chain of the body before
/// it on this thread. The compiler must not know the numbers: with these, the chain stays at one,
/// and the whole loop would be left out.
fn compute(length: u32) {
    let mut value = std::hint::black_box(VALUE.get());
    let (factor, summand) = std::hint::black_box((0.999_999, 0.000_001));
    for _ in 0..length {
        value = value * factor + summand;
    }
    VALUE.set(std::hint::black_box(value));
}

/// Loop rounds per nanosecond that plain threads reach together, starting at the same time: the
/// best of several tries.
fn peak() -> f64 {
    const ROUNDS: u32 = 1 << 22;
    let tries = (0..9).map(|_| {
        let together = Barrier::new(CORES);
        let times = std::thread::scope(|scope| {
            let threads = (0..CORES).map(|_| {
                scope.spawn(|| {
                    together.wait();
                    let start = Instant::now();
                    compute(ROUNDS);
                    start.elapsed().as_nanos() as f64
                })
            });
            let threads: Vec<_> = threads.collect();
            let times = threads.into_iter().map(|thread| thread.join().expect("it only counts"));
            times.fold(0.0, f64::max)
        });
        CORES as f64 * f64::from(ROUNDS) / times
    });
    tries.fold(0.0, f64::max)
}

fn point(length: u32, tasks: usize, elapsed_ns: f64, peak: f64) -> Point {
    let granularity_ns = elapsed_ns * CORES as f64 / tasks as f64;
    let rate = f64::from(length) * tasks as f64 / elapsed_ns;
    Point { granularity_ns, efficiency: rate / peak }
}

fn lengths(power_max: u32) -> impl Iterator<Item = u32> {
    (POWER_MIN..=power_max).rev().map(|power| 1 << power)
}

/// The best of a few runs: a curve needs what the system can do, not what disturbed it.
fn best_ns(mut run: impl FnMut()) -> f64 {
    run();
    let times = (0..5).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_nanos() as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

fn ours_by_length(device: &Arc<dyn Device>, edges: &Edges, power_max: u32) -> Vec<Point> {
    let plan = Arc::new(plan_of(edges));
    let (peak, tasks) = (peak(), edges.preds.len());
    lengths(power_max)
        .map(|length| {
            let devices = std::slice::from_ref(device);
            let body =
                |_: syncline_plan::TaskInfo<'_>, _| Some(TaskBody::new(move |_| compute(length)));
            let loaded = LoadedPlan::load(Arc::clone(&plan), devices, body);
            let mut loaded = loaded.expect("every task has a body");
            let bindings = Bindings::new();
            let mut bound = loaded.bind(&bindings).expect("there is nothing to bind");
            let elapsed = best_ns(|| bound.run().expect("bodies do not fail"));
            point(length, tasks, elapsed, peak)
        })
        .collect()
}

/// The edges as explicit deps of tasks without arguments; each is said to take a microsecond.
fn plan_of(edges: &Edges) -> ExecutionPlan {
    let mut preds: Vec<Vec<u32>> = vec![Vec::new(); edges.preds.len()];
    for pred in 0..edges.preds.len() {
        for at in edges.starts[pred]..edges.starts[pred + 1] {
            preds[edges.succs[at as usize] as usize].push(pred as u32);
        }
    }
    let mut graph = TaskGraph::new();
    let mut ids = Vec::with_capacity(preds.len());
    for preds in &preds {
        let deps: Vec<_> = preds.iter().map(|&pred| ids[pred as usize]).collect();
        let id = graph.submit(&TaskSpec::new("task", &[]).deps(&deps));
        ids.push(id.expect("deps on earlier tasks"));
    }
    let machine = Machine::cpu(CORES as u16);
    ExecutionPlan::compile(&graph, &machine, &CompileOptions::default()).expect("it compiles")
}

fn rayon_by_length(edges: &Edges, power_max: u32) -> Vec<Point> {
    let (peak, tasks) = (peak(), edges.preds.len());
    lengths(power_max)
        .map(|length| {
            let bodies = (0..tasks).map(|_| -> Body { Box::new(move || compute(length)) });
            let mut runner = RayonRunner::with_bodies(edges, CORES, bodies.collect());
            point(length, tasks, best_ns(|| runner.run()), peak)
        })
        .collect()
}

/// The peer prints the peak, and then the best time of a run for each length.
fn peer_by_length(peer: &Peer, edges: &Edges, power_max: u32) -> Vec<Point> {
    let lengths: Vec<u32> = lengths(power_max).collect();
    let texts: Vec<String> = lengths.iter().map(u32::to_string).collect();
    let printed = edges.with_file(|path| {
        let cores = CORES.to_string();
        let mut arguments = vec![path, &*cores];
        arguments.extend(texts.iter().map(|text| &**text));
        peer.run(&arguments, &[])
    });
    let Some([peak, times @ ..]) = printed.as_deref() else { return Vec::new() };
    let tasks = edges.preds.len();
    let points = lengths.iter().zip(times);
    points.map(|(&length, &elapsed)| point(length, tasks, elapsed, *peak)).collect()
}
