//! Submission: the front door of dependency discovery.

use syncline_tensor::{BufferId, TaskId};

use crate::fanin::{register_resolved, resolve_and_fanin};
use crate::merge::EdgeMerger;
use crate::prune::ReachWindow;
use crate::scope::ScopeStack;
use crate::{DepInputs, Edge, EdgeFlags, MapStats, ScopeKind, SubmitError, TensorMap};

/// How a [`Submitter`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubmitOptions {
    /// The ring that the tasks belong to; part of their ids.
    pub ring: u8,
    /// Emit also the edges that other edges imply.
    pub full: bool,
    /// Up to this many views stay known after the tasks that used them have been retired, at less
    /// than a kilobyte each: a program that comes round to them finds them with one look-up.
    pub views_kept: usize,
}

impl Default for SubmitOptions {
    fn default() -> Self {
        Self { ring: 0, full: false, views_kept: 1024 }
    }
}

/// What a [`Submitter`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubmitStats {
    /// Tasks issued.
    pub tasks: u64,
    /// Edges emitted.
    pub edges: u64,
    /// Edges left out because other edges imply them.
    pub pruned: u64,
    /// The tensor map's own figures.
    pub map: MapStats,
}

/// Issues task ids and finds what each task must come after.
///
/// ```
/// use syncline_deps::*;
/// use syncline_tensor::*;
///
/// let mut submitter = Submitter::new(SubmitOptions::default());
/// let buffer = submitter.create_buffer(4096);
/// let matrix = View::contiguous(Dtype::F32, &[32, 32])?;
/// let (left, right) = (matrix.slice(1, 0..16)?, matrix.slice(1, 16..32)?);
///
/// let mut edges = Vec::new();
/// for args in [
///     [Arg::output_existing(buffer, left)],
///     [Arg::output_existing(buffer, right)],
///     [Arg::input(buffer, matrix)],
/// ] {
///     let mut preds = Vec::new();
///     let inputs = DepInputs { args: &args, deps: &[] };
///     let task = submitter.submit(inputs, |edge| preds.push(edge.pred.sequence()))?;
///     edges.push((task.sequence(), preds));
/// }
/// // The halves are written side by side; the reader waits for both.
/// assert_eq!(edges, [(0, vec![]), (1, vec![]), (2, vec![0, 1])]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Submitter {
    options: SubmitOptions,
    map: TensorMap,
    merger: EdgeMerger,
    window: ReachWindow,
    scopes: ScopeStack,
    next: u64,
    next_buffer: u64,
    edges: u64,
    pruned: u64,
}

impl Submitter {
    /// Creates a submitter without buffers that has issued nothing.
    pub fn new(options: SubmitOptions) -> Self {
        let map = TensorMap::keeping(options.views_kept);
        Self { options, map, ..Self::default() }
    }

    /// Declares a buffer of `bytes` bytes under an id that was never used.
    pub fn create_buffer(&mut self, bytes: u64) -> BufferId {
        let mut buffer = BufferId(self.next_buffer);
        // Above all that were declared, unless the caller has declared the largest id there is.
        while self.declare_buffer(buffer, bytes).is_err() {
            buffer.0 = buffer.0.wrapping_add(1);
        }
        buffer
    }

    /// Declares a buffer of `bytes` bytes under the caller's id.
    pub fn declare_buffer(&mut self, buffer: BufferId, bytes: u64) -> Result<(), SubmitError> {
        self.map.add_buffer(buffer, bytes)?;
        self.next_buffer = self.next_buffer.max(buffer.0.saturating_add(1));
        Ok(())
    }

    /// Forgets a buffer: later uses of it are errors.
    pub fn release_buffer(&mut self, buffer: BufferId) -> Result<(), SubmitError> {
        self.map.remove_buffer(buffer)
    }

