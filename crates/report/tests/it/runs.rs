//! Runs to test with: random ones, ones with clocks that disagree, and large ones.

use syncline_deps::EdgeKinds;
use syncline_report::{Allocation, RunEdge, RunLane, RunOp, RunOpKind, RunRecord, RunTiming};
use syncline_testing::Rng;

const NAMES: [&str; 5] = ["potrf", "trsm", "syrk", "gemm", "copy"];

pub fn edge(pred: u32, succ: u32) -> RunEdge {
    RunEdge { pred, succ, kinds: EdgeKinds::RAW, region: format!("A[{pred}:{succ}]") }
}

pub fn timed(task: u64, name: &str, lane: u32, start_ns: u64, end_ns: u64) -> RunOp {
    let kind = if name == "copy" { RunOpKind::Copy } else { RunOpKind::Compute };
    RunOp { timing: Some(RunTiming { lane, start_ns, end_ns }), ..RunOp::new(task, name, kind) }
}

/// A run as a scheduler would make it: ops in order, each after what it waits for and its lane's
/// last op, with random delays and lengths, zero among them.
pub fn random_run(rng: &mut Rng, ops: usize, lanes: usize) -> RunRecord {
    let mut run = RunRecord::new("random");
    run.lanes = (0..lanes).map(|lane| RunLane::new(format!("worker {lane}"), "cpu")).collect();
    let origin = rng.range(0..1_000_000);
    let mut free = vec![origin; lanes];
    let reach = 1 + rng.below(40);
    for op in 0..ops {
        let mut ready = origin;
        for _ in 0..rng.below(4).min(op) {
            let pred = op - 1 - rng.below(reach.min(op));
            ready = ready.max(run.ops[pred].timing.map_or(0, |timing: RunTiming| timing.end_ns));
            run.edges.push(edge(pred as u32, op as u32));
        }
        let lane = rng.below(lanes);
        let delay = if rng.one_in(2) { 0 } else { rng.range(0..50) };
        let start_ns = ready.max(free[lane]) + delay;
        let end_ns = start_ns + if rng.one_in(5) { 0 } else { rng.range(1..1_000) };
        free[lane] = end_ns;
        let name: &str = rng.pick::<&str>(&NAMES);
        let mut op = timed(op as u64, name, lane as u32, start_ns, end_ns);
        op.args = vec![format!("inout A[{}:{}]", lane, lane + 1)];
        run.ops.push(op);
    }
    run
}

/// A run whose times mean nothing: ops overlap on their lanes and start before what they wait for;
/// some never ran.
pub fn senseless_run(rng: &mut Rng, ops: usize, lanes: usize) -> RunRecord {
    let mut run = random_run(rng, ops, lanes);
    for op in &mut run.ops {
        let start_ns = rng.range(0..5_000);
        let timing = RunTiming {
            lane: rng.below(lanes) as u32,
            start_ns,
            end_ns: start_ns + rng.range(0..900),
        };
        op.timing = (!rng.one_in(8)).then_some(timing);
    }
    run
}

/// Tiles of a Cholesky factorisation with `tiles` a side, scheduled greedily: large, and shaped
/// like real work.
pub fn cholesky(tiles: u32, lanes: usize) -> RunRecord {
    let mut run = RunRecord::new(format!("cholesky, {tiles} x {tiles} tiles"));
    run.lanes = (0..lanes).map(|lane| RunLane::new(format!("worker {lane}"), "cpu:0")).collect();
    run.lanes.push(RunLane::new("copy", "cpu:1"));
    let mut builder =
        Builder { run, writer: vec![None; (tiles * tiles) as usize], free: vec![0; lanes], tiles };
    for k in 0..tiles {
        builder.task("potrf", 9_000, &[], (k, k));
        for i in k + 1..tiles {
            builder.task("trsm", 12_000, &[(k, k)], (i, k));
        }
        for i in k + 1..tiles {
            builder.task("syrk", 11_000, &[(i, k)], (i, i));
            for j in k + 1..i {
                builder.task("gemm", 20_000, &[(i, k), (j, k)], (i, j));
            }
        }
    }
    builder.finish()
}

