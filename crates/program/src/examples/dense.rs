//! Programs over tiles of one or two grids.

use serde_json::json;
use syncline_trace::Trace;

use super::Settings;
use super::build::{Builder, Tensor};

/// Tiles of one matrix: `potrf` on the diagonal, `trsm` below it, `syrk` and `gemm` behind.
///
/// Only the lower triangle is read. Its entries are below 1 and the diagonal is the order of the
/// matrix, so that the symmetric matrix it stands for is positive definite.
pub(super) fn cholesky(settings: &Settings) -> Trace {
    let (tiles, tile) = (settings.get("tiles"), settings.get("tile"));
    let order = tiles * tile;
    let mut build = Builder::default();
    let matrix = build.random("A", &[order, order], settings.get("seed"));
    let at = |row: u64, column: u64| matrix.part(0, row * tile, tile).part(1, column * tile, tile);
    build.task("diagonal", "fill", json!({"value": order}), [matrix.diagonal().write()]);
    let right = json!({"left": false, "transpose": true});
    let minus = json!({"alpha": -1.0, "beta": 1.0});
    let minus_transposed = json!({"alpha": -1.0, "beta": 1.0, "transpose_b": true});
    for k in 0..tiles {
        build.task("potrf", "potrf", json!({}), [at(k, k).update()]);
        for i in k + 1..tiles {
            let args = [at(k, k).read(), at(i, k).update()];
            build.task("trsm", "trsm", right.clone(), args);
        }
        for i in k + 1..tiles {
            let args = [at(i, k).read(), at(i, i).update()];
            build.task("syrk", "syrk", minus.clone(), args);
            for j in k + 1..i {
                let args = [at(i, k).read(), at(j, k).read(), at(i, j).update()];
                build.task("gemm", "gemm", minus_transposed.clone(), args);
            }
        }
    }
    build.finish()
}

pub(super) fn cholesky_tasks(settings: &Settings) -> u64 {
    let tiles = settings.get("tiles");
    let (pairs, triples) = (tiles * (tiles - 1) / 2, tiles * (tiles - 1) * (tiles.max(2) - 2) / 6);
    1 + tiles + 2 * pairs + triples
}

/// Two grids with a border of one: each step reads a tile with its halo from one and writes the
/// tile of the other.
pub(super) fn stencil(settings: &Settings) -> Trace {
    let (tiles, tile) = (settings.get("tiles"), settings.get("tile"));
    let size = tiles * tile;
    let mut build = Builder::default();
    let grids = [
        build.random("even", &[size + 2, size + 2], settings.get("seed")),
        build.zeros("odd", &[size + 2, size + 2]),
    ];
    for step in 0..settings.get("steps") {
        let (source, target) = (grids[step as usize % 2], grids[(step as usize + 1) % 2]);
        for row in 0..tiles {
            for column in 0..tiles {
                let halo = source.part(0, row * tile, tile + 2).part(1, column * tile, tile + 2);
                let inner = target.part(0, row * tile + 1, tile).part(1, column * tile + 1, tile);
                build.task("stencil", "stencil", json!({}), [halo.read(), inner.write()]);
            }
        }
    }
    build.finish()
}

pub(super) fn stencil_tasks(settings: &Settings) -> u64 {
    settings.get("tiles").pow(2) * settings.get("steps")
}

/// Blocks of two arrays: in each stage a block and its partner become their sum and their
/// difference.
pub(super) fn butterfly(settings: &Settings) -> Trace {
    let (stages, block) = (settings.get("stages"), settings.get("block"));
    let blocks = 1u64 << stages;
    let mut build = Builder::default();
    let arrays = [
        build.random("even", &[blocks * block], settings.get("seed")),
        build.zeros("odd", &[blocks * block]),
    ];
    let at = |array: Tensor, index: u64| array.part(0, index * block, block);
    for stage in 0..stages {
        let (source, target) = (arrays[stage as usize % 2], arrays[(stage as usize + 1) % 2]);
        for low in (0..blocks).filter(|index| index >> stage & 1 == 0) {
            let high = low | 1 << stage;
            let (a, b) = (at(source, low).read(), at(source, high).read());
            build.task("add", "add", json!({}), [a, b, at(target, low).write()]);
            build.task("sub", "sub", json!({}), [a, b, at(target, high).write()]);
        }
    }
    build.finish()
}

pub(super) fn butterfly_tasks(settings: &Settings) -> u64 {
    settings.get("stages") << settings.get("stages")
}
