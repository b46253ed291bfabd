//! `submit`: what finding the dependencies of a task costs.
//!
//! Bodies are empty: tasks go in, edges come out into a list. Every run starts with a new
//! submitter, so that meeting each view for the first time is part of the figure; rows named
//! `again` submit the same graph a second time. The peer is OpenMP (gcc) with the same graphs as
//! `depend` clauses on addresses, which it compares for equality only; it also runs the empty
//! bodies, on two threads.

mod workloads;

use std::time::Instant;

use crate::Effort;
use crate::measure::{Figure, figure};
use crate::peers::Peer;
use crate::row::Row;
use workloads::{Outcome, Workload};

/// Runs the benchmark.
pub(crate) fn run(effort: Effort) -> Vec<Row> {
    let (times, scale) = match effort {
        Effort::Smoke => (1, 100),
        Effort::Quick => (9, 1),
        Effort::Full => (25, 1),
    };
    let mut rows = beside_openmp(effort, times);
    for tiles in [16, 256, 4096] {
        let tasks = 200_000 / scale;
        let work = workloads::random_tiles(tiles, tasks);
        rows.push(row(&format!("random-tiles-{tiles}"), first(&work, times)));
        rows.push(row(&format!("random-tiles-{tiles} again"), again(&work, times)));
        rows.push(share_pruned(&format!("random-tiles-{tiles}"), &work));
    }
    rows.extend(overlaps_in_part(effort));
    if effort != Effort::Smoke {
        rows.extend(by_length(times.min(5)));
    }
    rows
}

/// Views that overlap in part: the time, the edges and the memory of a task must not grow.
fn overlaps_in_part(effort: Effort) -> Vec<Row> {
    let powers = match effort {
        Effort::Smoke => 2..=2,
        Effort::Quick => 3..=5,
        Effort::Full => 3..=6,
    };
    let mut rows = Vec::new();
    for (name, arguments) in workloads::partial::ALL {
        for power in powers.clone() {
            let work = workloads::partial::workload(arguments, 10u64.pow(power));
            let name = format!("{name} 10^{power}");
            rows.push(row(&name, first(&work, if power > 4 { 1 } else { 3 })));
            let mut outcome = Outcome::default();
            let stats = work.run(&mut outcome).stats();
            let once = |metric, median| {
                let figure = Figure { median, spread: 0.0 };
                Row::new("submit", &*name, metric, stats.tasks, figure)
            };
            rows.push(once("edges_per_task", stats.edges as f64 / stats.tasks as f64));
            if power <= 4 {
                let reduced = outcome.reduced() as f64;
                rows.push(once("reduced_edges_per_task", reduced / stats.tasks as f64));
            }
            rows.push(once("map_kib", stats.map.bytes as f64 / 1024.0));
        }
    }
    rows
}

/// The three graphs with a peer.
fn beside_openmp(effort: Effort, times: usize) -> Vec<Row> {
    let small = effort == Effort::Smoke;
    let tiles = if small { 6 } else { 40 };
    let (side, rounds) = if small { (3, 4) } else { (16, 100) };
    let tasks = if small { 200 } else { 100_000 };
    let works: [(String, Workload, [String; 3]); 3] = [
        (
            format!("cholesky-{tiles}"),
            workloads::cholesky(tiles),
            ["cholesky".into(), tiles.to_string(), String::new()],
        ),
        (
            format!("stencil-{side}x{side}"),
            workloads::stencil(side, rounds),
            ["stencil".into(), side.to_string(), rounds.to_string()],
        ),
        (
            "random-1024".into(),
            workloads::random_buffers(1024, tasks),
            ["random".into(), "1024".into(), tasks.to_string()],
        ),
    ];
    let peer = Peer::compile("openmp_depend.c", "gcc", &["-fopenmp"]);
    let mut rows = Vec::new();
    for (name, work, arguments) in &works {
        let ours = row(name, first(work, times));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        rows.push(match &peer {
            Some(peer) => {
                let theirs = figure(peer.run(&arguments, &[("OMP_NUM_THREADS", "2")]));
                ours.beside("openmp-gcc", theirs.median)
            }
            None => ours,
        });
        rows.push(row(&format!("{name} again"), again(work, times)));
        rows.push(share_pruned(name, work));
    }
    rows
}

/// The same graphs at a thousand to a million tasks.
fn by_length(times: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for power in 3..=6 {
        let tasks = 10u64.pow(power);
        let tiles = [0, 0, 0, 18, 39, 84, 181][power as usize];
        let works = [
            ("cholesky", workloads::cholesky(tiles)),
            ("stencil", workloads::stencil(16, tasks / 256)),
            ("random-1024", workloads::random_buffers(1024, tasks)),
        ];
        for (name, work) in works {
            rows.push(row(&format!("{name} 10^{power}"), first(&work, times)));
        }
    }
    rows
}

fn row(work: &str, (tasks, ours): (u64, Figure)) -> Row {
    Row::new("submit", work, "ns_per_task", tasks, ours)
}

fn first(work: &Workload, times: usize) -> (u64, Figure) {
    let mut outcome = Outcome::default();
    work.run(&mut outcome);
    let samples = (0..times).map(|_| {
        let start = Instant::now();
        let submitter = work.run(&mut outcome);
        let elapsed = start.elapsed();
        drop(submitter);
        elapsed.as_nanos() as f64 / outcome.tasks as f64
    });
    let samples = samples.collect();
    (outcome.tasks, figure(samples))
}

fn again(work: &Workload, times: usize) -> (u64, Figure) {
    let mut outcome = Outcome::default();
    let mut submitter = work.run(&mut outcome);
    let samples = (0..times).map(|_| {
        let start = Instant::now();
        work.repeat(&mut submitter, &mut outcome);
        start.elapsed().as_nanos() as f64 / outcome.tasks as f64
    });
    let samples = samples.collect();
    (outcome.tasks, figure(samples))
}

/// Which percentage of the edges the reachability window leaves out.
fn share_pruned(name: &str, work: &Workload) -> Row {
    let stats = work.run(&mut Outcome::default()).stats();
    let found = (stats.edges + stats.pruned).max(1);
    let median = 100.0 * stats.pruned as f64 / found as f64;
    Row::new("submit", name, "pruned_percent", found, Figure { median, spread: 0.0 })
}
