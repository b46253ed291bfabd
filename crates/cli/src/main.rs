//! The `syncline` program.
//!
//! Every command goes the same way: what was typed (`clap`) is resolved into loaded inputs and
//! plain options, which run to an [`Outcome`] or one [`Failure`](outcome::Failure). Exit status 0
//! is success, 1 a check that found something, 2 bad usage or bad input; a closed pipe is success.
#![forbid(unsafe_code)]

mod bar;
mod commands;
mod input;
mod outcome;
mod output;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use syncline_files::Escaped;

use crate::commands::Command;
use crate::outcome::Outcome;
use crate::output::to_standard_output;

/// A runtime for heterogeneous execution: what must wait for what, and why.
#[derive(Parser)]
#[command(name = "syncline", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    // Some benchmarks start this program again for each of their PEs.
    if syncline_bench::run_as_part() {
        return ExitCode::SUCCESS;
    }
    match Cli::try_parse() {
        Ok(cli) => outcome::exit_code(cli.command.run()),
        Err(usage) => {
            let text = usage.render().to_string();
            if usage.use_stderr() {
                // There is no other place to say that it cannot be said.
                let _ = Escaped::new(io::stderr().lock()).write_all(text.as_bytes());
                return ExitCode::from(usage.exit_code() as u8);
            }
            outcome::exit_code(to_standard_output(|out| {
                out.write_all(text.as_bytes()).map(|()| Outcome::Success)
            }))
        }
    }
}
