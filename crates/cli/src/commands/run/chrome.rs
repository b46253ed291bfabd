//! The run as a trace that Chrome's and Perfetto's viewers open: a track per lane, slices, arrows, counters.

use std::io::{self, Write};

use serde_json::{Value, json};
use syncline_deps::{SubmitOptions, replay};
use syncline_program::{Program, Run};

/// Writes the events, one a line.
pub(super) fn write(out: &mut dyn Write, program: &Program, run: &Run) -> io::Result<()> {
    writeln!(out, "{{\"displayTimeUnit\": \"ns\", \"traceEvents\": [")?;
    let mut separator = "";
    let mut event = |value: Value| {
        let written = write!(out, "{separator}{value}");
        separator = ",\n";
        written
    };
    for (lane, name) in run.lanes.iter().enumerate() {
        event(
            json!({"ph": "M", "pid": 1, "tid": lane, "name": "thread_name", "args": {"name": name}}),
        )?;
    }
    for (task, timing) in program.trace().tasks.iter().zip(&run.timings) {
        event(
            json!({"ph": "X", "pid": 1, "tid": timing.lane, "name": task.label(), "cat": "kernel",
            "ts": micros(timing.start_ns), "dur": micros(timing.end_ns - timing.start_ns),
            "args": {"task": task.id, "kernel": task.extra.get("kernel")}}),
        )?;
    }
    arrows(program, run, &mut event)?;
    running(run, &mut event)?;
    write!(out, "\n]}}\n")
}

/// Viewers count in microseconds.
fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn arrows(
    program: &Program,
    run: &Run,
    event: &mut impl FnMut(Value) -> io::Result<()>,
) -> io::Result<()> {
    let replayed = replay(program.trace(), SubmitOptions::default())
        .map_err(|error| io::Error::other(error.to_string()))?;
    for (number, edge) in replayed.graph.edges().iter().enumerate() {
        if !edge.waits() {
            continue;
        }
        let (from, to) = (run.timings[edge.pred as usize], run.timings[edge.succ as usize]);
        let kinds = edge.kinds.to_string();
        // An arrow starts inside the slice that it leaves, and ends at the start of the one that waits.
        event(
            json!({"ph": "s", "pid": 1, "tid": from.lane, "id": number, "name": kinds, "cat": "dependency",
            "ts": micros(from.end_ns.saturating_sub(1).max(from.start_ns))}),
        )?;
        event(json!({"ph": "f", "bp": "e", "pid": 1, "tid": to.lane, "id": number, "name": kinds,
            "cat": "dependency", "ts": micros(to.start_ns)}))?;
    }
    Ok(())
}

/// A counter of the tasks that run, which shows how parallel the run was.
fn running(run: &Run, event: &mut impl FnMut(Value) -> io::Result<()>) -> io::Result<()> {
    let mut steps: Vec<(u64, i64)> = Vec::with_capacity(2 * run.timings.len());
    for timing in &run.timings {
        steps.extend([(timing.start_ns, 1), (timing.end_ns, -1)]);
    }
    steps.sort_unstable();
    let mut count = 0;
    for (ns, step) in steps {
        count += step;
        event(
            json!({"ph": "C", "pid": 1, "name": "running tasks", "ts": micros(ns), "args": {"tasks": count}}),
        )?;
    }
    Ok(())
}
