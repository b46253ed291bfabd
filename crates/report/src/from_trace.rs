//! Runs from traces: what a capture with timings says, and what replaying it adds.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use syncline_deps::{DepEdge, DepGraph, EdgeFlags, SubmitOptions};
use syncline_tensor::{Access, BufferId};
use syncline_trace::{Naming, ReplayError, Trace, TraceLane, TraceTask, replay, replay_edges};

use crate::{Allocation, ReportError, RunEdge, RunLane, RunOp, RunOpKind, RunRecord, RunTiming};

/// What the member `kind` of a task says when it moves bytes.
const MOVES: [&str; 5] = ["copy", "transfer", "pack", "send", "unpack"];

/// The most regions that are named for one edge.
const REGIONS_NAMED: usize = 4;

/// How much of a trace a run is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Everything: arguments and regions as people read them, and also the edges that others imply.
    Words,
    /// What numbers need: times, and the edges that nothing implies. Several times as fast for a
    /// million tasks.
    Numbers,
}

impl RunRecord {
    /// The run that `trace` records, with the edges that replaying it finds.
    ///
    /// Tasks with `start_ns` and `end_ns` are timed; those whose `kind` is `copy` (or `transfer`,
    /// `pack`, `send`, `unpack`) move bytes. A buffer counts as memory from the start of the task
    /// that creates it to the end of its last user; one that no task creates counts for the whole
    /// run. A buffer's `device` says where it lay, its `offset` at which byte of it.
    pub fn from_trace(trace: &Trace) -> Result<Self, ReportError> {
        Self::from_trace_in(trace, Detail::Words)
    }

    /// The same, saying as much as `detail` asks for.
    pub fn from_trace_in(trace: &Trace, detail: Detail) -> Result<Self, ReportError> {
        // With words, edges that others imply are kept too: the page hides them, and shows them on
        // request.
        let options = SubmitOptions { full: detail == Detail::Words, ..SubmitOptions::default() };
        let refused = |error: ReplayError| ReportError::Replay(error.into());
        match detail {
            Detail::Words => {
                let replayed = replay(trace, options).map_err(refused)?;
                Ok(Self::from_graph(trace, &replayed.graph))
            }
            Detail::Numbers => {
                let mut edges = Vec::new();
                replay_edges(trace, options, |succ, edge| {
                    if edge.flags.contains(EdgeFlags::WAIT) {
                        let pred = edge.pred.sequence() as u32;
                        edges.push(RunEdge {
                            pred,
                            succ,
                            kinds: edge.kinds,
                            region: String::new(),
                        });
                    }
                })
                .map_err(refused)?;
                Ok(Self::with_edges(trace, edges, |_| Vec::new()))
            }
        }
    }

    /// The run that `trace` records, with edges from elsewhere.
    pub fn from_graph(trace: &Trace, graph: &DepGraph) -> Self {
        let naming = Naming::of(trace);
        let waits = graph.edges().iter().filter(|edge| edge.waits());
        let edges = waits.map(|edge| run_edge(trace, graph, edge, &naming)).collect();
        let text = |arg: &syncline_tensor::Arg| format!("{} {}", arg.access, naming.arg(arg));
        let args = |task: &TraceTask| task.args.iter().map(|arg| text(&arg.arg)).collect();
        Self::with_edges(trace, edges, args)
    }

    fn with_edges(
        trace: &Trace,
        edges: Vec<RunEdge>,
        args: impl Fn(&TraceTask) -> Vec<String>,
    ) -> Self {
        let (lanes, lane_of) = lanes(trace);
        let ops = trace.tasks.iter().map(|task| op(task, args(task), &lane_of)).collect();
        let mut run = Self { title: "trace".to_owned(), lanes, ops, edges, ..Self::default() };
        run.memory = memory(trace, &run);
        run.provenance = provenance(trace);
        run
    }
}

/// What the trace says of where it comes from, in the order in which it says it.
fn provenance(trace: &Trace) -> Vec<(String, String)> {
    let said = trace.extra.get("provenance").and_then(Value::as_object);
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            let texts = values.iter().map(|value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            texts.collect::<Vec<_>>().join("; ")
        }
        other => other.to_string(),
    };
    said.into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect()
}

