//! Programs whose views overlap in part; in most of them they are new at every task.

use syncline_deps::Submitter;
use syncline_tensor::{Arg, BufferId, Dtype, View};

use super::{Outcome, Workload, numbers, part};

/// Bytes of a row and rows of the buffer, which is a matrix of bytes to some programs.
const SIDE: u64 = 1024;

/// The arguments of one task: by its number and a source of numbers below a limit.
type Arguments = fn(u64, &mut dyn FnMut(u64) -> u64) -> Vec<Arg>;

/// Every program, by name.
pub const ALL: [(&str, Arguments); 7] = [
    ("random slices", slices),
    ("random boxes", boxes),
    ("halos of 1 to 8", halos),
    ("sliding windows", windows),
    ("transposed tiles", transposed),
    ("rows against columns", rows_against_columns),
    ("rows against columns, few views", few_rows_against_columns),
];

/// The first `tasks` tasks of a program.
pub fn workload(arguments: Arguments, tasks: u64) -> Workload {
    let body = move |submitter: &mut Submitter, outcome: &mut Outcome| {
        let mut number = numbers();
        for at in 0..tasks {
            let args = arguments(at, &mut |below| number(below) as u64);
            outcome.submit(submitter, &args);
        }
    };
    Workload { buffers: vec![SIDE * SIDE; 2], body: Box::new(body) }
}

fn of_matrix(rows: std::ops::Range<u64>, columns: std::ops::Range<u64>) -> View {
    let matrix = View::contiguous(Dtype::U8, &[SIDE, SIDE]).expect("a small matrix");
    part(&matrix, rows, columns)
}

fn range(start: u64, length: u64) -> std::ops::Range<u64> {
    start..start + length
}

fn slices(_: u64, number: &mut dyn FnMut(u64) -> u64) -> Vec<Arg> {
    let mut slice = || {
        let length = 1 + number(SIDE * SIDE / 16);
        let start = number(SIDE * SIDE - length + 1);
        View::bytes_at(start, length).expect("inside the buffer")
    };
    let [a, b, c] = [slice(), slice(), slice()];
    vec![Arg::input(BufferId(0), a), Arg::input(BufferId(0), b), Arg::inout(BufferId(0), c)]
}

fn boxes(_: u64, number: &mut dyn FnMut(u64) -> u64) -> Vec<Arg> {
    let mut any = || {
        let (rows, columns) = (1 + number(200), 1 + number(200));
        let (row, column) = (number(SIDE - rows), number(SIDE - columns));
        of_matrix(range(row, rows), range(column, columns))
    };
    vec![Arg::input(BufferId(0), any()), Arg::inout(BufferId(0), any())]
}

fn halos(at: u64, number: &mut dyn FnMut(u64) -> u64) -> Vec<Arg> {
    const TILE: u64 = 64;
    const TILES: u64 = SIDE / TILE;
    let halo = 1 + number(8);
    let around = |at: u64| (at * TILE).saturating_sub(halo)..((at + 1) * TILE + halo).min(SIDE);
    let (row, column) = (at / TILES % TILES, at % TILES);
    let round = at / (TILES * TILES);
    let (from, to) = (BufferId(round % 2), BufferId((round + 1) % 2));
    let tile = of_matrix(range(row * TILE, TILE), range(column * TILE, TILE));
    vec![Arg::input(from, of_matrix(around(row), around(column))), Arg::output_existing(to, tile)]
}

fn windows(at: u64, _: &mut dyn FnMut(u64) -> u64) -> Vec<Arg> {
    let start = at * 64 % (SIDE * SIDE - 512);
    vec![Arg::inout(BufferId(0), View::bytes_at(start, 512).expect("inside the buffer"))]
}

fn transposed(at: u64, number: &mut dyn FnMut(u64) -> u64) -> Vec<Arg> {
    let other = View::contiguous(Dtype::U8, &[SIDE / 2, 2 * SIDE]).expect("a small matrix");
    let (row, column) = (64 * number(16), 64 * number(16));
    let tile = match at % 2 {
        0 => of_matrix(range(row, 64), range(column, 64)),
        _ => part(&other, range(row / 2, 32), range(column, 128)),
    };
    vec![Arg::inout(BufferId(0), tile.transpose(0, 1).expect("two dimensions"))]
}

fn rows_against_columns(_: u64, number: &mut dyn FnMut(u64) -> u64) -> Vec<Arg> {
    let (start, count) = (number(SIDE - 64), 1 + number(64));
    let view = match number(2) {
        0 => of_matrix(range(start, count), 0..SIDE),
        _ => of_matrix(0..SIDE, range(start, count)),
    };
    vec![Arg::inout(BufferId(0), view)]
}

/// The same views again and again: sixteen blocks of rows and sixteen of columns.
fn few_rows_against_columns(_: u64, number: &mut dyn FnMut(u64) -> u64) -> Vec<Arg> {
    let block = range(64 * number(SIDE / 64), 64);
    let view = match number(2) {
        0 => of_matrix(block, 0..SIDE),
        _ => of_matrix(0..SIDE, block),
    };
    vec![Arg::inout(BufferId(0), view)]
}
