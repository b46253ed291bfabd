//! The trace itself: buffers, scopes and tasks in the order of their submission.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use syncline_deps::ScopeKind;
use syncline_tensor::{Arg, BufferId};

/// Members of a JSON object that dependencies do not need, and those for other programs (`x-`):
/// kept as they came.
pub type Extra = Map<String, Value>;

/// Everything that a program submitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The buffers that tasks refer to.
    pub buffers: Vec<TraceBuffer>,
    /// The scopes, in the order in which they were entered; empty in traces that only tell `auto`
    /// from `manual`.
    pub scopes: Vec<TraceScope>,
    /// The tasks, in the order of their submission.
    pub tasks: Vec<TraceTask>,
    /// Statistics that the program wrote, in order; their form is the program's own.
    pub stats: Vec<Value>,
    /// Members of the whole, such as `kernels`.
    pub extra: Extra,
}

/// A buffer of a [`Trace`].
#[derive(Clone, Debug, PartialEq)]
pub struct TraceBuffer {
    /// Its identity, unique in the trace.
    pub id: BufferId,
    /// Its size.
    pub bytes: u64,
    /// What people call it.
    pub name: Option<Arc<str>>,
    /// How many tasks had been submitted when it was released, if it was.
    pub released_at: Option<u64>,
    /// Other members, such as `init`.
    pub extra: Extra,
}

/// A scope of a [`Trace`]; its id is its position.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceScope {
    /// Whether dependencies are discovered in it.
    pub kind: ScopeKind,
    /// The scope it was entered in.
    pub parent: Option<u32>,
    /// What people call it.
    pub name: Option<Arc<str>>,
    /// Other members.
    pub extra: Extra,
}

/// A task of a [`Trace`].
#[derive(Clone, Debug, PartialEq)]
pub struct TraceTask {
    /// Its identity: unique, and larger than that of every task before it.
    pub id: u64,
    /// What people call it.
    pub name: Option<Arc<str>>,
    /// Whether its dependencies are discovered. Adjacent `manual` tasks form one manual scope.
    pub scope: ScopeKind,
    /// Which of [`Trace::scopes`] it was submitted in, where the trace says so.
    pub scope_id: Option<u32>,
    /// Ids of earlier tasks that it waits for by request.
    pub deps: Vec<u64>,
    /// What it touches.
    pub args: Vec<TraceArg>,
    /// A device spec, or a list of them to choose from.
    pub device: Option<Value>,
    /// When it started, in a run that was timed.
    pub start_ns: Option<u64>,
    /// When it ended, in a run that was timed.
    pub end_ns: Option<u64>,
    /// Where it ran, in a run that was timed.
    pub lane: Option<TraceLane>,
    /// How many tasks had been submitted when it was retired, if that was recorded.
    pub retired_at: Option<u64>,
    /// Other members, such as `kernel`, `scalars`, `priority` and `blocks`.
    pub extra: Extra,
    /// Members that have their default and are left out when the task is written.
    pub unwritten: Unwritten,
}

/// Which members of a task that have a default are not written while they have it.
///
/// Keeps a trace that leaves them out the same through a conversion and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// `scope`, when it is `auto`.
    pub scope: bool,
    /// `deps`, when there is none.
    pub deps: bool,
}

/// One argument of a [`TraceTask`].
#[derive(Clone, Debug, PartialEq)]
pub struct TraceArg {
    /// The access, the buffer and the view.
    pub arg: Arg,
    /// Other members.
    pub extra: Extra,
}

/// Where a task ran: a number or a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TraceLane {
    /// The number of the lane.
    Number(u64),
    /// The name of the lane, such as `cpu:0/1`.
    Name(Arc<str>),
}

impl fmt::Display for TraceLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceLane::Number(number) => number.fmt(f),
            TraceLane::Name(name) => f.write_str(name),
        }
    }
}

impl TraceBuffer {
    /// A buffer that has no name.
    pub fn new(id: BufferId, bytes: u64) -> Self {
        Self { id, bytes, name: None, released_at: None, extra: Extra::new() }
    }

    /// The same buffer, called `name`.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self }
    }
}

impl TraceTask {
    /// A task in an `auto` scope, without explicit dependencies.
    pub fn new(id: u64, name: &str, args: impl IntoIterator<Item = Arg>) -> Self {
        Self {
            name: Some(name.into()),
            args: args.into_iter().map(TraceArg::from).collect(),
            ..Self::bare(id)
        }
    }

    pub(crate) fn bare(id: u64) -> Self {
        Self {
            id,
            name: None,
            scope: ScopeKind::Auto,
            scope_id: None,
            deps: Vec::new(),
            args: Vec::new(),
            device: None,
            start_ns: None,
            end_ns: None,
            lane: None,
            retired_at: None,
            extra: Extra::new(),
            unwritten: Unwritten::default(),
        }
    }

    /// Its name, or that of its kernel, or nothing.
    pub fn label(&self) -> &str {
        let kernel = || self.extra.get("kernel").and_then(Value::as_str);
        self.name.as_deref().or_else(kernel).unwrap_or("")
    }
}

impl From<Arg> for TraceArg {
    fn from(arg: Arg) -> Self {
        Self { arg, extra: Extra::new() }
    }
}
