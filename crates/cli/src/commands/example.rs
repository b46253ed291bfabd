//! `syncline example`: ready programs.

use std::path::PathBuf;

use clap::Args;
use syncline::program::{EXAMPLES, example};

use crate::outcome::{Failure, Outcome};
use crate::output::to_file;

/// Arguments of `example`.
#[derive(Args)]
#[command(after_help = list())]
pub(crate) struct ExampleArgs {
    /// Which program.
    name: String,
    /// A setting and its value; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, u64)>,
    /// The file to write, instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl ExampleArgs {
    pub(crate) fn run(self) -> Result<Outcome, Failure> {
        let trace =
            example(&self.name, &self.set).map_err(|error| Failure::Usage(error.to_string()))?;
        let path = self.output.unwrap_or_else(|| "-".into());
        to_file(&path, |out| trace.write_json(out)).map(|()| Outcome::Success)
    }
}

fn setting(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let value = value.parse().map_err(|_| format!("`{value}` is not a whole number"))?;
    Ok((name.to_owned(), value))
}

fn list() -> String {
    let mut text = "Programs and their settings:\n".to_owned();
    for example in EXAMPLES {
        let settings = example.settings.iter();
        let settings: Vec<_> =
            settings.map(|known| format!("{}={}", known.name, known.default)).collect();
        text += &format!(
            "  {:10} {}\n  {:10} {}\n",
            example.name,
            example.about,
            "",
            settings.join(" ")
        );
    }
    text
}
