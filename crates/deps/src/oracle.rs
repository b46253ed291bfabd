//! The oracle: every conflict of a trace by brute force, to hold dependency discovery against.
//!
//! It shares nothing with the tensor map but the views it is given: it writes out the byte
//! intervals of every view, compares every access with every earlier one that touches a common
//! byte, and forgets nothing. That costs memory and time which a runtime cannot spend, so it has
//! [`OracleLimits`] and says when a trace is past them.

mod closure;
mod intervals;

use std::collections::HashMap;

pub(crate) use closure::{Ancestors, blocks};
use intervals::Intervals;

use crate::graph::{DepGraph, Reason};
use crate::{EdgeFlags, EdgeKinds, ScopeKind};
use syncline_tensor::{Access, Arg, BufferId, View};

/// A pair of views that overlap is remembered, which takes memory: it counts as this many
/// comparisons.
const NEIGHBOUR_COST: u64 = 512;

/// How far brute force may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OracleLimits {
    /// Byte intervals of all views together; 16 bytes of memory each.
    pub intervals: u64,
    /// Accesses and views that are compared with one another.
    pub comparisons: u64,
    /// Conflicting pairs of accesses; up to 40 bytes of memory each.
    pub conflicts: u64,
    /// Machine words touched to close a graph transitively.
    pub closure_words: u64,
    /// Memory for the part of a transitive closure that is held at once.
    pub closure_bytes: usize,
}

impl Default for OracleLimits {
    fn default() -> Self {
        Self {
            intervals: 1 << 24,
            comparisons: 1 << 34,
            conflicts: 1 << 25,
            closure_words: 1 << 37,
            closure_bytes: 64 << 20,
        }
    }
}

/// Why the oracle has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum OracleError {
    #[error(
        "the views of this trace have more than {limit} byte intervals: too many to compare by brute force; analyse fewer tasks"
    )]
    Intervals { limit: u64 },
    #[error(
        "more than {limit} accesses and views would have to be compared by brute force; analyse fewer tasks"
    )]
    Comparisons { limit: u64 },
    #[error(
        "task {task} brings the conflicting accesses to more than {limit}: too many to list by brute force; analyse the tasks before it"
    )]
    Conflicts { task: u64, limit: u64 },
    #[error(
        "{tasks} tasks with {edges} edges are too many to close transitively by brute force; analyse fewer tasks"
    )]
    Closure { tasks: usize, edges: usize },
}

/// A recorded program, as the oracle reads it. Tasks are named by their position.
pub trait RecordedTasks {
    /// Returns the number of tasks.
    fn len(&self) -> usize;

    /// Returns `true` if there are no tasks.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the id of a task.
    fn id(&self, task: usize) -> u64;

    /// Returns the kind of scope that a task was submitted in.
    fn scope(&self, task: usize) -> ScopeKind;

    /// Returns the number of arguments of a task.
    fn arg_count(&self, task: usize) -> usize;

    /// Returns an argument of a task.
    fn arg(&self, task: usize, position: usize) -> &Arg;

    /// Returns the earlier tasks that a task waits for by request.
    fn preds(&self, task: usize) -> impl Iterator<Item = usize>;

    /// Returns the tasks as a graph without edges.
    fn graph(&self) -> DepGraph {
        DepGraph::new((0..self.len()).map(|task| self.id(task)).collect())
    }
}

