//! Replay: a trace through the same submitter that programs use, keeping every edge it finds.

use syncline_deps::{
    DepGraph, DepInputs, Edge, EdgeKinds, Reason, RecordedTasks, ScopeKind, SubmitError,
    SubmitOptions, SubmitStats, Submitter, hazards,
};
use syncline_tensor::{Arg, Region, TaskId};

use crate::{Place, Trace, TraceTask};

/// What replaying a trace found.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The edges that the runtime would wire, with the arguments that conflict.
    pub graph: DepGraph,
    /// What the submitter counted.
    pub stats: SubmitStats,
}

/// A task that the submitter refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {source}")]
pub struct ReplayError {
    /// Which task.
    pub place: Place,
    /// Why.
    pub source: SubmitError,
}

impl RecordedTasks for Trace {
    fn len(&self) -> usize {
        self.tasks.len()
    }

    fn id(&self, task: usize) -> u64 {
        self.tasks[task].id
    }

    fn scope(&self, task: usize) -> ScopeKind {
        self.tasks[task].scope
    }

    fn arg_count(&self, task: usize) -> usize {
        self.tasks[task].args.len()
    }

    fn arg(&self, task: usize, position: usize) -> &Arg {
        &self.tasks[task].args[position].arg
    }

    fn preds(&self, task: usize) -> impl Iterator<Item = usize> {
        let known = |&dep| self.position(dep).expect("dependencies of a valid trace are its tasks");
        self.tasks[task].deps.iter().map(known)
    }
}

/// Submits the tasks of `trace` one after the other. No task is retired in between, so that every
/// edge shows.
///
/// ```
/// use syncline_trace::{Trace, TraceBuffer, TraceTask};
/// use syncline_deps::SubmitOptions;
/// use syncline_tensor::{Arg, BufferId, Dtype, View};
/// use syncline_trace::replay;
///
/// let x = BufferId(0);
/// let whole = View::contiguous(Dtype::F32, &[16])?;
/// let mut trace = Trace::default();
/// trace.buffers.push(TraceBuffer::new(x, 64));
/// trace.tasks.push(TraceTask::new(0, "fill", [Arg::output(x, whole)]));
/// trace.tasks.push(TraceTask::new(1, "sum", [Arg::input(x, whole)]));
/// let replayed = replay(&trace, SubmitOptions::default())?;
/// assert_eq!(replayed.graph.edges().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn replay(trace: &Trace, options: SubmitOptions) -> Result<Replayed, ReplayError> {
    let mut graph = trace.graph();
    let mut reasons = Vec::new();
    let stats = submit_all(trace, options, |index, args, edges| {
        for edge in edges {
            explain(&trace.tasks, args, edge, &mut reasons);
        }
        graph.push_reasons(index as u32, &mut reasons);
    })?;
    Ok(Replayed { graph, stats })
}

/// The same without matching arguments: calls `each` with the position of a task and an edge
/// into it, as the submitter finds them.
pub fn replay_edges(
    trace: &Trace,
    options: SubmitOptions,
    mut each: impl FnMut(u32, &Edge),
) -> Result<SubmitStats, ReplayError> {
    submit_all(trace, options, |index, _, edges| {
        edges.iter().for_each(|edge| each(index as u32, edge));
    })
}

/// Submits every task, and calls `each` with its position, its arguments and the edges into it.
fn submit_all(
    trace: &Trace,
    options: SubmitOptions,
    mut each: impl FnMut(usize, &[Arg], &[Edge]),
) -> Result<SubmitStats, ReplayError> {
    let mut submitter = Submitter::new(options);
    for (index, buffer) in trace.buffers.iter().enumerate() {
        submitter
            .declare_buffer(buffer.id, buffer.bytes)
            .map_err(|source| ReplayError { place: Place::entry("buffers", index), source })?;
    }
    let (mut args, mut deps, mut edges) = (Vec::new(), Vec::new(), Vec::new());
    for (index, task) in trace.tasks.iter().enumerate() {
        let refused = |source| ReplayError { place: Place::task(index, task.id), source };
        args.clear();
        args.extend(task.args.iter().map(|arg| arg.arg));
        deps.clear();
        for (position, &dep) in task.deps.iter().enumerate() {
            deps.push(task_of(trace, dep, &submitter, position).map_err(refused)?);
        }
        enter(&mut submitter, task.scope).map_err(refused)?;
        let inputs = DepInputs { args: &args, deps: &deps };
        edges.clear();
        submitter.submit(inputs, |edge| edges.push(edge)).map_err(refused)?;
        each(index, &args, &edges);
    }
    Ok(submitter.stats())
}

/// The id that the submitter gave to the task that the trace knows as `dep`.
fn task_of(
    trace: &Trace,
    dep: u64,
    submitter: &Submitter,
    position: usize,
) -> Result<TaskId, SubmitError> {
    let next = submitter.next_task();
    let unknown = SubmitError::DepNeverIssued { position, dep: TaskId::from_bits(dep), next };
    let at = trace.position(dep).ok_or(unknown)?;
    Ok(TaskId::new(next.ring(), at as u64))
}

/// Neighbouring manual tasks share a scope; the scopes of the trace itself change nothing beyond
/// that.
fn enter(submitter: &mut Submitter, scope: ScopeKind) -> Result<(), SubmitError> {
    match (submitter.scope_kind(), scope) {
        (ScopeKind::Auto, ScopeKind::Manual) => submitter.enter_scope(ScopeKind::Manual),
        (ScopeKind::Manual, ScopeKind::Auto) => drop(submitter.leave_scope()?),
        _ => (),
    }
    Ok(())
}

/// Adds the arguments that conflict to what the submitter says of an edge.
fn explain(tasks: &[TraceTask], args: &[Arg], edge: &Edge, reasons: &mut Vec<Reason>) {
    let pred = edge.pred.sequence() as u32;
    let reason = Reason { pred, flags: edge.flags, kinds: edge.kinds, args: None };
    let known = edge.pred_arg.zip(edge.succ_arg);
    let known = known.map(|(pred_arg, succ_arg)| (u32::from(pred_arg), u32::from(succ_arg)));
    reasons.push(Reason { args: known, ..reason });
    for (pred_arg, before) in tasks[pred as usize].args.iter().map(|arg| &arg.arg).enumerate() {
        for (succ_arg, arg) in args.iter().enumerate() {
            if conflict(before, arg, edge.kinds) {
                let pair = Some((pred_arg as u32, succ_arg as u32));
                reasons.push(Reason { args: pair, ..reason });
            }
        }
    }
}

/// Whether the two arguments have a part in an edge of these kinds.
fn conflict(pred: &Arg, succ: &Arg, kinds: EdgeKinds) -> bool {
    let of_pair = hazards(pred.access, succ.access);
    if pred.buffer != succ.buffer || of_pair.bits() & kinds.bits() == 0 {
        return false;
    }
    let (Some(before), Some(after)) = (pred.view.span(), succ.view.span()) else { return false };
    before.0 < after.1
        && after.0 < before.1
        && Region::of(&pred.view).overlaps(&Region::of(&succ.view))
}
