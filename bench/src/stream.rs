//! `stream`: submitting and running tasks at the same time.
//!
//! Empty bodies, submitted and run to the end; the same with the worker kept busy elsewhere, so
//! that submission alone is measured; how much resident memory grows while many tasks pass; and the
//! smallest task at which half of the machine still does useful work (METG, as Task Bench defines
//! it). The peers are OpenMP (gcc) with the same graphs as `depend` clauses, and StarPU with the
//! same graphs over data handles.

mod graphs;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use syncline_runtime::stream::{Stream, StreamOptions, Task};

use crate::Effort;
use crate::measure::{Figure, figure};
use crate::peers::Peer;
use crate::row::Row;
use graphs::Graph;

/// Graphs with more tasks than this are not given to StarPU: they would take minutes.
const STARPU_TASKS_MAX: u64 = 20_000;

/// Runs the benchmark.
pub(crate) fn run(effort: Effort) -> Vec<Row> {
    let openmp = Peer::compile("openmp_stream.c", "gcc", &["-fopenmp"]);
    let flags = ["-I/usr/include/starpu/1.3", "-lstarpu-1.3"];
    let starpu = Peer::compile("starpu_stream.c", "gcc", &flags);
    let times = if effort == Effort::Smoke { 1 } else { 7 };
    let mut rows = Vec::new();
    for graph in graphs_of(effort) {
        let ours = to_the_end(&graph, times);
        let row = Row::new("stream", &graph.name, "ns_per_task", graph.len(), ours);
        let before = rows.len();
        if let Some(peer) = &openmp {
            rows.push(row.beside("openmp-gcc", with_openmp(peer, &graph).median));
        }
        if let Some(peer) = starpu.as_ref().filter(|_| graph.len() <= STARPU_TASKS_MAX) {
            rows.push(row.beside("starpu", with_starpu(peer, &graph).median));
        }
        if rows.len() == before {
            rows.push(row);
        }
    }
    for graph in alone_of(effort) {
        let name = format!("{} submit alone", graph.name);
        let ours = submit_alone(&graph, times);
        rows.push(Row::new("stream", name, "ns_per_task", graph.len(), ours));
    }
    rows.extend(memory(effort));
    rows.extend(crate::metg::streamed::rows(effort));
    rows
}

fn alone_of(effort: Effort) -> Vec<Graph> {
    match effort {
        Effort::Smoke => vec![Graph::cholesky(6)],
        _ => vec![Graph::cholesky(40), Graph::stencil(100, 100), Graph::chain(10_000)],
    }
}

fn graphs_of(effort: Effort) -> Vec<Graph> {
    match effort {
        Effort::Smoke => vec![
            Graph::cholesky(6),
            Graph::stencil(8, 10),
            Graph::wavefront(6, 2),
            Graph::chain(100),
            Graph::independent(100),
        ],
        Effort::Quick => vec![
            Graph::cholesky(40),
            Graph::stencil(100, 100),
            Graph::wavefront(50, 4),
            Graph::chain(10_000),
            Graph::independent(10_000),
        ],
        Effort::Full => {
            let mut all = graphs_of(Effort::Quick);
            all.extend([
                Graph::cholesky(181),
                Graph::stencil(1000, 1000),
                Graph::wavefront(100, 100),
                Graph::chain(1_000_000),
                Graph::independent(1_000_000),
            ]);
            all
        }
    }
}

fn options() -> StreamOptions {
    StreamOptions::default()
}

/// Submits and runs everything, on one stream that is warm.
fn to_the_end(graph: &Graph, times: usize) -> Figure {
    let stream = Stream::new(options()).expect("the default options");
    let buffer = graph.buffer(&stream);
    let run = || {
        let start = Instant::now();
        graph.submit(&stream, &buffer);
        stream.wait_all().expect("nothing fails");
        start.elapsed().as_nanos() as f64 / graph.len() as f64
    };
    run();
    figure((0..times).map(|_| run()).collect())
}

/// Submits while the only worker is held up and the ring never fills.
fn submit_alone(graph: &Graph, times: usize) -> Figure {
    let ring_tasks = graph.len() as usize + 1;
    let options = StreamOptions { ring_tasks, workers: 1, edge_pool: 1 << 20, ..options() };
    let stream = Stream::new(options).expect("valid options");
    let buffer = graph.buffer(&stream);
    let run = || {
        let open = Arc::new(AtomicBool::new(false));
        let gate = open.clone();
        let hold = Task::new("hold").priority(1).body(move |_| {
            while !gate.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_micros(100));
            }
        });
        stream.submit(hold).expect("there is room");
        let start = Instant::now();
        graph.submit(&stream, &buffer);
        let elapsed = start.elapsed();
        open.store(true, Ordering::Release);
        stream.wait_all().expect("nothing fails");
        elapsed.as_nanos() as f64 / graph.len() as f64
    };
    run();
    figure((0..times).map(|_| run()).collect())
}

fn with_openmp(peer: &Peer, graph: &Graph) -> Figure {
    let mut arguments = vec!["0"];
    arguments.extend(graph.peer.iter().map(String::as_str));
    figure(peer.run(&arguments, &[("OMP_NUM_THREADS", "2"), ("OMP_PROC_BIND", "true")]))
}

fn with_starpu(peer: &Peer, graph: &Graph) -> Figure {
    let arguments: Vec<&str> = graph.peer.iter().map(String::as_str).collect();
    figure(peer.run(&arguments, &[("STARPU_NCPU", "2"), ("STARPU_SILENT", "1")]))
}

/// By how much resident memory grows from a tenth of the tasks to the last one, in KiB.
fn memory(effort: Effort) -> Option<Row> {
    let tasks: u64 = match effort {
        Effort::Smoke => 1_000,
        Effort::Quick => 1_000_000,
        Effort::Full => 10_000_000,
    };
    let stream = Stream::new(options()).expect("the default options");
    let graph = Graph::independent(64);
    let buffer = graph.buffer(&stream);
    let mut warm = None;
    for round in 0..tasks / graph.len() {
        graph.submit(&stream, &buffer);
        if round == tasks / graph.len() / 10 {
            warm = resident_kib();
        }
    }
    stream.wait_all().expect("nothing fails");
    let median = resident_kib()?.saturating_sub(warm?) as f64;
    let figure = Figure { median, spread: 0.0 };
    Some(Row::new("stream", "resident memory", "kib_grown_after_warm_up", tasks, figure))
}

/// What the system says of this process; `None` where it says nothing.
fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