/// Returns every pair of conflicting tasks and every explicit dependency of `program`.
pub fn full_graph(
    program: &impl RecordedTasks,
    limits: OracleLimits,
) -> Result<DepGraph, OracleError> {
    let mut budget = Budget { comparisons: limits.comparisons, conflicts: limits.conflicts };
    let places = Places::of(program, limits, &mut budget)?;
    let mut seen: Vec<Seen> = vec![Seen::default(); places.neighbours.len()];
    let mut graph = program.graph();
    let mut reasons = Vec::new();
    for task in 0..program.len() {
        for pred in program.preds(task) {
            let (flags, kinds) = (EdgeFlags::WAIT, EdgeKinds::EXPLICIT);
            reasons.push(Reason { pred: pred as u32, flags, kinds, args: None });
        }
        if program.scope(task) == ScopeKind::Auto {
            conflicts_of(program, task, &places, &seen, &mut budget, &mut reasons)
                .ok_or(OracleError::Comparisons { limit: limits.comparisons })?;
        }
        budget.conflicts = (budget.conflicts.checked_sub(reasons.len() as u64))
            .ok_or(OracleError::Conflicts { task: program.id(task), limit: limits.conflicts })?;
        graph.push_reasons(task as u32, &mut reasons);
        for (position, &place) in places.of_args[task].iter().enumerate() {
            seen[place].push(program.arg(task, position).access, (task as u32, position as u32));
        }
    }
    Ok(graph)
}

/// The rest of the limits.
struct Budget {
    comparisons: u64,
    conflicts: u64,
}

/// The accesses of one place so far. Reads have a list of their own: they never conflict with
/// one another.
#[derive(Clone, Default)]
struct Seen {
    reads: Vec<(u32, u32)>,
    others: Vec<(u32, u32)>,
}

impl Seen {
    fn push(&mut self, access: Access, at: (u32, u32)) {
        match access {
            Access::NoDep => (),
            Access::Input => self.reads.push(at),
            _ => self.others.push(at),
        }
    }

    /// Returns the accesses that one like `access` may conflict with.
    fn candidates(&self, access: Access) -> impl Iterator<Item = (u32, u32)> + '_ {
        let reads: &[(u32, u32)] = if access.writes() { &self.reads } else { &[] };
        reads.iter().chain(&self.others).copied()
    }

    fn len(&self) -> u64 {
        (self.reads.len() + self.others.len()) as u64
    }
}

/// Returns the fewest edges with the same transitive closure as `full`, which has all of them.
pub fn reduced_graph(full: &DepGraph, limits: OracleLimits) -> Result<DepGraph, OracleError> {
    let mut implied = vec![false; full.edges().len()];
    for block in blocks(full, limits)? {
        let ancestors = Ancestors::of(full, block);
        let mut start = 0;
        for edges in full.edges().chunk_by(|a, b| a.succ == b.succ) {
            let end = start + edges.len();
            ancestors.mark_implied(edges, &mut implied[start..end]);
            start = end;
        }
    }
    let mut implied = implied.into_iter();
    Ok(full.filtered(|edge| !implied.next().unwrap_or(false) && edge.waits()))
}

/// What orders an access after an earlier one of the same bytes; nothing where they may run at
/// once.
///
/// A writer before is read (`raw`) or overwritten (`waw`), a mere reader before is overwritten
/// (`war`).
pub fn hazards(pred: Access, succ: Access) -> EdgeKinds {
    let ignored = pred == Access::NoDep || succ == Access::NoDep;
    let grouped = pred.is_grouped() && pred == succ;
    if ignored || grouped || !(pred.writes() || succ.writes()) {
        return EdgeKinds::EMPTY;
    }
    let mut kinds = EdgeKinds::EMPTY;
    if pred.writes() && succ.reads() {
        kinds |= EdgeKinds::RAW;
    }
    if pred.writes() && succ.writes() {
        kinds |= EdgeKinds::WAW;
    }
    if !pred.writes() {
        kinds |= EdgeKinds::WAR;
    }
    if pred == Access::Output {
        kinds |= EdgeKinds::CREATOR;
    }
    if pred.is_grouped() || succ.is_grouped() {
        kinds |= EdgeKinds::COMMUTATIVE;
    }
    kinds
}

/// What an edge with these kinds does: where the predecessor made the buffer, it also keeps it
/// alive.
pub(crate) fn flags_of(kinds: EdgeKinds) -> EdgeFlags {
    let made = kinds.contains(EdgeKinds::CREATOR);
    if made { EdgeFlags::WAIT | EdgeFlags::RETAIN } else { EdgeFlags::WAIT }
}

