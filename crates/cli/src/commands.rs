//! The commands, one module each.

mod bench;
mod deps;
pub(crate) mod devices;
mod doctor;
mod example;
mod kernels;
mod pages;
mod report;
mod reshard;
pub(crate) mod run;

use clap::Subcommand;

use crate::outcome::{Failure, Outcome};

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Every device found, what it can do, and every backend that cannot be used, and why.
    Devices(devices::DevicesArgs),
    /// What this machine has and lacks for Syncline, what each lack means, and what to do.
    Doctor(doctor::DoctorArgs),
    /// Run a program: compute, check, and say what limited it.
    Run(run::RunArgs),
    /// Write a ready program.
    Example(example::ExampleArgs),
    /// The built-in kernels and what they take.
    Kernels(kernels::KernelsArgs),
    /// What waits for what in a trace, and whether that is right.
    #[command(subcommand)]
    Deps(deps::DepsCommand),
    /// One self-contained page: graph, swimlane, critical path, memory; of two traces, what got
    /// slower.
    Report(report::ReportArgs),
    /// From one parallel layout of tensors to another.
    #[command(subcommand)]
    Reshard(reshard::ReshardCommand),
    /// What this machine does: each figure beside a limit where there is one.
    Bench(bench::BenchArgs),
    /// Write the completions of a shell: `syncline completions bash >> ~/.bashrc`.
    Completions(pages::CompletionsArgs),
    /// Write a page of the manual: `syncline man reshard plan | man -l -`.
    Man(pages::ManArgs),
}

impl Command {
    pub(crate) fn run(self) -> Result<Outcome, Failure> {
        match self {
            Command::Devices(command) => command.run(),
            Command::Doctor(command) => command.run(),
            Command::Run(command) => command.run(),
            Command::Example(command) => command.run(),
            Command::Kernels(command) => command.run(),
            Command::Deps(command) => command.run(),
            Command::Report(args) => report::run(&args),
            Command::Reshard(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::Completions(command) => command.run(),
            Command::Man(command) => command.run(),
        }
    }
}
