//! Syncline's benchmarks: every figure with a peer or a limit beside it, measured in the same run.
//!
//! `cargo xtask bench [NAME] [--quick] [--json FILE]`. One module a benchmark; each returns [`Row`]s, and each also
//! runs as a test with tiny sizes. `README.md` in this folder says what the figures stand for.

mod capture;
mod checkpoint;
mod device;
mod machine;
mod measure;
mod metg;
mod peers;
mod replay;
mod reshard;
mod reshard_plan;
mod row;
mod stream;
mod submit;

use std::process::ExitCode;

use row::Row;

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
    ("reshard-plan", reshard_plan::run),
    ("reshard", reshard::run),
    ("device", device::run),
    ("checkpoint", checkpoint::run),
];

fn main() -> ExitCode {
    if reshard::is_pe() {
        reshard::run_pe();
        return ExitCode::SUCCESS;
    }
    if checkpoint::is_rank() {
        checkpoint::run_rank();
        return ExitCode::SUCCESS;
    }
    let mut names = Vec::new();
    let mut json = None;
    let mut effort = Effort::Full;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => effort = Effort::Quick,
            "--smoke" => effort = Effort::Smoke,
            "--json" => json = arguments.next(),
            name if BENCHES.iter().any(|(known, _)| *known == name) => names.push(name.to_owned()),
            other => {
                let known: Vec<_> = BENCHES.iter().map(|(name, _)| *name).collect();
                eprintln!("no benchmark `{other}`: expected one of {}", known.join(", "));
                return ExitCode::from(2);
            }
        }
    }
    let mut rows = Vec::new();
    for (name, run) in BENCHES {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            let measured = run(effort);
            row::print(&measured);
            rows.extend(measured);
        }
    }
    if let Some(path) = json {
        let text = row::to_json(&machine::describe(), &rows);
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("{path}: {error}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
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
