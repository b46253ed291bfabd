//! Syncline's benchmarks: every figure with a peer or a limit beside it, measured in the same run.
//!
//! `cargo xtask bench [NAME] [--quick] [--json FILE]` measures with all peers; `syncline bench` the
//! same without peers that have to be compiled or installed. One module a benchmark; each returns
//! [`Row`]s, and each also runs as a test with tiny sizes. `README.md` in this folder says what the
//! figures stand for.

mod capture;
mod checkpoint;
mod device;
mod explain;
mod machine;
mod measure;
mod metg;
mod peers;
mod replay;
mod reshard;
mod row;
mod stream;
mod submit;

pub use machine::describe as describe_machine;
pub use peers::leave_out as leave_out_peers;
pub use row::{Row, print, table, to_json, without_peers};

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Tiny sizes, to see that a benchmark works.
    Smoke,
    /// A minute for each benchmark.
    Quick,
    /// All sizes.
    Full,
}

/// A benchmark: its name and what runs it.
type Bench = (&'static str, fn(Effort) -> Vec<Row>);

const BENCHES: &[Bench] = &[
    // One a line, in the order of the README.
    ("submit", submit::run),
    ("capture", capture::run),
    ("replay", replay::run),
    ("metg", metg::run),
    ("stream", stream::run),
    ("explain", explain::run),
    ("reshard", reshard::run),
    ("device", device::run),
    ("checkpoint", checkpoint::run),
];

/// Runs this process as the part of a benchmark that it was started as; false where it was not.
pub fn run_as_part() -> bool {
    if reshard::is_pe() {
        reshard::run_pe();
    } else if checkpoint::is_rank() {
        checkpoint::run_rank();
    } else {
        return false;
    }
    true
}

/// The names of the benchmarks, in the order in which they run.
pub fn names() -> impl Iterator<Item = &'static str> {
    BENCHES.iter().map(|(name, _)| *name)
}

/// Runs the benchmarks called `wanted`, or all of them where none is, and calls `each` with the
/// rows of one.
pub fn run(wanted: &[String], effort: Effort, mut each: impl FnMut(&[Row])) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, run) in BENCHES {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            let measured = run(effort);
            each(&measured);
            rows.extend(measured);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_runs() {
        for (name, run) in BENCHES {
            let rows = run(Effort::Smoke);
            assert!(!rows.is_empty(), "{name} measured nothing");
            // Infinite is an answer: no task of this size does useful work half of the time.
            assert!(rows.iter().all(|row| !row.ours.is_nan()), "{name}: {rows:?}");
        }
    }
}
