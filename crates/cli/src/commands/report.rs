//! `syncline report`.

use std::path::{Path, PathBuf};

use clap::Args;
use syncline::report::{ReportError, RunRecord, render};

use crate::bar::Steps;
use crate::input::{LoadedTrace, is_standard};
use crate::outcome::{Failure, Outcome};
use crate::output::to_file;

/// Arguments of `report`.
#[derive(Args)]
pub(crate) struct ReportArgs {
    /// A capture (.sltrace) or a trace in JSON, `-` for standard input; with a second one, what
    /// changed from the first to the second.
    #[arg(required = true, num_args = 1..=2, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The page to write; `-` for standard output.
    #[arg(short, long, value_name = "F.html")]
    output: PathBuf,
}

pub(crate) fn run(args: &ReportArgs) -> Result<Outcome, Failure> {
    if args.traces.iter().filter(|path| is_standard(path)).count() > 1 {
        let text = "the two traces cannot both come from standard input";
        return Err(Failure::Usage(text.to_owned()));
    }
    let mut runs = Vec::with_capacity(args.traces.len());
    let steps = Steps::start(args.traces.len() + 1, "reading a trace, finding what waits for what");
    for (at, path) in args.traces.iter().enumerate() {
        runs.push(load(path)?);
        let is_last = at + 1 == args.traces.len();
        steps.next(if is_last {
            "analysing, drawing the page"
        } else {
            "reading the second trace"
        });
    }
    let files = args.traces.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    let page = render(&runs).map_err(in_file(&files.join(", ")))?;
    drop(steps);
    to_file(&args.output, |out| out.write_all(page.as_bytes()))?;
    Ok(Outcome::Success)
}

/// A run is checked as soon as it is read, so that an error names the file it is in.
fn load(path: &Path) -> Result<RunRecord, Failure> {
    let LoadedTrace { file, trace } = LoadedTrace::read(path)?;
    let mut run = RunRecord::from_trace(&trace).map_err(in_file(&file))?;
    run.check().map_err(in_file(&file))?;
    run.title = match path.file_stem() {
        Some(stem) if !is_standard(path) => stem.to_string_lossy().into_owned(),
        _ => "standard input".to_owned(),
    };
    Ok(run)
}

fn in_file(file: &str) -> impl Fn(ReportError) -> Failure {
    move |source| Failure::Report { file: file.to_owned(), source }
}
