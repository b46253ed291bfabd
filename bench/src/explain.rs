//! `explain`: what it costs to see what happened: timing a run, writing and opening its report,
//! simulating another machine.

mod browser;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_device::cpu::CpuDevice;
use syncline_plan::{BufferSpec, CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskSpec};
use syncline_program::{Program, ProgramOptions, example, machine_from_toml};
use syncline_report::{RunRecord, render};
use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};
use syncline_tensor::{Arg, View};
use syncline_trace::Trace;

use crate::Effort;
use crate::measure::{Figure, figure, timed};
use crate::row::Row;

const BENCH: &str = "explain";
const BODY: Duration = Duration::from_micros(10);

/// Runs the benchmark.
pub(crate) fn run(effort: Effort) -> Vec<Row> {
    // A million tasks are simulated, once in a quick run: that alone takes a quarter of a minute.
    let (tasks, tiles, grid, times, simulations) = match effort {
        Effort::Smoke => (10, 4, 3, 1, 1),
        Effort::Quick => (1_000, 66, 100, 5, 1),
        Effort::Full => (1_000, 66, 100, 9, 3),
    };
    let mut rows = vec![profiling(tasks, times * 5)];
    let trace = timed_trace(tiles);
    rows.push(report(&trace, times));
    if effort != Effort::Smoke {
        rows.extend(page(&trace));
    }
    rows.extend(simulation(grid, simulations));
    rows
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

/// A tiled Cholesky factorisation with times, as a capture of a run would have them: two lanes in
/// turns.
fn timed_trace(tiles: u64) -> Trace {
    let mut trace = program("cholesky", &[("tiles", tiles), ("tile", 1)]).trace().clone();
    for (at, task) in (0..).zip(&mut trace.tasks) {
        let start_ns = 1_000 * at;
        (task.start_ns, task.end_ns) = (Some(start_ns), Some(start_ns + 900));
        task.device = Some("cpu:0".into());
        task.lane = Some(syncline_trace::TraceLane::Number(at % 2));
    }
    trace
}

/// From the trace to the text of the page.
fn report(trace: &Trace, times: usize) -> Row {
    let ours = milliseconds(times, || {
        let run = RunRecord::from_trace(trace).expect("a valid trace");
        black_box(render(&[run]).expect("a run to show"));
    });
    let row = Row::new(BENCH, "report written", "ms", trace.tasks.len() as u64, ours);
    row.beside("limit:aim", 2_000.0)
}

/// The same page in a browser, if there is one: opened, and flown over. A screen shows a frame
/// every 16.7 ms.
fn page(trace: &Trace) -> Vec<Row> {
    let run = RunRecord::from_trace(trace).expect("a valid trace");
    let Some(opened) = browser::open(&render(&[run]).expect("a run to show")) else {
        eprintln!("explain: no Chromium that opens the page: its frames are not measured");
        return Vec::new();
    };
    let row = |work: String, ms: f64, limit: (&str, f64)| {
        let ours = figure(vec![ms]);
        Row::new(BENCH, work, "ms", trace.tasks.len() as u64, ours).beside(limit.0, limit.1)
    };
    let mut rows = vec![row("page opened".to_owned(), opened.start_ms, ("limit:aim", 3_000.0))];
    for (view, median_ms, worst_ms) in opened.frames {
        let screen = ("limit:screen", 1_000.0 / 60.0);
        rows.push(row(format!("frame of {view}, median of 60"), median_ms, screen));
        rows.push(row(format!("frame of {view}, worst of 60"), worst_ms, screen));
    }
    rows
}

/// A stencil on a machine with 16 lanes, from the bytes of a file to the times of all tasks; and
/// what limits it.
fn simulation(grid: u64, times: usize) -> Vec<Row> {
    let settings = [("tiles", grid), ("tile", 1), ("steps", grid)];
    let machine = machine_from_toml("[[device]]\nname = \"cpu:0\"\nlanes = 16\n");
    let machine = machine.expect("a valid machine");
    let trace = program("stencil", &settings).trace().clone();
    let mut capture = Vec::new();
    trace.write_capture(&mut capture).expect("memory takes all that is written");
    let forms = [("a capture", capture), ("JSON", trace.to_json().into_bytes())];
    let tasks = trace.tasks.len() as u64;
    drop(trace);
    let mut rows = Vec::new();
    for (form, bytes) in forms {
        let ours = milliseconds(times, || {
            let read = Program::from_bytes(&bytes, &ProgramOptions::default());
            let program = read.expect("examples can be run");
            black_box(program.simulate(&machine).expect("the program fits"));
        });
        let work = format!("simulation from {form}, 16 lanes");
        rows.push(Row::new(BENCH, work, "ms", tasks, ours).beside("limit:aim", 10_000.0));
    }
    rows
}

fn program(name: &str, settings: &[(&str, u64)]) -> Program {
    let settings: Vec<(String, u64)> =
        settings.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let trace: Trace = example(name, &settings).expect("the example has these settings");
    Program::from_trace(trace, &ProgramOptions::default()).expect("examples can be run")
}

fn milliseconds(times: usize, mut run: impl FnMut()) -> Figure {
    figure((0..times).map(|_| timed(&mut run).as_secs_f64() * 1e3).collect())
}