/// Adds every conflict of `task` with an earlier one; `None` where the budget runs out.
fn conflicts_of(
    program: &impl RecordedTasks,
    task: usize,
    places: &Places,
    seen: &[Seen],
    budget: &mut Budget,
    reasons: &mut Vec<Reason>,
) -> Option<()> {
    for (position, &place) in places.of_args[task].iter().enumerate() {
        let access = program.arg(task, position).access;
        for neighbour in places.neighbours[place].iter().map(|&neighbour| &seen[neighbour]) {
            budget.comparisons = budget.comparisons.checked_sub(neighbour.len())?;
            for (pred, pred_arg) in neighbour.candidates(access) {
                let before = program.arg(pred as usize, pred_arg as usize);
                let mut kinds = hazards(before.access, access);
                if kinds.is_empty() {
                    continue;
                }
                if program.scope(pred as usize) == ScopeKind::Manual {
                    kinds |= EdgeKinds::BARRIER;
                }
                let args = Some((pred_arg, position as u32));
                reasons.push(Reason { pred, flags: flags_of(kinds), kinds, args });
            }
        }
    }
    Some(())
}

/// The distinct places (a buffer and a view of it) of a program, and which of them have a byte in
/// common.
struct Places {
    of_args: Vec<Vec<usize>>,
    neighbours: Vec<Vec<usize>>,
}

impl Places {
    fn of(
        program: &impl RecordedTasks,
        limits: OracleLimits,
        budget: &mut Budget,
    ) -> Result<Self, OracleError> {
        let mut numbers: HashMap<(BufferId, View), usize> = HashMap::new();
        let mut by_buffer: HashMap<BufferId, Vec<(usize, Intervals)>> = HashMap::new();
        let mut left = limits.intervals;
        let mut of_args = Vec::with_capacity(program.len());
        for task in 0..program.len() {
            let mut of_task = Vec::with_capacity(program.arg_count(task));
            for arg in (0..program.arg_count(task)).map(|position| program.arg(task, position)) {
                let next = numbers.len();
                let number = *numbers.entry((arg.buffer, arg.view)).or_insert(next);
                of_task.push(number);
                if number == next {
                    let intervals = Intervals::of(&arg.view, left)
                        .ok_or(OracleError::Intervals { limit: limits.intervals })?;
                    left -= intervals.len();
                    by_buffer.entry(arg.buffer).or_default().push((number, intervals));
                }
            }
            of_args.push(of_task);
        }
        let mut neighbours = vec![Vec::new(); numbers.len()];
        for places in by_buffer.values_mut() {
            find_neighbours(places, &mut neighbours, budget)
                .ok_or(OracleError::Comparisons { limit: limits.comparisons })?;
        }
        Ok(Self { of_args, neighbours })
    }
}

/// Compares every two places of one buffer whose spans overlap; a place is its own neighbour unless
/// it is empty. `None` where the budget runs out.
fn find_neighbours(
    places: &mut [(usize, Intervals)],
    neighbours: &mut [Vec<usize>],
    budget: &mut Budget,
) -> Option<()> {
    places.sort_by_key(|(_, intervals)| intervals.start());
    for (index, (number, intervals)) in places.iter().enumerate() {
        for (other_number, other) in &places[index..] {
            if other.start() >= intervals.end() {
                break;
            }
            let intervals_fewer = intervals.len().min(other.len());
            budget.comparisons = budget.comparisons.checked_sub(intervals_fewer)?;
            if intervals.overlaps(other) {
                budget.comparisons = budget.comparisons.checked_sub(NEIGHBOUR_COST)?;
                neighbours[*number].push(*other_number);
                if number != other_number {
                    neighbours[*other_number].push(*number);
                }
            }
        }
    }
    Some(())
}
