//! The project's own tasks: `cargo xtask setup | test | step | tidy | wheel | fuzz | bench | soak`.
//!
//! What a new machine lacks, `setup` installs; `test` calls it first. Nothing here is needed to
//! build or use the library itself.

mod command;
mod fuzz;
mod integrations;
mod memory;
mod nextest;
mod policy;
mod python;
mod setup;
mod soak;
mod steps;
mod test;
mod tidy;

use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
cargo xtask setup             installs what tests and benchmarks need and the machine lacks
cargo xtask test              setup, then format, lints, every test, sanitizers and the documentation
cargo xtask test integrations [SUITE ...]
                              the suites that download large programs of others first
cargo xtask step NAME ...     some steps of that alone, without setup, by the names that it prints at its end
cargo xtask wheel             the Python package, in target/wheels
cargo xtask fuzz [TARGET ...] fuzz targets, a minute each
cargo xtask bench [NAME] ...  benchmarks, with their peers in the same run: --quick, --json FILE
cargo xtask tidy [--list [PATH]]
                              lengths of lines, words, names of types and the code map; lists all that is wrong
cargo xtask soak              the long tests: millions of rounds, thousands of seeds, hundreds of kills; five hours,
                              or --minutes N, by which every part is scaled and bounded";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rest: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    let done = match arguments.first().map(String::as_str) {
        Some("setup") => setup::run(setup::Need::Benchmarks),
        Some("test") if rest.first() == Some(&"integrations") => integrations::run(&rest[1..]),
        Some("test") => setup::run(setup::Need::Tests).and_then(|()| test::run(&rest)),
        Some("tidy") => tidy::run(&rest),
        Some("step") => test::steps(&rest),
        Some("wheel") => {
            python::wheel(python::RELEASE).map(|wheel| println!("{}", wheel.display()))
        }
        Some("fuzz") => {
            setup::run(setup::Need::Tests).and_then(|()| fuzz::run(&rest, Duration::from_secs(60)))
        }
        Some("bench") => setup::run(setup::Need::Benchmarks).and_then(|()| bench(&rest)),
        Some("soak") => setup::run(setup::Need::Tests).and_then(|()| soak::run(&rest)),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn bench(arguments: &[&str]) -> Result<(), String> {
    let mut all = vec!["run", "--profile", "bench", "--package", "syncline-bench"];
    all.extend(["--features", "wgpu"]);
    if setup::has_mpi() {
        all.extend(["--features", "mpi"]);
    }
    all.push("--");
    all.extend(arguments);
    let python = setup::python().map(|path| path.display().to_string());
    let environment: Vec<_> =
        python.iter().map(|path| ("SYNCLINE_PYTHON", path.as_str())).collect();
    command::cargo(&all, &environment)
}
