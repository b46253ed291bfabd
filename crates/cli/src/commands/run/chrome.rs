//! The run as a trace that Chrome's and Perfetto's viewers open: a process for each device or PE, a
//! track for each of its lanes, slices, arrows, counters.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};
use syncline::report::{Analysis, GapCause, RunOpKind, RunRecord, RunTiming};

use crate::provenance::Provenance;

/// The process of what belongs to the run as a whole; those of devices follow.
const RUN_PID: usize = 1;

/// Writes the events, one a line.
pub(super) fn write(
    out: &mut dyn Write,
    run: &RunRecord,
    analysis: &Analysis,
    provenance: &Provenance,
) -> io::Result<()> {
    let other = provenance.to_json();
    writeln!(out, "{{\"displayTimeUnit\": \"ns\", \"otherData\": {other}, \"traceEvents\": [")?;
    let mut separator = "";
    let mut event = |value: Value| {
        let written = write!(out, "{separator}{value}");
        separator = ",\n";
        written
    };
    let processes = Processes::of(run);
    processes.name_all(run, &mut event)?;
    slices(run, &processes, &mut event)?;
    waits(run, &processes, analysis, &mut event)?;
    arrows(run, &processes, analysis, &mut event)?;
    tasks_over_time(run, analysis, &mut event)?;
    bandwidth_over_time(run, &processes, &mut event)?;
    memory_over_time(run, &processes, &mut event)?;
    write!(out, "\n]}}\n")
}

/// A process for each device, in the order of the lanes, and for each other place of memory.
struct Processes<'a> {
    pids: BTreeMap<&'a str, usize>,
    of_lane: Vec<usize>,
}

impl<'a> Processes<'a> {
    fn of(run: &'a RunRecord) -> Self {
        let mut pids = BTreeMap::new();
        let mut pid = |name: &'a str| {
            let next = RUN_PID + 1 + pids.len();
            *pids.entry(name).or_insert(next)
        };
        let of_lane = run.lanes.iter().map(|lane| pid(&lane.device)).collect();
        for one in &run.memory {
            pid(&one.place);
        }
        Self { pids, of_lane }
    }

    fn name_all(
        &self,
        run: &RunRecord,
        event: &mut impl FnMut(Value) -> io::Result<()>,
    ) -> io::Result<()> {
        let run_itself = [(run.title.as_str(), RUN_PID)];
        let devices = self.pids.iter().map(|(name, &pid)| (*name, pid));
        for (name, pid) in run_itself.into_iter().chain(devices) {
            let name = if name.is_empty() { "lanes" } else { name };
            event(json!({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}))?;
            event(json!({"ph": "M", "pid": pid, "name": "process_sort_index",
                "args": {"sort_index": pid}}))?;
        }
        for (lane, info) in run.lanes.iter().enumerate() {
            let name = match &*info.device {
                "" => info.name.clone(),
                device => format!("{device}/{}", info.name),
            };
            let pid = self.of_lane[lane];
            event(json!({"ph": "M", "pid": pid, "tid": lane, "name": "thread_name",
                "args": {"name": name}}))?;
            event(json!({"ph": "M", "pid": pid, "tid": lane, "name": "thread_sort_index",
                "args": {"sort_index": lane}}))?;
        }
        Ok(())
    }

    fn pid(&self, lane: u32) -> usize {
        self.of_lane[lane as usize]
    }
}

/// Viewers count in microseconds.
fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// What lanes did.
fn slices(
    run: &RunRecord,
    processes: &Processes<'_>,
    event: &mut impl FnMut(Value) -> io::Result<()>,
) -> io::Result<()> {
    for op in &run.ops {
        let Some(RunTiming { lane, start_ns, end_ns }) = op.timing else { continue };
        let (category, args) = match op.kind {
            RunOpKind::Compute => ("kernel", json!({"task": op.task, "arguments": op.args})),
            RunOpKind::Copy => ("copy", json!({"bytes": op.bytes, "arguments": op.args})),
        };
        let pid = processes.pid(lane);
        event(json!({"ph": "X", "pid": pid, "tid": lane, "name": op.name, "cat": category,
            "ts": micros(start_ns), "dur": micros(end_ns - start_ns), "args": args}))?;
    }
    Ok(())
}

