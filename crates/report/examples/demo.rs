//! Writes a report of a made-up run, to view the page and to measure it:
//! `demo TILES LANES FILE [COMPARE]`.
//!
//! A Cholesky factorisation of 10 tiles a side has 230 tasks, one of 66 has 50,182. With `COMPARE`,
//! the page compares two runs, in the second of which every third `gemm` is slower.

#[path = "../tests/it/runs.rs"]
#[allow(dead_code)]
mod runs;

use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [tiles, lanes, file, rest @ ..] = args.as_slice() else {
        return Err("expected: TILES LANES FILE [COMPARE]".into());
    };
    let mut all = vec![runs::cholesky(tiles.parse()?, lanes.parse()?)];
    if !rest.is_empty() {
        all.push(runs::slower(&all[0]));
    }
    let began = Instant::now();
    let page = syncline_report::render(&all)?;
    let rendered = began.elapsed();
    std::fs::write(file, &page)?;
    let (tasks, edges) = (all[0].ops.len(), all[0].edges.len());
    println!("{tasks} tasks, {edges} edges: {} bytes rendered in {rendered:?}", page.len());
    Ok(())
}
