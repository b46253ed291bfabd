//! `syncline deps`: the dependencies of a trace, shown, checked and converted.

mod check;
mod convert;
mod dot;
mod graph;
mod text;
mod why;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::outcome::{Failure, Outcome};

/// The commands about dependencies.
#[derive(Subcommand)]
pub(crate) enum DepsCommand {
    /// Show what every task waits for, and why.
    Graph(GraphArgs),
    /// Find missing and superfluous edges by brute force; exits 1 if there are any.
    Check(CheckArgs),
    /// Convert between captures (.sltrace) and JSON, losslessly.
    Convert(ConvertArgs),
}

/// Arguments of `deps graph`.
#[derive(Args)]
pub(crate) struct GraphArgs {
    /// A capture (.sltrace) or a trace in JSON; `-` for standard input.
    trace: PathBuf,
    /// The form of the output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Every conflicting pair and every explicit dependency, instead of what the runtime wires.
    #[arg(long, conflicts_with = "reduced")]
    full: bool,
    /// The fewest edges that order the same (the exact transitive reduction).
    #[arg(long)]
    reduced: bool,
}

/// Arguments of `deps check`.
#[derive(Args)]
pub(crate) struct CheckArgs {
    /// A capture (.sltrace) or a trace in JSON; `-` for standard input.
    trace: PathBuf,
    /// Check these edges (JSON), instead of the edges that the runtime wires.
    #[arg(long, value_name = "EDGES.json")]
    against: Option<PathBuf>,
    /// The findings for programs.
    #[arg(long)]
    json: bool,
}

/// Arguments of `deps convert`.
#[derive(Args)]
pub(crate) struct ConvertArgs {
    /// A capture (.sltrace) or a trace in JSON; `-` for standard input.
    trace: PathBuf,
    /// The file to write; its ending, .sltrace or .json, decides the form. `-` writes JSON to
    /// standard output.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Forms of a graph.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For Graphviz.
    Dot,
}

impl DepsCommand {
    pub(crate) fn run(self) -> Result<Outcome, Failure> {
        match self {
            DepsCommand::Graph(args) => graph::run(&args),
            DepsCommand::Check(args) => check::run(&args),
            DepsCommand::Convert(args) => convert::run(&args),
        }
    }
}
