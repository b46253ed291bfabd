//! The benchmarks with their peers, as a program of the project.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use syncline_bench::{Effort, describe_machine, names, print, run, run_as_part, to_json};

/// Writes `text` to the file at `path`, or to standard output for `-`.
fn write(path: &str, text: &str) -> io::Result<()> {
    match path {
        "-" => io::stdout().write_all(text.as_bytes()),
        path => syncline_files::write_file(Path::new(path), |out| out.write_all(text.as_bytes())),
    }
}

fn main() -> ExitCode {
    if run_as_part() {
        return ExitCode::SUCCESS;
    }
    let mut wanted = Vec::new();
    let mut json = None;
    let mut effort = Effort::Full;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => effort = Effort::Quick,
            "--smoke" => effort = Effort::Smoke,
            "--json" => json = arguments.next(),
            name if names().any(|known| known == name) => wanted.push(name.to_owned()),
            other => {
                let known: Vec<_> = names().collect();
                eprintln!("no benchmark `{other}`: expected one of {}", known.join(", "));
                return ExitCode::from(2);
            }
        }
    }
    let rows = run(&wanted, effort, print);
    if let Some(path) = json
        && let Err(error) = write(&path, &to_json(&describe_machine(), &rows))
    {
        eprintln!("{path}: {error}");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}
