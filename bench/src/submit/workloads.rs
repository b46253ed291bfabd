//! The task graphs that are submitted.
//!
//! Each task's arguments are put together on the spot from views that were made before, as a
//! program would that keeps its tiles; so copying the views is part of the figures.

pub mod partial;

use syncline_deps::{
    DepGraph, DepInputs, Edge, OracleLimits, Reason, SubmitOptions, Submitter, reduced_graph,
};
use syncline_tensor::{Arg, BufferId, Dtype, View};

/// Tasks, and the edges that were found for them.
#[derive(Default)]
pub(super) struct Outcome {
    /// Tasks submitted.
    pub tasks: u64,
    /// Every edge, in order.
    pub edges: Vec<(u64, Edge)>,
}

impl Outcome {
    #[inline]
    fn submit(&mut self, submitter: &mut Submitter, args: &[Arg]) {
        let Self { tasks, edges } = self;
        let inputs = DepInputs { args, deps: &[] };
        let submitted = submitter.submit(inputs, |edge| edges.push((*tasks, edge)));
        submitted.expect("the benchmark's views fit");
        self.tasks += 1;
    }

    /// Returns the number of edges that no other edges imply.
    pub fn reduced(&self) -> usize {
        let mut graph = DepGraph::new((0..self.tasks).collect());
        let mut reasons = Vec::new();
        for edges in self.edges.chunk_by(|a, b| a.0 == b.0) {
            reasons.extend(edges.iter().map(|(_, edge)| Reason {
                pred: edge.pred.sequence() as u32,
                flags: edge.flags,
                kinds: edge.kinds,
                args: None,
            }));
            graph.push_reasons(edges[0].0 as u32, &mut reasons);
        }
        let reduced = reduced_graph(&graph, OracleLimits::default());
        reduced.expect("few tasks and few edges each").edges().len()
    }

    fn begin(&mut self) {
        self.tasks = 0;
        self.edges.clear();
    }
}

/// A graph that can be submitted again and again, to a new submitter each time.
pub(super) struct Workload {
    buffers: Vec<u64>,
    body: Box<dyn Fn(&mut Submitter, &mut Outcome)>,
}

impl Workload {
    /// Submits the whole graph to a new submitter.
    pub(super) fn run(&self, outcome: &mut Outcome) -> Submitter {
        let mut submitter = Submitter::new(SubmitOptions::default());
        for &bytes in &self.buffers {
            submitter.create_buffer(bytes);
        }
        outcome.begin();
        (self.body)(&mut submitter, outcome);
        submitter
    }

    /// Submits the whole graph once more to a submitter that knows it.
    pub(super) fn repeat(&self, submitter: &mut Submitter, outcome: &mut Outcome) {
        outcome.begin();
        (self.body)(submitter, outcome);
    }
}

const TILE: u64 = 64;

fn square(side: u64) -> (View, u64) {
    (View::contiguous(Dtype::F32, &[side, side]).expect("a small matrix"), side * side * 4)
}

fn part(matrix: &View, rows: std::ops::Range<u64>, columns: std::ops::Range<u64>) -> View {
    matrix.slice(0, rows).and_then(|rows| rows.slice(1, columns)).expect("inside the matrix")
}

/// `tiles` x `tiles` views of one matrix, row by row.
fn tiles_of(matrix: &View, tiles: u64) -> Vec<View> {
    let range = |at: u64| at * TILE..(at + 1) * TILE;
    (0..tiles * tiles).map(|at| part(matrix, range(at / tiles), range(at % tiles))).collect()
}

/// Tiled Cholesky of one matrix.
pub(super) fn cholesky(tiles: u64) -> Workload {
    let (matrix, bytes) = square(tiles * TILE);
    let views = tiles_of(&matrix, tiles);
    let at = move |row: u64, column: u64| views[(row * tiles + column) as usize];
    let buffer = BufferId(0);
    let body = move |submitter: &mut Submitter, outcome: &mut Outcome| {
        for k in 0..tiles {
            outcome.submit(submitter, &[Arg::inout(buffer, at(k, k))]);
            for i in k + 1..tiles {
                let args = [Arg::input(buffer, at(k, k)), Arg::inout(buffer, at(i, k))];
                outcome.submit(submitter, &args);
            }
            for i in k + 1..tiles {
                for j in k + 1..i {
                    let args = [
                        Arg::input(buffer, at(i, k)),
                        Arg::input(buffer, at(j, k)),
                        Arg::inout(buffer, at(i, j)),
                    ];
                    outcome.submit(submitter, &args);
                }
                let args = [Arg::input(buffer, at(i, k)), Arg::inout(buffer, at(i, i))];
                outcome.submit(submitter, &args);
            }
        }
    };
    Workload { buffers: vec![bytes], body: Box::new(body) }
}

/// Rounds over two matrices: each tile of one is computed from that tile and a border around it of
/// the other.
pub(super) fn stencil(tiles: u64, rounds: u64) -> Workload {
    let side = tiles * TILE;
    let (matrix, bytes) = square(side);
    let around = |at: u64| (at * TILE).saturating_sub(1)..((at + 1) * TILE + 1).min(side);
    let halos: Vec<View> = (0..tiles * tiles)
        .map(|at| part(&matrix, around(at / tiles), around(at % tiles)))
        .collect();
    let views = tiles_of(&matrix, tiles);
    let body = move |submitter: &mut Submitter, outcome: &mut Outcome| {
        for round in 0..rounds {
            let (from, to) = (BufferId(round % 2), BufferId((round + 1) % 2));
            for (halo, tile) in halos.iter().zip(&views) {
                let args = [Arg::input(from, *halo), Arg::output_existing(to, *tile)];
                outcome.submit(submitter, &args);
            }
        }
    };
    Workload { buffers: vec![bytes; 2], body: Box::new(body) }
}

/// A cheap stream of numbers, the same every time.
fn numbers() -> impl FnMut(u64) -> usize {
    let mut state = 1u64;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % below) as usize
    }
}

/// Tasks that read two of `buffers` buffers and update a third.
pub(super) fn random_buffers(buffers: u64, tasks: u64) -> Workload {
    let whole = View::contiguous(Dtype::F32, &[256]).expect("a small vector");
    let body = move |submitter: &mut Submitter, outcome: &mut Outcome| {
        let mut number = numbers();
        for _ in 0..tasks {
            let [a, b, c] = [0; 3].map(|_| BufferId(number(buffers) as u64));
            let args = [Arg::input(a, whole), Arg::input(b, whole), Arg::inout(c, whole)];
            outcome.submit(submitter, &args);
        }
    };
    Workload { buffers: vec![1024; buffers as usize], body: Box::new(body) }
}

/// Tasks that read two of the tiles of one matrix and update a third.
pub(super) fn random_tiles(tiles: u64, tasks: u64) -> Workload {
    let side = tiles.isqrt();
    let (matrix, bytes) = square(side * TILE);
    let views = tiles_of(&matrix, side);
    let buffer = BufferId(0);
    let body = move |submitter: &mut Submitter, outcome: &mut Outcome| {
        let mut number = numbers();
        for _ in 0..tasks {
            let [a, b, c] = [0; 3].map(|_| views[number(views.len() as u64)]);
            let args = [Arg::input(buffer, a), Arg::input(buffer, b), Arg::inout(buffer, c)];
            outcome.submit(submitter, &args);
        }
    };
    Workload { buffers: vec![bytes], body: Box::new(body) }
}
