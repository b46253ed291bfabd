//! Planning a reshard: the time before the first byte moves.
//!
//! There is no peer to run beside; the figures stand beside the time that a refit may spend on
//! planning.

use std::hint::black_box;
use std::time::Instant;

use syncline_layout::{
    Dims, Layout, Mesh, MeshLayout, PlanOptions, Schedule, ShardRule, TensorRule, TensorSpec,
    TransferPlan,
};
use syncline_tensor::Dtype;

use crate::Effort;
use crate::measure::{Figure, figure};
use crate::row::Row;

use super::BENCH;

/// Measures planning by tensors and PEs, and scheduling of a million transfers.
pub(super) fn run(effort: Effort) -> Vec<Row> {
    let mut rows = Vec::new();
    let shrink = if effort == Effort::Smoke { 100 } else { 1 };
    let times = if effort == Effort::Full { 9 } else { 3 };
    for shapes in [Shapes::Alike, Shapes::Unlike, Shapes::Uneven] {
        let small = Model { tensors: 20_000 / shrink, shapes };
        let (from, to) = (small.layout(&[4, 2, 2]), small.layout(&[8, 1, 2]));
        planning(&mut rows, "16 PEs", &small, (&from, &to), times, [100.0, 1_000.0]);
        let large = Model { tensors: 2_000 / shrink, shapes };
        let (from, to) = (large.layout(&[8, 4, 8]), large.layout(&[16, 1, 16]));
        planning(&mut rows, "256 PEs", &large, (&from, &to), times, [100.0, 3_000.0]);
    }
    rows.push(million(if effort == Effort::Smoke { 32 } else { 1024 }, times));
    rows
}

/// How many shapes a model's tensors have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shapes {
    /// A dozen.
    Alike,
    /// Each its own, all divided evenly.
    Unlike,
    /// Each its own, and no two divided in the same proportions.
    Uneven,
}

/// A model of many tensors.
struct Model {
    tensors: u64,
    shapes: Shapes,
}

impl Model {
    fn work(&self) -> String {
        let shapes = match self.shapes {
            Shapes::Alike => "",
            Shapes::Unlike => " of unlike shapes",
            Shapes::Uneven => " of unlike shapes, unevenly split",
        };
        format!("{} tensors{shapes}", self.tensors)
    }

    /// The layout over `[tp, pp, dp]`.
    fn layout(&self, sizes: &[u64; 3]) -> Layout {
        let spec = |index: u64| {
            let width = match self.shapes {
                Shapes::Alike => 64 * (1 + index % 6),
                Shapes::Unlike => 64 * (1 + index),
                Shapes::Uneven => 64 * (1 + index) + 1 + index % 63,
            };
            let part = if index.is_multiple_of(2) { "up" } else { "down" };
            TensorSpec {
                name: format!("model.layers.{}.mlp.{}.{part}.weight", index / 12, index % 12),
                dtype: Dtype::BF16,
                shape: Dims::from_slice(&[width, 512]).expect("two dimensions"),
            }
        };
        let specs: Vec<TensorSpec> = (0..self.tensors).map(spec).collect();
        let axes = ["tp", "pp", "dp"].iter().zip(sizes);
        let axes = axes.map(|(axis, &size)| (axis.to_string(), size)).collect();
        let rule = |pattern: &str, dim| TensorRule {
            pattern: pattern.to_owned(),
            shard: vec![ShardRule { dim, axis: "tp".to_owned(), ..Default::default() }],
            stage: None,
            tied_to: None,
        };
        let rules = vec![rule("**.up.weight", 0), rule("**.down.weight", 1)];
        let mesh = Mesh { axes, ..Default::default() };
        MeshLayout::new(mesh, rules).compile(&specs).expect("the rules fit")
    }
}

fn planning(
    rows: &mut Vec<Row>,
    pes: &str,
    model: &Model,
    (from, to): (&Layout, &Layout),
    times: usize,
    [part_ms, whole_ms]: [f64; 2],
) {
    let options = PlanOptions::default();
    let part = milliseconds(times, || {
        black_box(TransferPlan::for_rank(from, to, &options, 5).expect("the layouts fit"));
    });
    let work = |what| format!("{what}, {}, {pes}", model.work());
    let row = Row::new(BENCH, work("one PE's part"), "ms", model.tensors, part);
    rows.push(row.beside("budget", part_ms));
    let whole = milliseconds(times, || {
        black_box(TransferPlan::new(from, to, &options).expect("the layouts fit"));
    });
    let row = Row::new(BENCH, work("whole plan"), "ms", model.tensors, whole);
    rows.push(row.beside("budget", whole_ms));
}

/// Rows to columns over `pes` PEs: every PE has something for every other, of unlike sizes.
fn million(pes: u64, times: usize) -> Row {
    let size = pes * 3 / 2;
    let specs = [TensorSpec {
        name: "w".to_owned(),
        dtype: Dtype::F32,
        shape: Dims::from_slice(&[size, size * 4]).expect("two dimensions"),
    }];
    let layout = |dim| {
        let mesh = Mesh { axes: vec![("tp".to_owned(), pes)], ..Default::default() };
        let shard = vec![ShardRule { dim, axis: "tp".to_owned(), ..Default::default() }];
        let rule = TensorRule { pattern: "w".to_owned(), shard, stage: None, tied_to: None };
        MeshLayout::new(mesh, vec![rule]).compile(&specs).expect("the rule fits")
    };
    let options = PlanOptions::default();
    let plan = TransferPlan::new(&layout(0), &layout(1), &options).expect("the layouts fit");
    let seconds = milliseconds(times.min(3), || {
        black_box(Schedule::new(&plan, 64).expect("a good slot size"));
    });
    let work = format!("segment, pack and schedule, {pes} PEs");
    Row::new(BENCH, work, "ms", plan.ops().len() as u64, seconds).beside("budget", 10_000.0)
}

fn milliseconds(times: usize, mut run: impl FnMut()) -> Figure {
    let sample = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e3
    };
    figure((0..times).map(sample).collect())
}
