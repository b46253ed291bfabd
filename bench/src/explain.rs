//! `explain`: what it costs to see what happened: timing a run, writing its report, and simulating another machine.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_deps::trace::Trace;
use syncline_deps::{Arg, View};
use syncline_device::cpu::CpuDevice;
use syncline_plan::{BufferSpec, CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskSpec};
use syncline_program::{LoadOptions, Program, example, machine_from_toml};
use syncline_report::{Analysis, Detail, Run, render};
use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};

use crate::Effort;
use crate::measure::{Figure, figure, timed};
use crate::row::Row;

const BENCH: &str = "explain";
const BODY: Duration = Duration::from_micros(10);

/// Runs the benchmark.
pub fn run(effort: Effort) -> Vec<Row> {
    let (tasks, tiles, grid, times) = match effort {
        Effort::Smoke => (10, 4, 3, 1),
        Effort::Quick => (1_000, 66, 100, 3),
        Effort::Full => (1_000, 66, 100, 7),
    };
    vec![profiling(tasks, times.max(1) * 5), report(tiles, times), simulation(grid, times)]
}

/// Independent tasks of ten microseconds on one lane, with and without times, in turns.
fn profiling(tasks: u64, times: usize) -> Row {
    let mut graph = TaskGraph::new();
    let buffer = graph.add_buffer(BufferSpec::external("x", tasks)).expect("a new graph has room");
    for task in 0..tasks {
        let view = View::bytes_at(task, 1).expect("a small offset");
        let args = [Arg::inout(buffer, view)];
        graph.submit(&TaskSpec::new("spin", &args)).expect("a view inside the buffer");
    }
    let plan = ExecutionPlan::compile(&graph, &Machine::cpu(1), &CompileOptions::default());
    let device = CpuDevice::open_default().expect("there is always a CPU");
    let mut loaded = LoadedPlan::load(
        Arc::new(plan.expect("the graph compiles")),
        std::slice::from_ref(&device),
        |_, _| Some(TaskBody::new(|_| spin())),
    )
    .expect("every task has a body");
    let bindings = Bindings::new().bind("x", &device.buffer(tasks));
    let mut bound = loaded.bind(&bindings).expect("the buffer fits");
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..times {
        without.push(timed(|| bound.run().expect("bodies cannot fail")));
        with.push(timed(|| bound.run_timed().expect("bodies cannot fail")));
    }
    let per_task = |samples: Vec<Duration>| {
        figure(samples.iter().map(|took| took.as_nanos() as f64 / tasks as f64).collect())
    };
    let without = per_task(without).median;
    let row = Row::new(BENCH, "run with times, 10 us bodies", "ns_per_task", tasks, per_task(with));
    row.beside("limit:run without times", without)
}

fn spin() {
    let began = Instant::now();
    while began.elapsed() < BODY {
        std::hint::spin_loop();
    }
}

/// A tiled Cholesky factorisation as a trace with times, from its capture to the text of the page.
fn report(tiles: u64, times: usize) -> Row {
    let mut trace = program("cholesky", &[("tiles", tiles), ("tile", 1)]).trace().clone();
    for (start_ns, task) in (0..).step_by(1_000).zip(&mut trace.tasks) {
        (task.start_ns, task.end_ns) = (Some(start_ns), Some(start_ns + 900));
        task.device = Some("cpu:0".into());
    }
    let ours = milliseconds(times, || {
        let run = Run::from_trace(&trace).expect("a valid trace");
        black_box(render(&[run]).expect("a run to show"));
    });
    Row::new(BENCH, "report written", "ms", trace.tasks.len() as u64, ours)
}

/// A stencil on a machine with 16 lanes: planned, and what limits it found out.
fn simulation(grid: u64, times: usize) -> Row {
    let program = program("stencil", &[("tiles", grid), ("tile", 1), ("steps", grid)]);
    let machine = machine_from_toml("[[device]]\nname = \"cpu:0\"\nlanes = 16\n");
    let machine = machine.expect("a valid machine");
    let ours = milliseconds(times, || {
        let run = program.simulate(&machine).expect("the program fits");
        let report = Run::from_trace_in(&program.executed(&run).trace, Detail::Numbers);
        black_box(Analysis::of(&report.expect("a valid trace")).expect("a run to analyse"));
    });
    Row::new(BENCH, "simulation, 16 lanes", "ms", program.tasks().len() as u64, ours)
}

fn program(name: &str, settings: &[(&str, u64)]) -> Program {
    let settings: Vec<(String, u64)> =
        settings.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let trace: Trace = example(name, &settings).expect("the example has these settings");
    Program::from_trace(trace, &LoadOptions::default()).expect("examples can be run")
}

fn milliseconds(times: usize, mut run: impl FnMut()) -> Figure {
    figure((0..times).map(|_| timed(&mut run).as_secs_f64() * 1e3).collect())
}
