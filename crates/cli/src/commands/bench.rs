//! `syncline bench`: the figures of this machine, without the peers that only the project's own
//! task installs.

use clap::Args;
use syncline_bench::{
    Effort, describe_machine, leave_out_peers, names, run, to_json, without_peers,
};

use crate::bar::Steps;
use crate::outcome::{Failure, Outcome};
use crate::output::to_standard_output;

/// Arguments of `bench`.
#[derive(Args)]
pub(crate) struct BenchArgs {
    /// Which one; all of them where no name is given.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(names()))]
    name: Option<String>,
    /// A minute for each instead of all sizes.
    #[arg(long)]
    quick: bool,
    /// Tiny sizes, to see that a benchmark works.
    #[arg(long, hide = true, conflicts_with = "quick")]
    smoke: bool,
    /// The rows for programs.
    #[arg(long)]
    json: bool,
}

impl BenchArgs {
    pub(crate) fn run(self) -> Result<Outcome, Failure> {
        leave_out_peers();
        let effort = match (self.smoke, self.quick) {
            (true, _) => Effort::Smoke,
            (false, true) => Effort::Quick,
            (false, false) => Effort::Full,
        };
        let wanted: Vec<String> = self.name.into_iter().collect();
        let all: Vec<&str> = match wanted.first() {
            Some(name) => vec![name],
            None => names().collect(),
        };
        let steps = Steps::start(all.len(), all.first().unwrap_or(&""));
        let mut rest = all.iter().skip(1);
        let rows = run(&wanted, effort, |_| steps.next(rest.next().unwrap_or(&"")));
        drop(steps);
        let rows = without_peers(&rows);
        to_standard_output(|out| {
            match self.json {
                true => out.write_all(to_json(&describe_machine(), &rows).as_bytes())?,
                false => out.write_all(syncline_bench::table(&rows).as_bytes())?,
            }
            Ok(Outcome::Success)
        })
    }
}
