//! Task graphs: submissions recorded, with the dependencies that were discovered.
//!
//! Recording goes through the same [`Submitter`](syncline_deps::Submitter) as the stream runtime
//! and offline replay, so that a plan has the dependencies that a stream would have had.

mod data;
mod spec;

use std::sync::Arc;

use syncline_deps::{DepInputs, ScopeKind, SubmitError, SubmitOptions, Submitter};
use syncline_tensor::{BufferId, TaskId};

pub(crate) use data::{ArgRecord, BufferRecord, GraphData, PlaceRecord, TaskRecord};
pub use data::{BufferInfo, BufferKind, GraphEdge, TaskArg, TaskInfo};
pub use spec::{BufferSpec, DeviceChoice, TaskSpec};

use crate::plan::{ARENA_ALIGN, TaskIndex};
use rustc_hash::FxHashMap;

/// Recorded tasks, their arguments and the edges between them.
///
/// ```
/// use syncline_tensor::{Arg, View};
/// use syncline_plan::{BufferSpec, TaskGraph, TaskSpec};
///
/// let mut graph = TaskGraph::new();
/// let a = graph.add_buffer(BufferSpec::external("a", 64))?;
/// let all = View::bytes_at(0, 64)?;
/// graph.submit(&TaskSpec::new("write", &[Arg::output_existing(a, all)]))?;
/// graph.submit(&TaskSpec::new("read", &[Arg::input(a, all)]).cost_ns(500))?;
/// let read = graph.tasks().nth(1).unwrap();
/// assert_eq!(read.edges()[0].pred.0, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TaskGraph {
    submitter: Submitter,
    // Shared with the plans made of it; written in place while there is none.
    data: Arc<GraphData>,
    place_ids: FxHashMap<PlaceRecord, u32>,
    /// Of all buffers, each rounded up to what it may take in an arena.
    bytes_total: u64,
}

/// Why something was not recorded; the graph is as it was before.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum GraphError {
    #[error("task `{task}`: {source}")]
    Submit { task: String, source: SubmitError },
    #[error("{0}")]
    Scope(#[source] SubmitError),
    #[error("buffer `{buffer}`: {source}")]
    Buffer { buffer: String, source: SubmitError },
    #[error("buffer `{buffer}` of {bytes} bytes: the buffers of a graph have at most {max} in all")]
    TooLarge { buffer: String, bytes: u64, max: u64 },
    #[error("the graph holds {held} {what}, the most it can: record several graphs instead")]
    Full { what: &'static str, held: usize },
}

impl Default for TaskGraph {
    fn default() -> Self {
        Self::new()
    }
}

impl TaskGraph {
    /// A graph with nothing in it.
    pub fn new() -> Self {
        Self {
            submitter: Submitter::new(SubmitOptions::default()),
            data: Arc::default(),
            place_ids: FxHashMap::default(),
            bytes_total: 0,
        }
    }

    /// The most bytes that all buffers may have together: offsets are signed numbers.
    pub const BYTES_MAX: u64 = i64::MAX as u64;

    /// Adds a buffer.
    pub fn add_buffer(&mut self, spec: BufferSpec<'_>) -> Result<BufferId, GraphError> {
        check_room("buffers", self.data.buffers.len())?;
        let rounded = spec.bytes.checked_next_multiple_of(ARENA_ALIGN);
        let total = rounded.and_then(|bytes| bytes.checked_add(self.bytes_total));
        let Some(total) = total.filter(|&total| total <= Self::BYTES_MAX) else {
            let (buffer, bytes, max) = (spec.name.to_owned(), spec.bytes, Self::BYTES_MAX);
            return Err(GraphError::TooLarge { buffer, bytes, max });
        };
        let id = BufferId(self.data.buffers.len() as u64);
        self.submitter
            .declare_buffer(id, spec.bytes)
            .map_err(|source| GraphError::Buffer { buffer: spec.name.to_owned(), source })?;
        self.bytes_total = total;
        let data = Arc::make_mut(&mut self.data);
        let name = data.names.intern(spec.name);
        let home = spec.home.map(|device| data.names.intern(device));
        data.buffers.push(BufferRecord { name, bytes: spec.bytes, home, kind: spec.kind });
        Ok(id)
    }

    /// Records a task and what it must wait for.
    pub fn submit(&mut self, spec: &TaskSpec<'_>) -> Result<TaskId, GraphError> {
        check_room("tasks", self.data.tasks.len())?;
        check_room("arguments", self.data.args.len() + spec.args.len())?;
        check_room("edges", self.data.edges.len())?;
        let data = Arc::make_mut(&mut self.data);
        let edges = &mut data.edges;
        let inputs = DepInputs { args: spec.args, deps: spec.deps };
        let submitted = self.submitter.submit(inputs, |edge| {
            let pred = TaskIndex(edge.pred.sequence() as u32);
            edges.push(GraphEdge { pred, flags: edge.flags, kinds: edge.kinds });
        });
        let id = submitted
            .map_err(|source| GraphError::Submit { task: spec.name.to_owned(), source })?;
        assert_eq!(
            id.sequence(),
            data.tasks.len() as u64,
            "the graph is its submitter's only user"
        );
        for arg in spec.args {
            let record = PlaceRecord { buffer: arg.buffer.0 as u32, view: arg.view };
            let next = data.places.len() as u32;
            let place = *self.place_ids.entry(record).or_insert_with_key(|record| {
                data.places.push(*record);
                next
            });
            data.args.push(ArgRecord { place, access: arg.access });
        }
        data.deps.extend(spec.deps.iter().map(|dep| TaskIndex(dep.sequence() as u32)));
        let record = TaskRecord {
            name: data.names.intern(spec.name),
            kernel: data.names.intern(spec.kernel),
            args_end: data.args.len() as u32,
            edges_end: data.edges.len() as u32,
            deps_end: data.deps.len() as u32,
            choice: data.intern_choice(spec.device),
            cost_ns: spec.cost_ns,
            priority: spec.priority,
            manual: self.submitter.scope_kind() == ScopeKind::Manual,
        };
        data.tasks.push(record);
        Ok(id)
    }

    /// Opens a scope; in a `Manual` one, tasks wait for their explicit deps only.
    pub fn enter_scope(&mut self, kind: ScopeKind) {
        self.submitter.enter_scope(kind);
    }

    /// Closes the innermost scope.
    pub fn leave_scope(&mut self) -> Result<(), GraphError> {
        self.submitter.leave_scope().map(|_| ()).map_err(GraphError::Scope)
    }

    /// The tasks, in submission order.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = TaskInfo<'_>> {
        self.data.tasks()
    }

    /// The buffers, by id.
    pub fn buffers(&self) -> impl ExactSizeIterator<Item = BufferInfo<'_>> {
        self.data.buffers()
    }

    /// A number that two graphs share only if they are the same: tasks, arguments, edges, buffers
    /// and costs.
    pub fn fingerprint(&self) -> u64 {
        self.data.fingerprint()
    }

    pub(crate) fn data(&self) -> &Arc<GraphData> {
        &self.data
    }
}

impl std::fmt::Debug for TaskGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskGraph")
            .field("tasks", &self.data.tasks.len())
            .field("edges", &self.data.edges.len())
            .field("buffers", &self.data.buffers.len())
            .finish()
    }
}

/// Indices of all kinds are 32 bits wide, with room for copies beside the tasks.
fn check_room(what: &'static str, held: usize) -> Result<(), GraphError> {
    if held >= u32::MAX as usize / 4 {
        return Err(GraphError::Full { what, held });
    }
    Ok(())
}
