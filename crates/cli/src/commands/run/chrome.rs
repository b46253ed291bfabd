//! The run as a trace that Chrome's and Perfetto's viewers open: a track per lane, slices, arrows,
//! counters.

use std::io::{self, Write};

use serde_json::{Value, json};
use syncline::report::{Analysis, GapCause, RunOpKind, RunRecord, RunTiming};

/// Writes the events, one a line.
pub(super) fn write(out: &mut dyn Write, run: &RunRecord, analysis: &Analysis) -> io::Result<()> {
    writeln!(out, "{{\"displayTimeUnit\": \"ns\", \"traceEvents\": [")?;
    let mut separator = "";
    let mut event = |value: Value| {
        let written = write!(out, "{separator}{value}");
        separator = ",\n";
        written
    };
    for (lane, info) in run.lanes.iter().enumerate() {
        let name = match &*info.device {
            "" => info.name.clone(),
            device => format!("{device}/{}", info.name),
        };
        event(
            json!({"ph": "M", "pid": 1, "tid": lane, "name": "thread_name", "args": {"name": name}}),
        )?;
    }
    slices(run, &mut event)?;
    waits(run, analysis, &mut event)?;
    arrows(run, analysis, &mut event)?;
    tasks_over_time(run, analysis, &mut event)?;
    memory_over_time(run, &mut event)?;
    write!(out, "\n]}}\n")
}

/// Viewers count in microseconds.
fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// What lanes did.
fn slices(run: &RunRecord, event: &mut impl FnMut(Value) -> io::Result<()>) -> io::Result<()> {
    for op in &run.ops {
        let Some(RunTiming { lane, start_ns, end_ns }) = op.timing else { continue };
        let (category, args) = match op.kind {
            RunOpKind::Compute => ("kernel", json!({"task": op.task, "arguments": op.args})),
            RunOpKind::Copy => ("copy", json!({"bytes": op.bytes, "arguments": op.args})),
        };
        event(json!({"ph": "X", "pid": 1, "tid": lane, "name": op.name, "cat": category,
            "ts": micros(start_ns), "dur": micros(end_ns - start_ns), "args": args}))?;
    }
    Ok(())
}

/// What lanes waited for between two ops; a lane that has nothing to do shows nothing.
fn waits(
    run: &RunRecord,
    analysis: &Analysis,
    event: &mut impl FnMut(Value) -> io::Result<()>,
) -> io::Result<()> {
    for gap in analysis.gaps.iter().filter(|gap| gap.cause != GapCause::NothingReady) {
        let task = |op: Option<u32>| op.map(|op| run.ops[op as usize].task);
        event(
            json!({"ph": "X", "pid": 1, "tid": gap.lane, "name": format!("wait: {}", gap.cause.name()),
            "cat": "wait", "ts": micros(gap.start_ns), "dur": micros(gap.end_ns - gap.start_ns),
            "args": {"before": task(gap.before), "on": task(gap.on)}}),
        )?;
    }
    Ok(())
}

fn arrows(
    run: &RunRecord,
    analysis: &Analysis,
    event: &mut impl FnMut(Value) -> io::Result<()>,
) -> io::Result<()> {
    let timing = |op: u32| run.ops[op as usize].timing;
    let redundant = analysis.redundant(run);
    let shown = run.edges.iter().enumerate().filter(|(edge, _)| !redundant.edges[*edge]);
    for (number, edge) in shown {
        let (Some(from), Some(to)) = (timing(edge.pred), timing(edge.succ)) else { continue };
        let kinds = edge.kinds.to_string();
        // An arrow starts inside the slice that it leaves, and ends at the start of the one that
        // waits.
        event(
            json!({"ph": "s", "pid": 1, "tid": from.lane, "id": number, "name": kinds, "cat": "dependency",
            "ts": micros(from.end_ns.saturating_sub(1).max(from.start_ns))}),
        )?;
        event(json!({"ph": "f", "bp": "e", "pid": 1, "tid": to.lane, "id": number, "name": kinds,
            "cat": "dependency", "ts": micros(to.start_ns)}))?;
    }
    Ok(())
}

/// Two counters: how many tasks run, and how many could run and do not.
fn tasks_over_time(
    run: &RunRecord,
    analysis: &Analysis,
    event: &mut impl FnMut(Value) -> io::Result<()>,
) -> io::Result<()> {
    let (from_ns, _) = run.span_ns().unwrap_or((0, 0));
    let mut running = Vec::with_capacity(2 * run.ops.len());
    let mut ready = Vec::with_capacity(2 * run.ops.len());
    for (op, timing) in (0u32..).zip(run.ops.iter().map(|op| op.timing)) {
        let Some(timing) = timing else { continue };
        running.extend([(timing.start_ns, 1), (timing.end_ns, -1)]);
        let edges = analysis.graph.fanin(op).iter().map(|&edge| run.edges[edge as usize].pred);
        let ended = edges.filter_map(|pred| run.ops[pred as usize].timing).map(|pred| pred.end_ns);
        let ready_ns = ended.fold(from_ns, u64::max);
        if ready_ns < timing.start_ns {
            ready.extend([(ready_ns, 1), (timing.start_ns, -1)]);
        }
    }
    counter("running tasks", "tasks", running, event)?;
    counter("ready tasks", "tasks", ready, event)
}

/// A counter for each device or arena: the bytes of the buffers that are alive.
fn memory_over_time(
    run: &RunRecord,
    event: &mut impl FnMut(Value) -> io::Result<()>,
) -> io::Result<()> {
    let mut places: Vec<&str> = run.memory.iter().map(|one| &*one.place).collect();
    places.sort_unstable();
    places.dedup();
    for place in places {
        let mut steps = Vec::new();
        for one in run.memory.iter().filter(|one| one.place == place) {
            let bytes = i64::try_from(one.bytes).unwrap_or(i64::MAX);
            steps.extend([(one.start_ns, bytes), (one.end_ns, -bytes)]);
        }
        let name = match place {
            "" => "memory".to_owned(),
            place => format!("memory {place}"),
        };
        counter(&name, "bytes", steps, event)?;
    }
    Ok(())
}

/// The sum of `steps` over time, one event for each moment at which it changes.
fn counter(
    name: &str,
    unit: &str,
    mut steps: Vec<(u64, i64)>,
    event: &mut impl FnMut(Value) -> io::Result<()>,
) -> io::Result<()> {
    steps.sort_unstable();
    let mut sum = 0i64;
    for moment in steps.chunk_by(|a, b| a.0 == b.0) {
        sum = moment.iter().fold(sum, |sum, step| sum.saturating_add(step.1));
        event(
            json!({"ph": "C", "pid": 1, "name": name, "ts": micros(moment[0].0), "args": {unit: sum}}),
        )?;
    }
    Ok(())
}
