//! `syncline completions` and `syncline man`: what shells and `man` read.

use std::path::Path;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::outcome::{Failure, Outcome};
use crate::output::to_file;

/// Arguments of `completions`.
#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that reads the script.
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Args)]
pub(crate) struct ManArgs {
    /// The command, such as `run` or `reshard plan`; the program itself if absent.
    command: Vec<String>,
}

impl CompletionsArgs {
    pub(crate) fn run(self) -> Result<Outcome, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "syncline", &mut script);
        print(&script)
    }
}

impl ManArgs {
    pub(crate) fn run(self) -> Result<Outcome, Failure> {
        let mut program = Cli::command();
        // Gives each command the name of its page.
        program.build();
        let mut command = &program;
        for name in &self.command {
            command = command.find_subcommand(name).ok_or_else(|| {
                let known: Vec<&str> = command.get_subcommands().map(|of| of.get_name()).collect();
                Failure::Usage(match known.is_empty() {
                    true => format!("`{}` has no command `{name}`", command.get_name()),
                    false => format!("no command `{name}`: one of {}", known.join(", ")),
                })
            })?;
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(command.clone()).render(&mut page)?;
        print(&page)
    }
}

fn print(text: &[u8]) -> Result<Outcome, Failure> {
    to_file(Path::new("-"), |out| out.write_all(text))?;
    Ok(Outcome::Success)
}
