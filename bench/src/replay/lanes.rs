//! What stealing and overlap bring: the same plan with and without them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_device::{Buffer, Device};
use syncline_plan::{
    BufferSpec, CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskInfo, TaskSpec,
};
use syncline_runtime::replay::{Bindings, LoadOptions, LoadedPlan, Steal, TaskBody};
use syncline_tensor::{Arg, Dtype, View};

use crate::measure::figure;
use crate::row::Row;

/// How long the bodies of these plans take.
const BODY: Duration = Duration::from_micros(20);

fn busy(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn word(at: u64) -> View {
    View::strided(Dtype::U64, at * 64, &[1], &[8]).expect("a word")
}

/// Independent tasks that the planner gives to one lane, since it was told wrong costs.
fn misjudged(count: u64) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let buffer = graph.add_buffer(BufferSpec::external("words", (count + 1) * 64));
    let buffer = buffer.expect("the first one");
    let mut submit = |at, cost_ns| {
        let args = [Arg::inout(buffer, word(at))];
        graph.submit(&TaskSpec::new("task", &args).cost_ns(cost_ns)).expect("inside the buffer");
    };
    submit(count, 1_000_000_000);
    (0..count).for_each(|at| submit(at, 1_000));
    graph
}

/// Two columns, of which one takes three times as long as the other in even runs, the other in odd
/// ones.
fn columns(rounds: u64) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let buffer = graph.add_buffer(BufferSpec::external("words", 128)).expect("the first one");
    for _ in 0..rounds {
        for at in 0..2 {
            let args = [Arg::inout(buffer, word(at))];
            graph.submit(&TaskSpec::new("task", &args)).expect("inside the buffer");
        }
    }
    graph
}

struct Loaded {
    plan: LoadedPlan,
    bindings: Bindings,
}

fn load(
    device: &Arc<dyn Device>,
    graph: &TaskGraph,
    steal: Steal,
    body: impl Fn(TaskInfo<'_>) -> TaskBody,
) -> Loaded {
    let plan = ExecutionPlan::compile(graph, &Machine::cpu(2), &CompileOptions::default());
    let plan = Arc::new(plan.expect("the benchmark's graphs compile"));
    let mut bindings = Bindings::new();
    for (_, memory) in plan.bound_memories() {
        let buffer: Buffer = device.buffer(memory.bytes);
        bindings = bindings.bind_id(memory.buffer, &buffer);
    }
    let options = LoadOptions::default().with_steal(steal);
    let devices = std::slice::from_ref(device);
    let plan = LoadedPlan::load_with(plan, devices, |task, _| Some(body(task)), options);
    Loaded { plan: plan.expect("every task has a body"), bindings }
}

/// Runs both comparisons; times are of a run, over its tasks.
pub(super) fn run(device: &Arc<dyn Device>, small: bool, times: usize) -> Vec<Row> {
    let count = if small { 4 } else { 100 };
    vec![stealing(device, count, times), overlapping(device, count, times)]
}

fn stealing(device: &Arc<dyn Device>, count: u64, times: usize) -> Row {
    let graph = misjudged(count);
    let body = |task: TaskInfo<'_>| match task.cost_ns() {
        1_000 => TaskBody::new(|_| busy(BODY)),
        _ => TaskBody::new(|_| ()),
    };
    let [on, off] = [Steal::On, Steal::Off].map(|steal| {
        let mut loaded = load(device, &graph, steal, body);
        let mut bound = loaded.plan.bind(&loaded.bindings).expect("the plan's buffers");
        let one = || {
            let began = Instant::now();
            bound.run().expect("bodies do not fail");
            began.elapsed().as_nanos() as f64 / count as f64
        };
        figure(std::iter::repeat_with(one).take(times).collect())
    });
    let work = "20 us bodies, all planned on one lane";
    Row::new("replay", work, "ns_per_task", count, on).beside("without stealing", off.median)
}

fn overlapping(device: &Arc<dyn Device>, count: u64, times: usize) -> Row {
    const RUNS: u64 = 8;
    let rounds = (count / 10).max(1);
    let graph = columns(rounds);
    // Which column is slow changes from run to run.
    let calls = Arc::new([(); 2].map(|()| std::sync::atomic::AtomicU64::new(0)));
    let body = |task: TaskInfo<'_>| {
        let (column, calls) = (task.index().0 as usize % 2, Arc::clone(&calls));
        TaskBody::new(move |_| {
            let call = calls[column].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let is_slow = (call / rounds + column as u64).is_multiple_of(2);
            busy(if is_slow { 3 * BODY } else { BODY });
        })
    };
    let mut loaded = load(device, &graph, Steal::Off, body);
    let mut bound = loaded.plan.bind(&loaded.bindings).expect("the plan's buffers");
    let tasks = (RUNS * rounds * 2) as f64;
    let (mut apart, mut together) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let began = Instant::now();
        (0..RUNS).for_each(|_| bound.run().expect("bodies do not fail"));
        apart.push(began.elapsed().as_nanos() as f64 / tasks);
        let began = Instant::now();
        let tickets = (0..RUNS).map(|_| bound.start().expect("threads can be had"));
        let last = tickets.last().expect("there are some");
        last.wait().expect("bodies do not fail");
        together.push(began.elapsed().as_nanos() as f64 / tasks);
    }
    let row = Row::new(
        "replay",
        "8 runs of two columns, slow in turns, overlapping",
        "ns_per_task",
        RUNS * rounds * 2,
        figure(together),
    );
    row.beside("one run after the other", figure(apart).median)
}