    /// Returns the size of a buffer, if it is known.
    pub fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
        self.map.buffer_bytes(buffer)
    }

    /// Issues the next task and emits what it must come after, each predecessor once.
    ///
    /// Everything is checked first: after an error, it is as if the task had never come. An edge
    /// that only orders and that others of the last 64 tasks imply is left out, unless
    /// [`SubmitOptions::full`] is set; an edge that keeps a buffer alive never is, because
    /// lifetimes are not transitive.
    #[inline]
    pub fn submit(
        &mut self,
        inputs: DepInputs<'_>,
        mut emit: impl FnMut(Edge),
    ) -> Result<TaskId, SubmitError> {
        let task = self.next_task();
        self.check_deps(inputs.deps)?;
        let scope = self.scopes.kind();
        self.merger.begin();
        let merger = &mut self.merger;
        resolve_and_fanin(&inputs, &mut self.map, scope, |edge| merger.add(edge))?;
        self.emit_merged(&mut emit);
        register_resolved(&inputs, task, &mut self.map, scope);
        self.next += 1;
        Ok(task)
    }

    #[inline]
    fn check_deps(&self, deps: &[TaskId]) -> Result<(), SubmitError> {
        let next = self.next_task();
        let issued = |dep: &TaskId| dep.ring() == next.ring() && dep.sequence() < next.sequence();
        match deps.iter().position(|dep| !issued(dep)) {
            None => Ok(()),
            Some(position) => {
                Err(SubmitError::DepNeverIssued { position, dep: deps[position], next })
            }
        }
    }

    #[inline]
    fn emit_merged(&mut self, emit: &mut impl FnMut(Edge)) {
        let edges = self.merger.edges();
        let waits = edges.iter().filter(|edge| edge.flags().contains(EdgeFlags::WAIT));
        // All are of one ring, so that ids differ by as much as their sequence numbers.
        let implied =
            self.window.add(self.next_task().to_bits(), waits.map(|edge| edge.pred.to_bits()));
        let keep_all = self.options.full || implied.is_empty();
        let mut emitted = 0;
        for &edge in edges {
            let needed = edge.flags().contains(EdgeFlags::RETAIN);
            if keep_all || needed || !implied.contains(edge.pred.to_bits()) {
                emitted += 1;
                emit(edge.edge());
            }
        }
        self.edges += emitted;
        self.pruned += edges.len() as u64 - emitted;
    }

    /// Opens a scope inside the current one.
    pub fn enter_scope(&mut self, kind: ScopeKind) {
        self.scopes.enter(kind);
    }

    /// Closes the innermost scope and returns its kind.
    pub fn leave_scope(&mut self) -> Result<ScopeKind, SubmitError> {
        self.scopes.leave()
    }

    /// Returns the kind of the scope that the next task belongs to.
    #[inline]
    pub fn scope_kind(&self) -> ScopeKind {
        self.scopes.kind()
    }

    /// Returns the number of scopes that are open.
    pub fn scope_depth(&self) -> usize {
        self.scopes.depth()
    }

    /// Returns the id that the next task will get.
    #[inline]
    pub fn next_task(&self) -> TaskId {
        TaskId::new(self.options.ring, self.next)
    }

    /// Forgets a task that has finished: nothing waits for it any more. Returns `true` if it was
    /// live until then.
    ///
    /// Tasks may be retired in any order. An id that was never issued is not live.
    pub fn retire(&mut self, task: TaskId) -> bool {
        task.ring() == self.options.ring && task.sequence() < self.next && self.map.retire(task)
    }

    /// Returns `true` if `task` was issued and not retired.
    pub fn is_live(&self, task: TaskId) -> bool {
        task.ring() == self.options.ring && task.sequence() < self.next && self.map.is_live(task)
    }

    /// Returns figures of the work so far. Visits everything that the map holds: not for every
    /// task.
    pub fn stats(&self) -> SubmitStats {
        SubmitStats {
            tasks: self.next,
            edges: self.edges,
            pruned: self.pruned,
            map: self.map.stats(),
        }
    }
}
