//! METG of the same patterns where tasks are submitted while others run: discovery is part of the
//! figure.
//!
//! Every task writes a tile of its own and reads the tiles of its predecessors, as the peer does
//! with `depend` clauses.

use syncline_runtime::stream::{Stream, StreamOptions, Task};
use syncline_tensor::{Dtype, View};

use super::{
    CORES, POWER_MAX, Pattern, Point, best_ns, compute, lengths, metg, peak, peer_by_length, point,
};
use crate::Effort;
use crate::measure::figure;
use crate::peers::Peer;
use crate::replay::runners::Edges;
use crate::row::Row;

/// Bytes of a tile: a cache line.
const TILE_BYTES: u64 = 64;

/// One row for each pattern, beside OpenMP where that can be compiled.
pub(crate) fn rows(effort: Effort) -> Vec<Row> {
    let (times, steps, power_max) = match effort {
        Effort::Smoke => (1, 10, 4),
        Effort::Quick => (3, 1_000, 12),
        Effort::Full => (5, 1_000, POWER_MAX),
    };
    let openmp = Peer::compile("metg_openmp.cpp", "g++", &["-std=c++17", "-fopenmp"]);
    let mut rows = Vec::new();
    for pattern in Pattern::ALL {
        let pairs = pattern.edges(CORES as u32, steps);
        let edges = Edges::of_pairs(CORES * steps as usize, &pairs);
        let ours =
            figure((0..times).map(|_| metg(&by_length(&pairs, &edges, power_max))).collect());
        let name = format!("metg {}", pattern.name());
        let row = Row::new("stream", name, "metg50_ns", edges.preds.len() as u64, ours);
        rows.push(match &openmp {
            Some(peer) => {
                let theirs = (0..times).map(|_| metg(&peer_by_length(peer, &edges, power_max)));
                row.beside("OpenMP tasks (gcc)", figure(theirs.collect()).median)
            }
            None => row,
        });
    }
    rows
}

fn by_length(pairs: &[(u32, u32)], edges: &Edges, power_max: u32) -> Vec<Point> {
    let (peak, tasks) = (peak(), edges.preds.len());
    let stream = Stream::new(StreamOptions::default()).expect("the default options");
    let buffer = stream.buffer(tasks as u64 * TILE_BYTES).expect("memory for the tiles");
    let view = |at: usize| View::strided(Dtype::F64, at as u64 * TILE_BYTES, &[8], &[8]);
    let views: Vec<View> = (0..tasks).map(|at| view(at).expect("small")).collect();
    let mut preds = vec![Vec::new(); tasks];
    pairs.iter().for_each(|&(pred, succ)| preds[succ as usize].push(pred as usize));
    lengths(power_max)
        .map(|length| {
            let elapsed = best_ns(|| {
                for (at, preds) in preds.iter().enumerate() {
                    let mut task = Task::new("task");
                    for &pred in preds {
                        task = task.input(&buffer, views[pred]);
                    }
                    task = task.output_existing(&buffer, views[at]);
                    stream.submit(task.body(move |_| compute(length))).expect("a valid task");
                }
                stream.wait_all().expect("nothing fails");
            });
            point(length, tasks, elapsed, peak)
        })
        .collect()
}