struct Builder {
    run: RunRecord,
    writer: Vec<Option<u32>>,
    free: Vec<u64>,
    tiles: u32,
}

impl Builder {
    fn task(&mut self, name: &str, length_ns: u64, reads: &[(u32, u32)], writes: (u32, u32)) {
        let op = self.run.ops.len() as u32;
        let mut ready = 0;
        for &(row, column) in reads.iter().chain([&writes]) {
            let Some(pred) = self.writer[(row * self.tiles + column) as usize] else { continue };
            ready = ready.max(self.run.ops[pred as usize].timing.map_or(0, |timing| timing.end_ns));
            let kinds = if (row, column) == writes {
                EdgeKinds::RAW | EdgeKinds::WAW
            } else {
                EdgeKinds::RAW
            };
            let region = tile("A", row, column);
            self.run.edges.push(RunEdge { pred, succ: op, kinds, region });
        }
        let lane = (0..self.free.len()).min_by_key(|&lane| self.free[lane].max(ready)).unwrap_or(0);
        let start_ns = self.free[lane].max(ready) + if op == 0 { 0 } else { 200 };
        let end_ns = start_ns + length_ns + u64::from(op * 7919 % 1_000);
        self.free[lane] = end_ns;
        self.writer[(writes.0 * self.tiles + writes.1) as usize] = Some(op);
        let mut op = timed(u64::from(op), name, lane as u32, start_ns, end_ns);
        op.args = reads
            .iter()
            .map(|&(row, column)| format!("input {}", tile("A", row, column)))
            .collect();
        op.args.push(format!("inout {}", tile("A", writes.0, writes.1)));
        self.run.ops.push(op);
    }

    fn finish(mut self) -> RunRecord {
        let end_ns = self.free.iter().copied().max().unwrap_or(0);
        for row in 0..self.tiles {
            let start_ns = u64::from(row) * end_ns / u64::from(self.tiles) / 2;
            self.run.memory.push(Allocation {
                name: format!("A[{row}]"),
                place: "cpu:0".into(),
                bytes: u64::from(self.tiles) * 65_536,
                offset: None,
                start_ns,
                end_ns: end_ns - u64::from(self.tiles - row) * 100,
            });
        }
        // The factor's first tiles leave for another device, over one copy lane.
        let lane = self.run.lanes.len() as u32 - 1;
        let mut free = 0;
        for column in 0..self.tiles {
            let Some(pred) = self.writer[(column * self.tiles + column) as usize] else { continue };
            let ready = self.run.ops[pred as usize].timing.map_or(0, |timing| timing.end_ns);
            let succ = self.run.ops.len() as u32;
            let start_ns = ready.max(free) + 500;
            free = start_ns + 6_000;
            let mut op = timed(u64::from(succ), "copy", lane, start_ns, free);
            op.bytes = 65_536;
            self.run.ops.push(op);
            let region = tile("A", column, column);
            self.run.edges.push(RunEdge { pred, succ, kinds: EdgeKinds::RAW, region });
        }
        self.run
    }
}

fn tile(name: &str, row: u32, column: u32) -> String {
    let (row, column) = (row * 128, column * 128);
    format!("{name}[{row}:{}, {column}:{}]", row + 128, column + 128)
}

/// The same run after a change that made every third `gemm` slower, and all that follows later.
pub fn slower(run: &RunRecord) -> RunRecord {
    let mut after = RunRecord { title: format!("{}, after", run.title), ..run.clone() };
    for op in after.ops.iter_mut() {
        let slow = op.name == "gemm" && op.task.is_multiple_of(3);
        if let Some(timing) = &mut op.timing {
            timing.start_ns = timing.start_ns * 5 / 4;
            let length_ns = timing.end_ns * 5 / 4 - timing.start_ns;
            timing.end_ns = timing.start_ns + if slow { length_ns } else { length_ns * 4 / 5 };
        }
    }
    after
}