/// What lanes waited for between two ops; a lane that has nothing to do shows nothing.
fn waits(
    run: &RunRecord,
    processes: &Processes<'_>,
    analysis: &Analysis,
    event: &mut impl FnMut(Value) -> io::Result<()>,
) -> io::Result<()> {
    for gap in analysis.gaps.iter().filter(|gap| gap.cause != GapCause::NothingReady) {
        let task = |op: Option<u32>| op.map(|op| run.ops[op as usize].task);
        event(
            json!({"ph": "X", "pid": processes.pid(gap.lane), "tid": gap.lane, "name": format!("wait: {}", gap.cause.name()),
            "cat": "wait", "ts": micros(gap.start_ns), "dur": micros(gap.end_ns - gap.start_ns),
            "args": {"before": task(gap.before), "on": task(gap.on)}}),
        )?;
    }
    Ok(())
}

fn arrows(
    run: &RunRecord,
    processes: &Processes<'_>,
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
            json!({"ph": "s", "pid": processes.pid(from.lane), "tid": from.lane, "id": number, "name": kinds, "cat": "dependency",
            "ts": micros(from.end_ns.saturating_sub(1).max(from.start_ns))}),
        )?;
        event(
            json!({"ph": "f", "bp": "e", "pid": processes.pid(to.lane), "tid": to.lane, "id": number, "name": kinds,
            "cat": "dependency", "ts": micros(to.start_ns)}),
        )?;
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
    counter(RUN_PID, "running tasks", "tasks", running, event)?;
    counter(RUN_PID, "ready tasks", "tasks", ready, event)
}

/// A counter for each device: the megabytes a second of the copies on its lanes, each at its mean
/// rate for as long as it ran.
fn bandwidth_over_time(
    run: &RunRecord,
    processes: &Processes<'_>,
    event: &mut impl FnMut(Value) -> io::Result<()>,
) -> io::Result<()> {
    let mut steps: BTreeMap<usize, Vec<(u64, i64)>> = BTreeMap::new();
    for op in run.ops.iter().filter(|op| op.bytes > 0) {
        let Some(RunTiming { lane, start_ns, end_ns }) = op.timing else { continue };
        let rate = u128::from(op.bytes) * 1_000 / u128::from((end_ns - start_ns).max(1));
        let rate = i64::try_from(rate).unwrap_or(i64::MAX);
        let steps = steps.entry(processes.pid(lane)).or_default();
        steps.extend([(start_ns, rate), (end_ns.max(start_ns + 1), -rate)]);
    }
    for (pid, steps) in steps {
        counter(pid, "bandwidth", "MB/s", steps, event)?;
    }
    Ok(())
}

/// A counter for each device or arena: the bytes of the buffers that are alive.
fn memory_over_time(
    run: &RunRecord,
    processes: &Processes<'_>,
    event: &mut impl FnMut(Value) -> io::Result<()>,
) -> io::Result<()> {
    let mut places: BTreeMap<&str, Vec<(u64, i64)>> = BTreeMap::new();
    for one in &run.memory {
        let bytes = i64::try_from(one.bytes).unwrap_or(i64::MAX);
        let steps = places.entry(&one.place).or_default();
        steps.extend([(one.start_ns, bytes), (one.end_ns, -bytes)]);
    }
    for (place, steps) in places {
        counter(processes.pids[place], "memory", "bytes", steps, event)?;
    }
    Ok(())
}

/// The sum of `steps` over time, one event for each moment at which it changes.
fn counter(
    pid: usize,
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
            json!({"ph": "C", "pid": pid, "name": name, "ts": micros(moment[0].0), "args": {unit: sum}}),
        )?;
    }
    Ok(())
}
