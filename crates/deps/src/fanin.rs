//! The two bodies of dependency discovery: look up what a task waits for, then register what it
//! does.
//!
//! Live submission, recording and offline replay all come through here;
//! [`Submitter`](crate::Submitter) adds ids, scopes, merging and pruning on top.

use std::convert::Infallible;
use std::ops::ControlFlow;

use syncline_tensor::{Arg, TaskId};

use crate::merge::Packed;
use crate::{Edge, EdgeFlags, EdgeKinds, ScopeKind, SubmitError, TensorMap};

/// What dependency discovery needs to know of a task, borrowed from wherever it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct DepInputs<'a> {
    /// The tagged arguments, in the task's order.
    pub args: &'a [Arg],
    /// Explicit dependencies.
    pub deps: &'a [TaskId],
}

/// Emits an edge for everything that a task with these inputs must come after.
///
/// Edges come as they are found: several may name one predecessor. `emit` may stop the walk.
/// Nothing is registered, so that a task never finds itself. The only error is an argument that
/// does not fit its buffer.
///
/// ```
/// use std::ops::ControlFlow;
/// use syncline_deps::*;
/// use syncline_tensor::*;
///
/// let mut map = TensorMap::new();
/// let (buffer, view) = (BufferId(0), View::bytes_at(0, 64)?);
/// map.add_buffer(buffer, 64)?;
/// let write = DepInputs { args: &[Arg::inout(buffer, view)], deps: &[] };
/// register_task_outputs(&write, TaskId::new(0, 0), &mut map, ScopeKind::Auto)?;
///
/// let read = DepInputs { args: &[Arg::input(buffer, view)], deps: &[] };
/// let first = compute_task_fanin(&read, &mut map, ScopeKind::Auto, ControlFlow::Break)?;
/// assert_eq!(first.break_value().unwrap().pred, TaskId::new(0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compute_task_fanin<B>(
    inputs: &DepInputs<'_>,
    map: &mut TensorMap,
    scope: ScopeKind,
    mut emit: impl FnMut(Edge) -> ControlFlow<B>,
) -> Result<ControlFlow<B>, SubmitError> {
    map.resolve(inputs.args, scope == ScopeKind::Manual)?;
    let mut emit = |edge: Packed| emit(edge.edge());
    if let stop @ ControlFlow::Break(_) = explicit(inputs, map, &mut emit) {
        return Ok(stop);
    }
    if scope == ScopeKind::Auto {
        for (position, arg) in inputs.args.iter().enumerate() {
            let place = map.place(position);
            if let stop @ ControlFlow::Break(_) =
                map.fanin_of(place, position, arg.access, &mut emit)
            {
                return Ok(stop);
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Registers what `task` does, for later tasks to find.
///
/// `task` must be newer than all tasks registered before, and must wait for all that
/// [`compute_task_fanin`] emits for the same inputs, because older accesses are forgotten here. The
/// accesses of a manual task are added beside all others.
pub fn register_task_outputs(
    inputs: &DepInputs<'_>,
    task: TaskId,
    map: &mut TensorMap,
    scope: ScopeKind,
) -> Result<(), SubmitError> {
    map.resolve(inputs.args, scope == ScopeKind::Manual)?;
    register_resolved(inputs, task, map, scope);
    Ok(())
}

/// [`compute_task_fanin`] in one pass, which also resolves the arguments: edges that were emitted
/// before an error mean nothing.
#[inline(never)]
pub(crate) fn resolve_and_fanin(
    inputs: &DepInputs<'_>,
    map: &mut TensorMap,
    scope: ScopeKind,
    mut emit: impl FnMut(Packed),
) -> Result<(), SubmitError> {
    map.begin_resolve(inputs.args, scope == ScopeKind::Manual)?;
    let mut emit = |edge| -> ControlFlow<Infallible> {
        emit(edge);
        ControlFlow::Continue(())
    };
    if !inputs.deps.is_empty() {
        let ControlFlow::Continue(()) = explicit(inputs, map, &mut emit);
    }
    for (position, arg) in inputs.args.iter().enumerate() {
        let place = map.resolve_next(position, arg)?;
        if scope == ScopeKind::Auto {
            let ControlFlow::Continue(()) = map.fanin_of(place, position, arg.access, &mut emit);
        }
    }
    Ok(())
}

/// Shows the explicit dependencies that are left to wait for.
fn explicit<B>(
    inputs: &DepInputs<'_>,
    map: &TensorMap,
    emit: &mut impl FnMut(Packed) -> ControlFlow<B>,
) -> ControlFlow<B> {
    for &pred in inputs.deps {
        if map.is_live(pred) {
            let (flags, kinds) = (EdgeFlags::WAIT, EdgeKinds::EXPLICIT);
            emit(Packed::of(Edge { pred, flags, kinds, pred_arg: None, succ_arg: None }))?;
        }
    }
    ControlFlow::Continue(())
}

/// [`register_task_outputs`] for arguments that the map has resolved.
#[inline(never)]
pub(crate) fn register_resolved(
    inputs: &DepInputs<'_>,
    task: TaskId,
    map: &mut TensorMap,
    scope: ScopeKind,
) {
    map.count_notes();
    for (position, arg) in inputs.args.iter().enumerate() {
        map.register(position, arg.access, task, scope == ScopeKind::Manual);
    }
}
