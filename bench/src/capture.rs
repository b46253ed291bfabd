//! What capturing costs: one record a submission, into a file.

use std::fs::File;
use std::hint::black_box;

use syncline_deps::DepInputs;
use syncline_tensor::{Arg, BufferId, Dtype, TaskId, View, ViewError};
use syncline_trace::capture::{CaptureReader, CaptureWriter, TaskLabel};

use crate::Effort;
use crate::measure::{ns_per, timed};
use crate::row::Row;

const MATRIX: BufferId = BufferId(0);

/// Tasks of a tiled Cholesky factorisation, as views of one matrix.
fn cholesky(tiles: u64) -> Result<Vec<(&'static str, Vec<Arg>)>, ViewError> {
    let tile = 64;
    let whole = View::contiguous(Dtype::F32, &[tiles * tile, tiles * tile])?;
    let at = |row: u64, column: u64| {
        whole.slice(0, row * tile..(row + 1) * tile)?.slice(1, column * tile..(column + 1) * tile)
    };
    let read = |row, column| at(row, column).map(|view| Arg::input(MATRIX, view));
    let update = |row, column| at(row, column).map(|view| Arg::inout(MATRIX, view));
    let mut tasks = Vec::new();
    for k in 0..tiles {
        tasks.push(("potrf", vec![update(k, k)?]));
        for row in k + 1..tiles {
            tasks.push(("trsm", vec![read(k, k)?, update(row, k)?]));
        }
        for row in k + 1..tiles {
            tasks.push(("syrk", vec![read(row, k)?, update(row, row)?]));
            for column in k + 1..row {
                tasks.push(("gemm", vec![read(row, k)?, read(column, k)?, update(row, column)?]));
            }
        }
    }
    Ok(tasks)
}

/// Writes the tasks of a Cholesky factorisation to a file, beside the copy of their arguments as
/// they are in memory.
pub(crate) fn run(effort: Effort) -> Vec<Row> {
    let (tiles, times) = match effort {
        Effort::Smoke => (4, 1),
        Effort::Quick => (40, 11),
        Effort::Full => (40, 51),
    };
    let tasks = cholesky(tiles).expect("a matrix that fits");
    let count = tasks.len() as u64;
    let path = std::env::temp_dir().join(format!("syncline-bench-{}.sltrace", std::process::id()));
    let ours = ns_per(times, count, || {
        let mut writer = CaptureWriter::new(File::create(&path).expect("a disk")).expect("a disk");
        writer.buffer(MATRIX, 1 << 40, Some("A")).expect("a disk");
        let took = timed(|| {
            for (sequence, (name, args)) in (0..).zip(&tasks) {
                let inputs = DepInputs { args, deps: &[] };
                let task = TaskId::new(0, sequence);
                writer.submit(task, TaskLabel::named(name), &inputs).expect("a disk");
            }
            writer.flush().expect("a disk");
        });
        writer.finish().expect("a disk");
        took
    });
    let bytes = std::fs::read(&path).expect("written above");
    let read = CaptureReader::read(&bytes).expect("our own capture");
    assert_eq!(read.trace.tasks.len() as u64, count);
    std::fs::remove_file(&path).expect("written above");
    let mut copies: Vec<Arg> = Vec::with_capacity(tasks.len() * 3);
    let copy = ns_per(times, count, || {
        copies.clear();
        timed(|| tasks.iter().for_each(|(_, args)| copies.extend_from_slice(black_box(args))))
    });
    let work = format!("cholesky-{tiles}, {} bytes a task", bytes.len() as u64 / count);
    let row = Row::new("capture", work, "ns_per_task", count, ours);
    vec![row.beside("limit:copy the arguments", copy.median)]
}
