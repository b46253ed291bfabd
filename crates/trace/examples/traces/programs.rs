//! Programs whose tasks everybody knows, as traces.

use syncline_tensor::{Arg, BufferId, Dtype, View, ViewError};
use syncline_trace::{Trace, TraceBuffer, TraceTask};

/// Cholesky factorisation of a matrix of `tiles` x `tiles` tiles of `tile` x `tile` elements, tile
/// by tile in place.
pub fn cholesky(tiles: u64, tile: u64) -> Result<Trace, ViewError> {
    let (matrix, side) = (BufferId(0), tiles * tile);
    let whole = View::contiguous(Dtype::F32, &[side, side])?;
    let mut trace = Trace::default();
    trace.buffers.push(TraceBuffer::new(matrix, whole.bytes()).named("A"));
    let at = |row: u64, column: u64| {
        let rows = whole.slice(0, row * tile..(row + 1) * tile)?;
        rows.slice(1, column * tile..(column + 1) * tile)
    };
    for k in 0..tiles {
        let diagonal = at(k, k)?;
        push(&mut trace, "potrf", [Arg::inout(matrix, diagonal)]);
        for row in k + 1..tiles {
            let args = [Arg::input(matrix, diagonal), Arg::inout(matrix, at(row, k)?)];
            push(&mut trace, "trsm", args);
        }
        for row in k + 1..tiles {
            let left = Arg::input(matrix, at(row, k)?);
            push(&mut trace, "syrk", [left, Arg::inout(matrix, at(row, row)?)]);
            for column in k + 1..row {
                let right = Arg::input(matrix, at(column, k)?);
                push(&mut trace, "gemm", [left, right, Arg::inout(matrix, at(row, column)?)]);
            }
        }
    }
    Ok(trace)
}

/// `steps` sweeps of a stencil over a grid of `blocks` x `blocks` blocks: each task reads its block
/// and one element around it from one grid, and writes its block of the other.
pub fn stencil(blocks: u64, block: u64, steps: u64) -> Result<Trace, ViewError> {
    let side = blocks * block;
    let whole = View::contiguous(Dtype::F32, &[side, side])?;
    let grids = [BufferId(0), BufferId(1)];
    let mut trace = Trace::default();
    for (grid, name) in grids.into_iter().zip(["even", "odd"]) {
        trace.buffers.push(TraceBuffer::new(grid, whole.bytes()).named(name));
    }
    for step in 0..steps as usize {
        let (from, to) = (grids[step % 2], grids[(step + 1) % 2]);
        for row in 0..blocks {
            for column in 0..blocks {
                let inner = |index: u64| index * block..(index + 1) * block;
                let around = |index: u64| {
                    (index * block).saturating_sub(1)..((index + 1) * block + 1).min(side)
                };
                let halo = whole.slice(0, around(row))?.slice(1, around(column))?;
                let target = whole.slice(0, inner(row))?.slice(1, inner(column))?;
                push(
                    &mut trace,
                    "sweep",
                    [Arg::input(from, halo), Arg::output_existing(to, target)],
                );
            }
        }
    }
    Ok(trace)
}

fn push(trace: &mut Trace, name: &str, args: impl IntoIterator<Item = Arg>) {
    let id = trace.tasks.len() as u64;
    trace.tasks.push(TraceTask::new(id, name, args));
}
