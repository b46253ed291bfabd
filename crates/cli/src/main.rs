//! The `syncline` program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(syncline_cli::run(std::env::args_os().collect()))
}
