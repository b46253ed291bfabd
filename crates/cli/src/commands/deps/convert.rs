//! `syncline deps convert`.

use std::path::Path;

use super::ConvertArgs;
use crate::input::{LoadedTrace, is_standard};
use crate::outcome::{Failure, Outcome};
use crate::output::to_file;

/// What to write, decided before anything is read.
enum Target<'a> {
    Json(&'a Path),
    Capture(&'a Path),
}

pub(super) fn run(args: &ConvertArgs) -> Result<Outcome, Failure> {
    let target = resolve(&args.output)?;
    let trace = LoadedTrace::read(&args.trace)?.trace;
    match target {
        Target::Json(path) => to_file(path, |out| trace.write_json(out))?,
        Target::Capture(path) => to_file(path, |out| trace.write_capture(out).map(drop))?,
    }
    Ok(Outcome::Success)
}

fn resolve(output: &Path) -> Result<Target<'_>, Failure> {
    if is_standard(output) {
        return Ok(Target::Json(output));
    }
    match output.extension().and_then(|ending| ending.to_str()) {
        Some("json") => Ok(Target::Json(output)),
        Some("sltrace") => Ok(Target::Capture(output)),
        _ => Err(Failure::Usage(format!(
            "{}: the ending of the output decides its form: expected .sltrace or .json",
            output.display()
        ))),
    }
}
