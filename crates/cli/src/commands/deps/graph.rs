//! `syncline deps graph`.

use syncline::deps::{DepGraph, OracleLimits, SubmitOptions, full_graph, reduced_graph};
use syncline::trace::{replay, write_edges};

use super::text::{Chosen, print_text};
use super::{Format, GraphArgs, dot};
use crate::input::LoadedTrace;
use crate::outcome::{Failure, Outcome};
use crate::output::to_standard_output;

pub(super) fn run(args: &GraphArgs) -> Result<Outcome, Failure> {
    let loaded = LoadedTrace::read(&args.trace)?;
    let (graph, chosen) = choose(&loaded, args)?;
    to_standard_output(|out| {
        match if args.json { Format::Json } else { args.format } {
            Format::Text => print_text(out, &loaded, &graph, chosen)?,
            Format::Json => write_edges(&graph, out)?,
            Format::Dot => dot::print_dot(out, &loaded.trace, &graph)?,
        }
        Ok(Outcome::Success)
    })
}

fn choose(loaded: &LoadedTrace, args: &GraphArgs) -> Result<(DepGraph, Chosen), Failure> {
    if !args.full && !args.reduced {
        let replayed = wired(loaded)?;
        let pruned = replayed.stats.pruned;
        return Ok((replayed.graph, Chosen::Wired { pruned }));
    }
    let too_large = |source| Failure::Oracle { file: loaded.file.clone(), source };
    let limits = OracleLimits::default();
    let full = full_graph(&loaded.trace, limits).map_err(too_large)?;
    if args.full {
        return Ok((full, Chosen::Full));
    }
    Ok((reduced_graph(&full, limits).map_err(too_large)?, Chosen::Reduced))
}

/// What the runtime would wire.
pub(super) fn wired(loaded: &LoadedTrace) -> Result<syncline::trace::Replayed, Failure> {
    replay(&loaded.trace, SubmitOptions::default())
        .map_err(|source| Failure::Replay { file: loaded.file.clone(), source: Box::new(source) })
}
