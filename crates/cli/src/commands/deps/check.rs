//! `syncline deps check`.

use std::io::{self, Write};

use serde_json::{Value, json};
use syncline::deps::{CheckReport, DepEdge, DepGraph, OracleLimits, check_edges};
use syncline::trace::read_edges;
use syncline_files::one_line;

use super::CheckArgs;
use super::graph::wired;
use super::why::Reasons;
use crate::input::{LoadedTrace, in_file, is_standard, name_of, read_bytes};
use crate::outcome::{Failure, Outcome};
use crate::output::to_standard_output;

pub(super) fn run(args: &CheckArgs) -> Result<Outcome, Failure> {
    if is_standard(&args.trace) && args.against.as_deref().is_some_and(is_standard) {
        let text = "the trace and the edges cannot both come from standard input";
        return Err(Failure::Usage(text.to_owned()));
    }
    let loaded = LoadedTrace::read(&args.trace)?;
    let given = match &args.against {
        None => wired(&loaded)?.graph,
        Some(path) => {
            read_edges(&read_bytes(path)?, &loaded.trace).map_err(in_file(&name_of(path)))?
        }
    };
    let report = check_edges(&loaded.trace, &given, OracleLimits::default())
        .map_err(|source| Failure::Oracle { file: loaded.file.clone(), source })?;
    to_standard_output(|out| match args.json {
        true => {
            writeln!(out, "{:#}", to_json(&loaded, &given, &report))?;
            Ok(outcome(&report))
        }
        false => print_report(out, &loaded, &given, &report),
    })
}

fn outcome(report: &CheckReport) -> Outcome {
    if report.is_clean() { Outcome::Success } else { Outcome::Found }
}

fn to_json(loaded: &LoadedTrace, given: &DepGraph, report: &CheckReport) -> Value {
    let reasons = Reasons::of(&loaded.trace);
    let edges = |graph: &DepGraph| -> Vec<Value> {
        let ids = |edge: &DepEdge| (graph.id(edge.pred), graph.id(edge.succ));
        let edge = |edge: &DepEdge| {
            let (pred, succ) = ids(edge);
            json!({"pred": pred, "succ": succ, "kinds": edge.kinds.to_string(),
                   "why": reasons.why(graph, edge)})
        };
        graph.edges().iter().map(edge).collect()
    };
    json!({"format": "syncline-check", "version": 1, "tasks": loaded.trace.tasks.len(),
           "edges": given.edges().len(), "pairs": report.pairs,
           "missing": edges(&report.missing), "superfluous": edges(&report.superfluous)})
}

fn print_report(
    out: &mut dyn Write,
    loaded: &LoadedTrace,
    given: &DepGraph,
    report: &CheckReport,
) -> io::Result<Outcome> {
    let reasons = Reasons::of(&loaded.trace);
    writeln!(
        out,
        "{}: {} tasks, {} edges, {} pairs of tasks to order: {} missing, {} superfluous",
        one_line(&loaded.file),
        loaded.trace.tasks.len(),
        given.edges().len(),
        report.pairs,
        report.missing.edges().len(),
        report.superfluous.edges().len(),
    )?;
    for edge in report.missing.edges() {
        let (pred, succ) = (reasons.task(edge.pred), reasons.task(edge.succ));
        let why = reasons.why(&report.missing, edge);
        writeln!(out, "missing: {succ} must wait for {pred}: {why}")?;
    }
    for edge in report.superfluous.edges() {
        let (pred, succ) = (reasons.task(edge.pred), reasons.task(edge.succ));
        writeln!(out, "superfluous: {succ} waits for {pred}, with which nothing connects it")?;
    }
    Ok(outcome(report))
}
