//! Classic task graphs, with exactly the edges that a textbook draws.

use std::collections::{BTreeMap, BTreeSet};

use syncline_deps::*;
use syncline_tensor::*;

use crate::support::*;

type Pairs = BTreeSet<(u64, u64)>;

fn found(steps: &[Step]) -> Pairs {
    pairs(steps).into_iter().collect()
}

#[test]
fn a_chain() {
    let steps: Vec<Step> = (0..20).map(|_| task(&[bytes(Access::InOut, 0, 0, 64)])).collect();
    assert_eq!(found(&steps), (0..19).map(|at| (at, at + 1)).collect());
    assert_eq!(described(&steps[..2]), ["0->1 raw+waw wait"]);
}

#[test]
fn a_diamond() {
    let steps = [
        task(&[bytes(Access::OutputExisting, 0, 0, 64)]),
        task(&[bytes(Access::Input, 0, 0, 64), bytes(Access::OutputExisting, 1, 0, 64)]),
        task(&[bytes(Access::Input, 0, 0, 64), bytes(Access::OutputExisting, 2, 0, 64)]),
        task(&[
            bytes(Access::Input, 1, 0, 64),
            bytes(Access::Input, 2, 0, 64),
            bytes(Access::InOut, 0, 0, 64),
        ]),
    ];
    assert_eq!(
        described(&steps),
        ["0->1 raw wait", "0->2 raw wait", "1->3 raw+war wait", "2->3 raw+war wait"]
    );
}

#[test]
fn fan_out_and_fan_in() {
    for width in [3u64, 65, 200, 1000] {
        let mut steps = vec![task(&[bytes(Access::OutputExisting, 0, 0, 64)])];
        for at in 0..width {
            let slice = bytes(Access::OutputExisting, 1, 8 * at, 8 * at + 8);
            steps.push(task(&[bytes(Access::Input, 0, 0, 64), slice]));
        }
        steps.push(task(&[bytes(Access::Input, 1, 0, 8 * width)]));
        steps.push(task(&[bytes(Access::InOut, 0, 0, 64)]));
        let mut expected = Pairs::new();
        for middle in 1..=width {
            expected.extend([(0, middle), (middle, width + 1), (middle, width + 2)]);
        }
        assert_eq!(found(&steps), expected, "{width} in the middle");
    }
}

fn tile(matrix: &View, rows: u64, row: u64, column: u64) -> View {
    let size = matrix.shape()[0] / rows;
    let band = matrix.slice(0, size * row..size * (row + 1)).unwrap();
    band.slice(1, size * column..size * (column + 1)).unwrap()
}

#[test]
fn tiled_cholesky() {
    let tiles = 7;
    let matrix = View::contiguous(Dtype::F32, &[8 * tiles, 8 * tiles]).unwrap();
    let arg =
        |access, row, column| Arg::new(access, BufferId(0), tile(&matrix, tiles, row, column));
    let (mut steps, mut expected) = (Vec::new(), Pairs::new());
    // The task that wrote each tile last.
    let mut writer: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let mut add = |reads: &[(u64, u64)], writes: (u64, u64)| {
        let this = steps.len() as u64;
        let mut args: Vec<Arg> = reads.iter().map(|&(i, j)| arg(Access::Input, i, j)).collect();
        args.push(arg(Access::InOut, writes.0, writes.1));
        for place in reads.iter().chain([&writes]) {
            expected.extend(writer.get(place).map(|&pred| (pred, this)));
        }
        writer.insert(writes, this);
        steps.push(task(&args));
    };
    for k in 0..tiles {
        add(&[], (k, k));
        for i in k + 1..tiles {
            add(&[(k, k)], (i, k));
        }
        for i in k + 1..tiles {
            for j in k + 1..=i {
                if i == j { add(&[(i, k)], (i, j)) } else { add(&[(i, k), (j, k)], (i, j)) }
            }
        }
    }
    assert_eq!(steps.len() as u64, tiles * (tiles + 1) * (tiles + 2) / 6);
    assert_eq!(found(&steps), expected);
}

/// Every tile reads itself and its surroundings from one matrix and writes itself in another, then
/// the other way round.
#[test]
fn a_halo_stencil_waits_for_its_nine_neighbours_and_no_more() {
    let (tiles, size, rounds) = (5u64, 6u64, 6u64);
    let edge = tiles * size;
    let matrix = View::contiguous(Dtype::F32, &[edge, edge]).unwrap();
    let around = |at: u64| (at * size).saturating_sub(1)..(at * size + size + 1).min(edge);
    let (mut steps, mut expected) = (Vec::new(), Pairs::new());
    for round in 0..rounds {
        for at in 0..tiles * tiles {
            let (row, column) = (at / tiles, at % tiles);
            let halo = matrix.slice(0, around(row)).unwrap().slice(1, around(column)).unwrap();
            let (from, to) = (BufferId(round % 2), BufferId((round + 1) % 2));
            steps.push(task(&[
                Arg::input(from, halo),
                Arg::output_existing(to, tile(&matrix, tiles, row, column)),
            ]));
            if round > 0 {
                for other in 0..tiles * tiles {
                    let (other_row, other_column) = (other / tiles, other % tiles);
                    if row.abs_diff(other_row) <= 1 && column.abs_diff(other_column) <= 1 {
                        let all = tiles * tiles;
                        expected.insert(((round - 1) * all + other, round * all + at));
                    }
                }
            }
        }
    }
    assert_eq!(found(&steps), expected);
}

