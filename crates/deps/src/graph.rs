//! Graphs of dependencies: the edges of a whole trace, with why they are there.

use std::io::{self, Write};

use serde_json::Value;

use crate::trace::{Members, Place, Trace, TraceError, as_u64, check_head, integer, shape};
use crate::{EdgeFlags, EdgeKinds};

const FORMAT: &str = "syncline-deps";
const VERSION: u64 = 1;

/// The edges of a trace, ordered by successor and then by predecessor, each pair once.
///
/// Tasks are named by their position in the trace; [`DepGraph::id`] gives their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DepGraph {
    ids: Vec<u64>,
    edges: Vec<DepEdge>,
    args: Vec<ArgPair>,
}

/// Positions of two arguments that conflict: the predecessor's and the successor's.
pub type ArgPair = (u32, u32);

/// One edge of a [`DepGraph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepEdge {
    /// The position of the task that comes first.
    pub pred: u32,
    /// The position of the task that comes after it.
    pub succ: u32,
    /// What the edge does.
    pub flags: EdgeFlags,
    /// Why it is there.
    pub kinds: EdgeKinds,
    args_start: u32,
    args_end: u32,
}

impl DepEdge {
    /// Whether the edge orders its tasks, rather than only keeping something alive.
    pub fn waits(&self) -> bool {
        self.flags.contains(EdgeFlags::WAIT)
    }
}

/// One reason for an edge, before the reasons of a pair of tasks are merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reason {
    pub(crate) pred: u32,
    pub(crate) flags: EdgeFlags,
    pub(crate) kinds: EdgeKinds,
    pub(crate) args: Option<ArgPair>,
}

impl DepGraph {
    /// A graph of the tasks of `trace`, without edges.
    pub(crate) fn of(trace: &Trace) -> Self {
        Self { ids: trace.tasks.iter().map(|task| task.id).collect(), ..Self::default() }
    }

    /// Number of tasks.
    pub fn tasks(&self) -> usize {
        self.ids.len()
    }

    /// The id of the task at `position`.
    pub fn id(&self, position: u32) -> u64 {
        self.ids[position as usize]
    }

    /// All edges, ordered by successor and then by predecessor.
    pub fn edges(&self) -> &[DepEdge] {
        &self.edges
    }

    /// The edges into the task at `position`.
    pub fn edges_into(&self, position: u32) -> &[DepEdge] {
        let start = self.edges.partition_point(|edge| edge.succ < position);
        let count = self.edges[start..].partition_point(|edge| edge.succ == position);
        &self.edges[start..start + count]
    }

    /// The arguments that conflict, in order.
    pub fn args(&self, edge: &DepEdge) -> &[ArgPair] {
        &self.args[edge.args_start as usize..edge.args_end as usize]
    }

    /// Adds the edges into `succ`, which comes after the successors of all edges so far. Reasons
    /// for one pair of tasks are merged; `reasons` is left empty.
    pub(crate) fn push_reasons(&mut self, succ: u32, reasons: &mut Vec<Reason>) {
        reasons.sort_unstable_by_key(|reason| (reason.pred, reason.args));
        for reason in reasons.drain(..) {
            let known =
                self.edges.last().is_some_and(|edge| (edge.pred, edge.succ) == (reason.pred, succ));
            if !known {
                let at = self.args.len() as u32;
                self.edges.push(DepEdge {
                    pred: reason.pred,
                    succ,
                    flags: EdgeFlags::EMPTY,
                    kinds: EdgeKinds::EMPTY,
                    args_start: at,
                    args_end: at,
                });
            }
            let edge = self.edges.last_mut().expect("pushed above, or known");
            edge.flags |= reason.flags;
            edge.kinds |= reason.kinds;
            if let Some(pair) = reason.args
                && self.args[edge.args_start as usize..].last() != Some(&pair)
            {
                self.args.push(pair);
                edge.args_end += 1;
            }
        }
    }

    /// The same graph with only the edges that `keep` wants.
    #[must_use]
    pub(crate) fn filtered(&self, mut keep: impl FnMut(&DepEdge) -> bool) -> Self {
        let mut graph = Self { ids: self.ids.clone(), ..Self::default() };
        for edge in self.edges.iter().filter(|edge| keep(edge)) {
            let args_start = graph.args.len() as u32;
            graph.args.extend_from_slice(self.args(edge));
            graph.edges.push(DepEdge { args_start, args_end: graph.args.len() as u32, ..*edge });
        }
        graph
    }

    /// Writes the JSON form, one edge a line.
    pub fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        write!(
            out,
            "{{\"format\": \"{FORMAT}\", \"version\": {VERSION}, \"tasks\": {},",
            self.tasks()
        )?;
        write!(out, "\n \"edges\": [")?;
        for (position, edge) in self.edges.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            let (pred, succ) = (integer(self.id(edge.pred)), integer(self.id(edge.succ)));
            write!(out, "{comma}\n  {{\"pred\": {pred}, \"succ\": {succ}, ")?;
            write!(out, "\"kinds\": [{}], ", quoted(edge.kinds.names()))?;
            write!(out, "\"flags\": [{}], ", quoted(edge.flags.names()))?;
            let pairs = self.args(edge).iter().map(|(pred, succ)| format!("[{pred}, {succ}]"));
            write!(out, "\"args\": [{}]}}", pairs.collect::<Vec<_>>().join(", "))?;
        }
        out.write_all(b"]}\n")
    }

    /// Reads the JSON form of the edges of `trace`.
    ///
    /// `kinds` and `args` may be absent; an edge without `flags` is one to wait for.
    pub fn from_json(bytes: &[u8], trace: &Trace) -> Result<Self, TraceError> {
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
        let mut graph = Self::of(trace);
        let mut reasons = Vec::new();
        for run in by_succ.chunk_by(|a, b| a.0 == b.0) {
            reasons.extend(run.iter().map(|(_, reason)| *reason));
            graph.push_reasons(run[0].0, &mut reasons);
        }
        Ok(graph)
    }
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
