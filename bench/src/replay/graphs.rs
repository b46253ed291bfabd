//! The graphs that are replayed.

use syncline_plan::{BufferSpec, TaskGraph, TaskSpec};
use syncline_tensor::{Arg, BufferId, View};

/// Bytes of a tile; no body touches them.
const TILE: u64 = 64;

/// Every graph with its name.
pub(super) fn all(small: bool) -> Vec<(String, TaskGraph)> {
    let (tiles, side, steps, wave) = if small { (5, 3, 4, 8) } else { (40, 16, 40, 100) };
    vec![
        (format!("cholesky-{tiles}, 2 lanes"), cholesky(tiles)),
        (format!("stencil-{side}x{side}, 2 lanes"), stencil(side, steps)),
        (format!("wavefront-{wave}x{wave}, 2 lanes"), wavefront(wave)),
    ]
}

/// A graph over one buffer of `tiles` tiles.
struct Tiles {
    graph: TaskGraph,
    buffer: BufferId,
}

impl Tiles {
    fn new(tiles: u64) -> Self {
        let mut graph = TaskGraph::new();
        let spec = BufferSpec::external("tiles", tiles * TILE);
        let buffer = graph.add_buffer(spec).expect("a new graph has room");
        Self { graph, buffer }
    }

    fn view(tile: u64) -> View {
        View::bytes_at(tile * TILE, TILE).expect("a small offset")
    }

    fn submit(&mut self, name: &str, reads: &[u64], writes: u64, is_update: bool) {
        let mut args: Vec<Arg> = Vec::with_capacity(reads.len() + 1);
        args.extend(reads.iter().map(|&tile| Arg::input(self.buffer, Self::view(tile))));
        args.push(match is_update {
            true => Arg::inout(self.buffer, Self::view(writes)),
            false => Arg::output_existing(self.buffer, Self::view(writes)),
        });
        self.graph.submit(&TaskSpec::new(name, &args)).expect("views inside the buffer");
    }
}

/// Tiled Cholesky.
pub(super) fn cholesky(tiles: u64) -> TaskGraph {
    let mut out = Tiles::new(tiles * tiles);
    let at = |row: u64, column: u64| row * tiles + column;
    for k in 0..tiles {
        out.submit("potrf", &[], at(k, k), true);
        for i in k + 1..tiles {
            out.submit("trsm", &[at(k, k)], at(i, k), true);
        }
        for i in k + 1..tiles {
            for j in k + 1..i {
                out.submit("gemm", &[at(i, k), at(j, k)], at(i, j), true);
            }
            out.submit("syrk", &[at(i, k)], at(i, i), true);
        }
    }
    out.graph
}

/// Five-point stencil over two grids in turns.
pub(super) fn stencil(side: u64, steps: u64) -> TaskGraph {
    let mut out = Tiles::new(2 * side * side);
    for step in 0..steps {
        let (from, to) = (step % 2 * side * side, (step + 1) % 2 * side * side);
        for row in 0..side {
            for column in 0..side {
                let mut reads = vec![from + row * side + column];
                if row > 0 {
                    reads.push(from + (row - 1) * side + column);
                }
                if row + 1 < side {
                    reads.push(from + (row + 1) * side + column);
                }
                if column > 0 {
                    reads.push(from + row * side + column - 1);
                }
                if column + 1 < side {
                    reads.push(from + row * side + column + 1);
                }
                out.submit("point", &reads, to + row * side + column, false);
            }
        }
    }
    out.graph
}

/// Each tile after its upper and left neighbours.
pub(super) fn wavefront(side: u64) -> TaskGraph {
    let mut out = Tiles::new(side * side);
    for row in 0..side {
        for column in 0..side {
            let mut reads = Vec::new();
            if row > 0 {
                reads.push((row - 1) * side + column);
            }
            if column > 0 {
                reads.push(row * side + column - 1);
            }
            out.submit("cell", &reads, row * side + column, true);
        }
    }
    out.graph
}

/// One after the other.
pub(super) fn chain(tasks: u64) -> TaskGraph {
    let mut out = Tiles::new(1);
    (0..tasks).for_each(|_| out.submit("link", &[], 0, true));
    out.graph
}

/// Each task updates one of 4,096 tiles from two others.
pub(super) fn random_tiles(tasks: u64) -> TaskGraph {
    const TILES: u64 = 4096;
    let mut out = Tiles::new(TILES);
    let mut number = numbers();
    for _ in 0..tasks {
        let [a, b, c] = [0; 3].map(|_| number(TILES));
        out.submit("update", &[a, b], c, true);
    }
    out.graph
}

/// Each task updates a slice of a buffer from two others, all of random lengths.
pub(super) fn random_slices(tasks: u64) -> TaskGraph {
    const BYTES: u64 = 1 << 20;
    let mut graph = TaskGraph::new();
    let spec = BufferSpec::external("slices", BYTES);
    let buffer = graph.add_buffer(spec).expect("a new graph has room");
    let mut number = numbers();
    for _ in 0..tasks {
        let [a, b, c] = [0; 3].map(|_| {
            let length = 1 + number(BYTES / 16);
            View::bytes_at(number(BYTES - length + 1), length).expect("inside the buffer")
        });
        let args = [Arg::input(buffer, a), Arg::input(buffer, b), Arg::inout(buffer, c)];
        graph.submit(&TaskSpec::new("update", &args)).expect("views inside the buffer");
    }
    graph
}

/// Returns a cheap stream of numbers below a limit, the same every time.
fn numbers() -> impl FnMut(u64) -> u64 {
    let mut state = 1u64;
    move |below| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    }
}