type LaneKey<'a> = (&'a str, Option<&'a TraceLane>);

fn is_timed(task: &TraceTask) -> bool {
    task.start_ns.is_some() && task.end_ns.is_some()
}

/// A list of devices is a choice, not a place.
fn device(task: &TraceTask) -> &str {
    task.device.as_ref().and_then(Value::as_str).unwrap_or("")
}

fn lane_key(task: &TraceTask) -> LaneKey<'_> {
    (device(task), task.lane.as_ref())
}

/// Every lane that a timed task names, by device and then by name, numbers in it by value; and
/// lanes that ran nothing.
fn lanes<'a>(trace: &'a Trace) -> (Vec<RunLane>, HashMap<LaneKey<'a>, u32>) {
    let keys: HashSet<LaneKey<'a>> =
        trace.tasks.iter().filter(|task| is_timed(task)).map(lane_key).collect();
    let idle = if keys.is_empty() { Vec::new() } else { idle_lanes(trace, &keys) };
    let mut all: Vec<(&str, Option<&TraceLane>)> = keys.iter().copied().collect();
    all.extend(idle.iter().map(|(device, lane)| (*device, Some(lane))));
    all.sort_by_cached_key(|&(device, lane)| {
        let name = lane.map(ToString::to_string).unwrap_or_default();
        // The key itself comes last, for names that differ in leading zeros only.
        (natural(device), lane.is_none(), natural(&name), lane.cloned())
    });
    let lanes = all.iter().map(|(device, lane)| shown(device, *lane)).collect();
    let number = |key: &LaneKey<'a>| {
        let place = all.iter().position(|one| one == key).expect("all keys are among them");
        (*key, place as u32)
    };
    let numbers = keys.iter().map(number).collect();
    (lanes, numbers)
}

/// The lanes that the trace lists, such as `cpu:0/1`, and that no task names.
fn idle_lanes<'a>(trace: &'a Trace, keys: &HashSet<LaneKey<'a>>) -> Vec<(&'a str, TraceLane)> {
    let listed = trace.extra.get("lanes").and_then(Value::as_array);
    let names = listed.into_iter().flatten().filter_map(Value::as_str);
    let is_busy = |name: &str| {
        let named = |lane: &TraceLane| matches!(lane, TraceLane::Name(known) if **known == *name);
        keys.iter().any(|(_, lane)| lane.is_some_and(named))
    };
    let idle = names.filter(|name| !is_busy(name)).map(|name| {
        // A lane's name begins with its device's; where tasks name no device, lanes have none
        // either.
        let device = name.rsplit_once('/').map_or("", |(device, _)| device);
        let is_known = keys.iter().any(|(known, _)| *known == device);
        let names_devices = keys.iter().any(|(known, _)| !known.is_empty());
        (if is_known || names_devices { device } else { "" }, TraceLane::Name(name.into()))
    });
    idle.collect()
}

fn shown(device: &str, lane: Option<&TraceLane>) -> RunLane {
    match lane {
        None => RunLane::new("no lane", device),
        Some(TraceLane::Number(number)) => RunLane::new(format!("lane {number}"), device),
        // `cpu:0/1` says the device itself.
        Some(TraceLane::Name(name)) => {
            let name = name.strip_prefix(device).map_or(&**name, |rest| match rest {
                rest if device.is_empty() => rest,
                rest => rest.strip_prefix('/').unwrap_or(name),
            });
            RunLane::new(name, device)
        }
    }
}

/// Splits a name so that `lane 10` comes after `lane 9`.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|char: char| char.is_ascii_digit()).unwrap_or(rest.len());
        let (before, after) = rest.split_at(text);
        let digits = after.find(|char: char| !char.is_ascii_digit()).unwrap_or(after.len());
        let (number, after) = after.split_at(digits);
        parts.push((before.to_owned(), number.parse().unwrap_or(u64::MAX)));
        rest = after;
    }
    parts
}