#[test]
fn row_blocks_meet_column_blocks() {
    let matrix = View::contiguous(Dtype::F32, &[16, 16]).unwrap();
    let block = |access, dim, at: u64| {
        Arg::new(access, BufferId(0), matrix.slice(dim, 4 * at..4 * at + 4).unwrap())
    };
    let mut steps = Vec::new();
    for at in 0..4 {
        steps.push(task(&[block(Access::OutputExisting, 0, at)]));
    }
    for at in 0..4 {
        steps.push(task(&[block(Access::InOut, 1, at)]));
    }
    let expected: Pairs = (0..4).flat_map(|row| (4..8).map(move |column| (row, column))).collect();
    assert_eq!(found(&steps), expected);
    // Separate columns are independent, also when they do not touch.
    let apart = [
        task(&[block(Access::OutputExisting, 1, 0)]),
        task(&[block(Access::OutputExisting, 1, 2)]),
    ];
    assert_eq!(found(&apart), Pairs::new());
}

#[test]
fn a_grid_of_tiles_has_independent_writers_and_a_reader_of_all() {
    let matrix = View::contiguous(Dtype::F64, &[16, 16]).unwrap();
    let mut steps: Vec<Step> = (0..4)
        .map(|at| task(&[Arg::output_existing(BufferId(0), tile(&matrix, 2, at / 2, at % 2))]))
        .collect();
    steps.push(task(&[Arg::input(BufferId(0), matrix.transpose(0, 1).unwrap())]));
    assert_eq!(found(&steps), (0..4).map(|writer| (writer, 4)).collect());
}

#[test]
fn mixed_dtypes_meet_in_bytes() {
    let view = |dtype, offset, count: u64| {
        let size = Dtype::bytes(dtype) as i64;
        View::strided(dtype, offset, &[count], &[size]).unwrap()
    };
    let steps = [
        task(&[Arg::output_existing(BufferId(0), view(Dtype::F32, 0, 16))]),
        task(&[Arg::output_existing(BufferId(0), view(Dtype::F32, 64, 16))]),
        task(&[Arg::input(BufferId(0), view(Dtype::U8, 63, 1))]),
        task(&[Arg::input(BufferId(0), view(Dtype::U8, 64, 1))]),
        task(&[Arg::input(BufferId(0), view(Dtype::F64, 56, 2))]),
        task(&[Arg::inout(BufferId(0), view(Dtype::BF16, 62, 1))]),
    ];
    assert_eq!(found(&steps), Pairs::from([(0, 2), (1, 3), (0, 4), (1, 4), (2, 5), (4, 5)]));
}

#[test]
fn program_a_reads_shared_inputs_and_writes_apart() {
    for access in [Access::OutputExisting, Access::Output] {
        let mut steps = Vec::new();
        for at in 0..20 {
            let mut args: Vec<Arg> = (0..6)
                .map(|input| bytes(Access::Input, input % 4, 64 * input, 64 * input + 64))
                .collect();
            for output in 0..9u64 {
                let slice = 4096 + (output / 4 * 20 + at) * 16;
                args.push(bytes(access, 4 + output % 4, slice, slice + 16));
            }
            steps.push(task(&args));
        }
        assert_eq!(described(&steps), [""; 0]);
    }
}

#[test]
fn program_b_is_a_chain() {
    let whole = View::contiguous(Dtype::F32, &[32, 32]).unwrap();
    let steps: Vec<Step> = (0..20).map(|_| task(&[Arg::inout(BufferId(0), whole)])).collect();
    assert_eq!(pairs(&steps).len(), 19);
}

#[test]
fn program_c_has_six_creator_edges() {
    let [a, b, c, d, e, g, f] = [0, 1, 2, 3, 4, 5, 6];
    let arg = |access, buffer| bytes(access, buffer, 0, 64);
    let (input, output) = (|at| arg(Access::Input, at), |at| arg(Access::Output, at));
    let steps = [
        task(&[input(a), input(b), output(c)]),
        Step::Enter(ScopeKind::Auto),
        task(&[input(c), output(d)]),
        task(&[input(c), output(e)]),
        task(&[input(d), input(e), output(g)]),
        task(&[input(g), input(c), arg(Access::OutputExisting, f)]),
        Step::Leave,
    ];
    let edges = ["0->1", "0->2", "0->4", "1->3", "2->3", "3->4"];
    let expected = edges.map(|edge| format!("{edge} creator+raw wait+retain"));
    assert_eq!(described(&steps), expected);
}

#[test]
fn program_d_has_all_explicit_edges() {
    for kind in [ScopeKind::Auto, ScopeKind::Manual] {
        let mut steps = vec![Step::Enter(kind)];
        for at in 0..64 {
            steps.push(task(&[bytes(Access::OutputExisting, 0, 8 * at, 8 * at + 8)]));
        }
        for at in 0..64 {
            let args = vec![bytes(Access::OutputExisting, 1, 8 * at, 8 * at + 8)];
            steps.push(Step::Task { args, deps: (0..64).collect() });
        }
        assert_eq!(pairs(&steps).len(), 4096);
        assert!(described(&steps).iter().all(|line| line.ends_with("explicit wait")));
    }
}
