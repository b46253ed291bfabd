//! `stream`: submitting and running tasks at the same time.
//!
//! Empty bodies, submitted and run to the end; the same with the workers kept busy elsewhere, so that submission alone
//! is measured; and the smallest task at which half of the machine still does useful work (METG, as Task Bench defines
//! it). The peer is OpenMP (gcc) with the same graphs as `depend` clauses.

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

/// Runs the benchmark.
pub fn run(effort: Effort) -> Vec<Row> {
    let peer = Peer::compile("openmp_stream.c", "gcc", &["-fopenmp"]);
    let times = if effort == Effort::Smoke { 1 } else { 7 };
    let mut rows = Vec::new();
    for graph in graphs_of(effort) {
        let ours = to_the_end(&graph, times);
        let row = Row::new("stream", &graph.name, "ns_per_task", graph.len(), ours);
        rows.push(match &peer {
            Some(peer) => row.beside("openmp-gcc", openmp(peer, 0, &graph).median),
            None => row,
        });
    }
    let alone = if effort == Effort::Smoke { Graph::cholesky(6) } else { Graph::cholesky(40) };
    let name = format!("{} submit alone", alone.name);
    rows.push(Row::new("stream", name, "ns_per_task", alone.len(), submit_alone(&alone, times)));
    rows.extend(metg(effort, peer.as_ref()));
    rows
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
    let run = || run_once(&stream, graph, &buffer, 0).as_nanos() as f64 / graph.len() as f64;
    run();
    figure((0..times).map(|_| run()).collect())
}

fn run_once(
    stream: &Stream,
    graph: &Graph,
    buffer: &syncline_runtime::stream::StreamBuffer,
    iterations: u64,
) -> Duration {
    let start = Instant::now();
    graph.submit(stream, buffer, iterations);
    stream.wait_all().expect("nothing fails");
    start.elapsed()
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
        graph.submit(&stream, &buffer, 0);
        let elapsed = start.elapsed();
        open.store(true, Ordering::Release);
        stream.wait_all().expect("nothing fails");
        elapsed.as_nanos() as f64 / graph.len() as f64
    };
    run();
    figure((0..times).map(|_| run()).collect())
}

fn openmp(peer: &Peer, iterations: u64, graph: &Graph) -> Figure {
    let iterations = iterations.to_string();
    let mut arguments = vec![iterations.as_str()];
    arguments.extend(graph.peer.iter().map(String::as_str));
    figure(peer.run(&arguments, &[("OMP_NUM_THREADS", "2"), ("OMP_PROC_BIND", "true")]))
}

/// The granularity at which efficiency falls to one half, in microseconds, for us and for the peer.
fn metg(effort: Effort, peer: Option<&Peer>) -> Vec<Row> {
    let steps = if effort == Effort::Smoke { 20 } else { 1000 };
    let width = 2;
    let graphs = [
        Graph::trivial(width, steps),
        Graph::stencil(width, steps),
        Graph::wavefront(width, steps / width),
    ];
    let mut rows = Vec::new();
    for graph in graphs {
        let stream = Stream::new(options()).expect("the default options");
        let buffer = graph.buffer(&stream);
        let ours = |iterations| {
            let samples = (0..5).map(|_| run_once(&stream, &graph, &buffer, iterations));
            let median = figure(samples.map(|time| time.as_nanos() as f64).collect()).median;
            median / graph.len() as f64
        };
        let measured = smallest_at_half(&ours, &|iterations| one_thread(iterations));
        let figure = Figure { median: measured / 1000.0, spread: 0.0 };
        let row = Row::new(
            "stream",
            format!("metg {}", graph.name),
            "us_granularity",
            graph.len(),
            figure,
        );
        rows.push(match peer {
            Some(peer) if effort != Effort::Smoke => {
                let theirs = |iterations| openmp(peer, iterations, &graph).median;
                let theirs = smallest_at_half(&theirs, &|iterations| one_thread(iterations));
                row.beside("openmp-gcc", theirs / 1000.0)
            }
            _ => row,
        });
    }
    rows
}

/// Nanoseconds that a body takes by itself.
fn one_thread(iterations: u64) -> f64 {
    let count = 20;
    let samples = (0..5).map(|_| {
        let start = Instant::now();
        (0..count).for_each(|_| graphs::work(std::hint::black_box(iterations)));
        start.elapsed().as_nanos() as f64 / f64::from(count)
    });
    figure(samples.collect()).median
}

/// Halves the body from 2^14 iterations on; the granularity (time a task on one processor) where the share of useful
/// work crosses one half, between the two sizes around it.
fn smallest_at_half(ns_per_task: &dyn Fn(u64) -> f64, body_ns: &dyn Fn(u64) -> f64) -> f64 {
    const PROCESSORS: f64 = 2.0;
    let mut before: Option<(f64, f64)> = None;
    for power in (2..=14).rev() {
        let granularity = ns_per_task(1 << power) * PROCESSORS;
        let efficiency = body_ns(1 << power) / granularity;
        if efficiency < 0.5 {
            return match before {
                Some((above, size)) => {
                    let share = (0.5 - efficiency) / (above - efficiency);
                    granularity + share * (size - granularity)
                }
                None => granularity,
            };
        }
        before = Some((efficiency, granularity));
    }
    before.map_or(0.0, |(_, granularity)| granularity)
}
