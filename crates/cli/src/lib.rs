//! The `syncline` program, as a library: the binary and `python -m syncline` are the same call.
//!
//! Every command goes the same way: what was typed (`clap`) is resolved into loaded inputs and
//! plain options, which run to an `Outcome` or one `Failure`. Exit status 0
//! is success, 1 a check that found something, 2 bad usage or bad input; a closed pipe is success.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod bar;
mod commands;
mod input;
mod outcome;
mod output;
mod provenance;
mod units;

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::OnceLock;

use clap::{ColorChoice, Parser};
use syncline::program::{Program, ProgramRun, ProgramRunError, RunOptions, npy};
use syncline::report::ReportError;
use syncline_files::Escaped;

use crate::commands::Command;
use crate::outcome::Outcome;
use crate::output::to_standard_output;

/// A runtime for heterogeneous execution: what must wait for what, and why.
#[derive(Parser)]
#[command(name = "syncline", version, propagate_version = true, after_help = EXIT_STATUS)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// No progress, notes or warnings: results and errors only.
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Colours on standard error: on terminals, unless NO_COLOR is set; always; never.
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    color: ColorChoice,
}

const EXIT_STATUS: &str = "\
Results go to standard output, everything else to standard error. Exit status:
  0  success, also where the reader of the output has gone
  1  a check found something: it is in the output
  2  wrong usage or input, or the work failed: one line on standard error says why
  130  interrupted by Ctrl-C";

/// Returns every device found, and what cannot be used and why, as `syncline devices --json` does.
pub fn devices() -> serde_json::Value {
    commands::devices::to_json(&syncline::registry().probe())
}

/// Returns the page that explains `run`, as `syncline run --report` writes it; `differences` comes
/// from [`check`].
pub fn page(
    program: &Program,
    run: &ProgramRun,
    title: &str,
    differences: Option<&[String]>,
) -> Result<String, ReportError> {
    commands::run::page(program, run, title, differences)
}

/// Returns the contents of buffer number `index` that `run` has left, as `syncline run --output`
/// writes it.
pub fn array_of(program: &Program, run: &ProgramRun, index: usize) -> npy::Array {
    commands::run::array_of(program, run, index)
}

/// Returns what differs between `run` and the serial run, as `syncline run --check` prints it. A
/// plan that kept buffers to itself is run once more by `options`, with all of them kept.
pub fn check(
    program: &Program,
    run: &ProgramRun,
    options: &RunOptions,
) -> Result<Vec<String>, ProgramRunError> {
    commands::run::check(program, run, options)
}

/// What the program was given after its name.
static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Returns what the program was given after its name, for processes that are parts of it.
fn arguments() -> &'static [OsString] {
    ARGUMENTS.get().map_or(&[], Vec::as_slice)
}

/// Runs the program with `arguments`, the first of which is its name, and returns its exit status.
pub fn run(arguments: Vec<OsString>) -> u8 {
    // Some benchmarks start this program again for each of their PEs.
    if syncline_bench::run_as_part() {
        return 0;
    }
    let _ = ARGUMENTS.set(arguments.iter().skip(1).cloned().collect());
    match Cli::try_parse_from(&arguments) {
        Ok(cli) => {
            output::speak(cli.quiet, cli.color);
            outcome::exit_code(cli.command.run())
        }
        Err(usage) => {
            let text = usage.render().to_string();
            if usage.use_stderr() {
                // There is no other place to say that it cannot be said.
                let _ = Escaped::new(io::stderr().lock()).write_all(text.as_bytes());
                return usage.exit_code() as u8;
            }
            outcome::exit_code(to_standard_output(|out| {
                out.write_all(text.as_bytes()).map(|()| Outcome::Success)
            }))
        }
    }
}