fn op(task: &TraceTask, args: Vec<String>, lane_of: &HashMap<LaneKey<'_>, u32>) -> RunOp {
    let says = task.extra.get("kind").and_then(Value::as_str);
    let moves = says.is_some_and(|kind| MOVES.contains(&kind));
    let name = match (task.label(), says) {
        ("", Some(kind)) => kind,
        ("", None) => "task",
        (label, _) => label,
    };
    let timing = task.start_ns.zip(task.end_ns).map(|(start_ns, end_ns)| RunTiming {
        lane: lane_of[&lane_key(task)],
        start_ns,
        end_ns,
    });
    RunOp {
        timing,
        bytes: if moves { bytes_moved(task) } else { 0 },
        args,
        ..RunOp::new(task.id, name, if moves { RunOpKind::Copy } else { RunOpKind::Compute })
    }
}

/// What the task says, or else what it writes; of a send, what it reads.
fn bytes_moved(task: &TraceTask) -> u64 {
    let args = || task.args.iter().map(|arg| &arg.arg);
    let sum = |sum: u64, bytes: u64| sum.saturating_add(bytes);
    let written = || args().filter(|arg| arg.access.writes()).map(|arg| arg.view.bytes());
    let said = task.extra.get("bytes").and_then(Value::as_u64);
    said.unwrap_or_else(|| match written().fold(0, sum) {
        0 => args().map(|arg| arg.view.bytes()).fold(0, sum),
        bytes => bytes,
    })
}

fn run_edge(trace: &Trace, graph: &DepGraph, edge: &DepEdge, naming: &Naming) -> RunEdge {
    let pairs = graph.args(edge);
    let mut regions: Vec<String> = Vec::new();
    for &(pred_arg, succ_arg) in pairs.iter().take(REGIONS_NAMED) {
        let arg = |task: u32, position: u32| trace.tasks[task as usize].args.get(position as usize);
        // Edges from elsewhere may name arguments that are not there.
        let (Some(pred), Some(succ)) = (arg(edge.pred, pred_arg), arg(edge.succ, succ_arg)) else {
            continue;
        };
        let region = naming.overlap(&pred.arg, &succ.arg);
        if !regions.contains(&region) {
            regions.push(region);
        }
    }
    if pairs.len() > REGIONS_NAMED {
        regions.push("…".to_owned());
    }
    RunEdge { pred: edge.pred, succ: edge.succ, kinds: edge.kinds, region: regions.join(", ") }
}

/// First and last use of a buffer, and whether the first creates it.
struct Life<'a> {
    created: bool,
    place: &'a str,
    start_ns: u64,
    end_ns: u64,
}

fn memory(trace: &Trace, run: &RunRecord) -> Vec<Allocation> {
    let Some((from_ns, until_ns)) = run.span_ns() else { return Vec::new() };
    let mut lives: HashMap<BufferId, Life> = HashMap::new();
    for task in &trace.tasks {
        let Some((start_ns, end_ns)) = task.start_ns.zip(task.end_ns) else { continue };
        for arg in task.args.iter().map(|arg| &arg.arg) {
            let created = arg.access == Access::Output;
            let new = Life { created, place: device(task), start_ns, end_ns };
            let life = lives.entry(arg.buffer).or_insert(new);
            life.created |= created;
            life.start_ns = life.start_ns.min(start_ns);
            life.end_ns = life.end_ns.max(end_ns);
        }
    }
    let allocation = |buffer: &syncline_trace::TraceBuffer| {
        let life = lives.get(&buffer.id)?;
        let said = buffer.extra.get("device").and_then(Value::as_str);
        let whole_run = (from_ns, until_ns);
        let (start_ns, end_ns) =
            if life.created { (life.start_ns, life.end_ns) } else { whole_run };
        let name = buffer.name.as_deref().map_or_else(|| buffer.id.to_string(), str::to_owned);
        Some(Allocation {
            name,
            place: said.unwrap_or(life.place).to_owned(),
            bytes: buffer.bytes,
            offset: buffer.extra.get("offset").and_then(Value::as_u64),
            start_ns,
            end_ns,
        })
    };
    trace.buffers.iter().filter_map(allocation).collect()
}
