//! The task graphs of `stream`: which tiles each task reads and writes.

use syncline_device::Buffer;
use syncline_runtime::stream::{Stream, Task};
use syncline_tensor::{Access, Dtype, View};

/// A graph over the tiles of one buffer.
pub(super) struct Graph {
    /// What it is called.
    pub name: String,
    /// The same graph for the peer: its name there and sizes.
    pub peer: Vec<String>,
    tiles: u64,
    tasks: Vec<Vec<(Access, u32)>>,
    /// Views of the tiles: in a program these are made once, too.
    views: Vec<View>,
}

/// Bytes of a tile: a cache line, so that bodies of neighbours do not meet.
const TILE_BYTES: u64 = 64;

impl Graph {
    fn new(name: &str, sizes: &[u64], tiles: u64, tasks: Vec<Vec<(Access, u32)>>) -> Self {
        let view = |tile| {
            View::strided(Dtype::F64, tile * TILE_BYTES, &[TILE_BYTES / 8], &[8]).expect("small")
        };
        let mut peer = vec![name.to_owned()];
        peer.extend(sizes.iter().map(u64::to_string));
        let name = format!("{name}-{}", tasks.len());
        Self { name, peer, tiles, tasks, views: (0..tiles).map(view).collect() }
    }

    /// Tiled Cholesky of `n` by `n` tiles.
    pub(super) fn cholesky(n: u32) -> Self {
        let at = |row: u32, column: u32| row * n + column;
        let (read, update) = (Access::Input, Access::InOut);
        let mut tasks = Vec::new();
        for k in 0..n {
            tasks.push(vec![(update, at(k, k))]);
            tasks.extend((k + 1..n).map(|i| vec![(read, at(k, k)), (update, at(i, k))]));
            for i in k + 1..n {
                let gemm = |j| vec![(read, at(i, k)), (read, at(j, k)), (update, at(i, j))];
                tasks.extend((k + 1..i).map(gemm));
                tasks.push(vec![(read, at(i, k)), (update, at(i, i))]);
            }
        }
        Self::new("cholesky", &[n.into()], u64::from(n * n), tasks)
    }

    /// A three-point stencil between two rows.
    pub(super) fn stencil(width: u32, steps: u32) -> Self {
        let task = |step: u32, at: u32| {
            let (from, to) = (step % 2 * width, (step + 1) % 2 * width);
            let mut reads: Vec<_> = (at.saturating_sub(1)..=(at + 1).min(width - 1))
                .map(|near| (Access::Input, from + near))
                .collect();
            reads.push((Access::OutputExisting, to + at));
            reads
        };
        let tasks = (0..steps).flat_map(|step| (0..width).map(move |at| task(step, at))).collect();
        Self::new("stencil", &[width.into(), steps.into()], u64::from(2 * width), tasks)
    }

    /// Sweeps over a square in which each tile needs the ones above and to the left.
    pub(super) fn wavefront(side: u32, rounds: u32) -> Self {
        let task = |row: u32, column: u32| {
            let mut args = Vec::new();
            if row > 0 {
                args.push((Access::Input, (row - 1) * side + column));
            }
            if column > 0 {
                args.push((Access::Input, row * side + column - 1));
            }
            args.push((Access::InOut, row * side + column));
            args
        };
        let sweep = || (0..side).flat_map(|row| (0..side).map(move |column| task(row, column)));
        let tasks = (0..rounds).flat_map(|_| sweep()).collect();
        Self::new("wavefront", &[side.into(), rounds.into()], u64::from(side * side), tasks)
    }

    /// Every task waits for the one before it.
    pub(super) fn chain(tasks: u32) -> Self {
        let tasks_of = (0..tasks).map(|_| vec![(Access::InOut, 0)]).collect();
        Self::new("chain", &[tasks.into()], 1, tasks_of)
    }

    /// No task waits for another.
    pub(super) fn independent(tasks: u32) -> Self {
        let tasks_of = (0..tasks).map(|tile| vec![(Access::InOut, tile)]).collect();
        Self::new("independent", &[tasks.into()], tasks.into(), tasks_of)
    }

    /// How many tasks there are.
    pub(super) fn len(&self) -> u64 {
        self.tasks.len() as u64
    }

    /// The buffer that all tiles are in.
    pub(super) fn buffer(&self, stream: &Stream) -> Buffer {
        stream.buffer(self.tiles * TILE_BYTES).expect("memory for the tiles")
    }

    /// Submits every task, with a body that does nothing.
    pub(super) fn submit(&self, stream: &Stream, buffer: &Buffer) {
        for args in &self.tasks {
            let mut task = Task::new("task");
            for &(access, tile) in args {
                let view = &self.views[tile as usize];
                task = task.arg(access, buffer, view);
            }
            stream.submit(task.body(|_| ())).expect("a ring of any size is enough");
        }
    }
}
