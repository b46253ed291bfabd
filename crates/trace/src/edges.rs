//! The JSON form of graphs of dependencies.

use std::io::{self, Write};

use serde_json::Value;
use syncline_deps::{ArgPair, DepGraph, EdgeFlags, EdgeKinds, Reason, RecordedTasks};

use crate::json::check_head;
use crate::json_write::integer;
use crate::member::{Members, as_u64, shape};
use crate::{Place, Trace, TraceError};

const FORMAT: &str = "syncline-deps";
const VERSION: u64 = 1;

/// Writes the JSON form of `graph`, one edge a line.
pub fn write_edges(graph: &DepGraph, mut out: impl Write) -> io::Result<()> {
    write!(
        out,
        "{{\"format\": \"{FORMAT}\", \"version\": {VERSION}, \"tasks\": {},",
        graph.tasks()
    )?;
    write!(out, "\n \"edges\": [")?;
    for (position, edge) in graph.edges().iter().enumerate() {
        let comma = if position == 0 { "" } else { "," };
        let (pred, succ) = (integer(graph.id(edge.pred)), integer(graph.id(edge.succ)));
        write!(out, "{comma}\n  {{\"pred\": {pred}, \"succ\": {succ}, ")?;
        write!(out, "\"kinds\": [{}], ", quoted(edge.kinds.names()))?;
        write!(out, "\"flags\": [{}], ", quoted(edge.flags.names()))?;
        let pairs = graph.args(edge).iter().map(|(pred, succ)| format!("[{pred}, {succ}]"));
        write!(out, "\"args\": [{}]}}", pairs.collect::<Vec<_>>().join(", "))?;
    }
    out.write_all(b"]}\n")
}

/// Reads the JSON form of the edges of `trace`.
///
/// `kinds` and `args` may be absent; an edge without `flags` is one to wait for.
pub fn read_edges(bytes: &[u8], trace: &Trace) -> Result<DepGraph, TraceError> {
    let document: Value = syncline_files::from_json(bytes)?;
    let mut members = Members::new(document, Place::ROOT)?;
    check_head(members.take("format"), members.take("version"), FORMAT, VERSION)?;
    let tasks = members.u64("tasks")?;
    if tasks != trace.tasks.len() as u64 {
        return Err(TraceError::OtherTrace { tasks, trace: trace.tasks.len() as u64 });
    }
    let edges = match members.require("edges")? {
        Value::Array(edges) => edges,
        other => return Err(shape(Place::ROOT.member("edges"), "a list", &other)),
    };
    let mut by_succ: Vec<(u32, Reason)> = Vec::with_capacity(edges.len());
    for (index, edge) in edges.into_iter().enumerate() {
        read_edge(edge, Place::entry("edges", index), trace, &mut by_succ)?;
    }
    members.finish(&["format", "version", "tasks", "edges"])?;
    by_succ.sort_by_key(|(succ, _)| *succ);
    let mut graph = trace.graph();
    let mut reasons = Vec::new();
    for run in by_succ.chunk_by(|a, b| a.0 == b.0) {
        reasons.extend(run.iter().map(|(_, reason)| *reason));
        graph.push_reasons(run[0].0, &mut reasons);
    }
    Ok(graph)
}
fn quoted(names: impl Iterator<Item = &'static str>) -> String {
    names.map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

fn read_edge(
    value: Value,
    place: Place,
    trace: &Trace,
    into: &mut Vec<(u32, Reason)>,
) -> Result<(), TraceError> {
    let mut members = Members::new(value, place)?;
    let mut end = |member| {
        let id = members.u64(member)?;
        let position = trace.position(id);
        let unknown = TraceError::UnknownTask { place: place.member(member), task: id };
        position.map(|position| position as u32).ok_or(unknown)
    };
    let (pred, succ) = (end("pred")?, end("succ")?);
    let flags = names(&mut members, "flags", EdgeFlags::from_name, "\"wait\" or \"retain\"")?;
    let kinds = names(&mut members, "kinds", EdgeKinds::from_name, "the name of a kind of edge")?;
    let flags = flags.map_or(EdgeFlags::WAIT, |names| {
        names.into_iter().fold(EdgeFlags::EMPTY, |all, one| all | one)
    });
    let kinds = kinds.into_iter().flatten().fold(EdgeKinds::EMPTY, |all, one| all | one);
    let pairs = members.optional_list("args", arg_pair)?.unwrap_or_default();
    members.finish(&["pred", "succ", "kinds", "flags", "args"])?;
    into.push((succ, Reason { pred, flags, kinds, args: None }));
    into.extend(
        pairs.into_iter().map(|pair| (succ, Reason { pred, flags, kinds, args: Some(pair) })),
    );
    Ok(())
}

fn names<T>(
    members: &mut Members,
    member: &'static str,
    known: fn(&str) -> Option<T>,
    expected: &'static str,
) -> Result<Option<Vec<T>>, TraceError> {
    members.optional_list(member, |value, place| {
        value.as_str().and_then(known).ok_or_else(|| shape(place, expected, &value))
    })
}

fn arg_pair(value: Value, place: Place) -> Result<ArgPair, TraceError> {
    let Some([pred, succ]) = value.as_array().map(Vec::as_slice) else {
        return Err(shape(place, "a pair of positions", &value));
    };
    let position = |value: &Value| {
        u32::try_from(as_u64(value, place)?).map_err(|_| shape(place, "a position", value))
    };
    Ok((position(pred)?, position(succ)?))
}
