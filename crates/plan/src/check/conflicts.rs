//! Every two tasks that conflict are ordered as submitted; every explicit dep is kept.

use syncline_tensor::{Access, Region};

use super::{Budget, CheckError, Happens};
use crate::graph::GraphData;
use crate::plan::{ExecutionPlan, OpIndex};

/// The last ops of one lane that wrote and that read a place, of the tasks seen so far.
///
/// If the last one on a lane happens before a task, all earlier ones on that lane do.
#[derive(Clone, Copy)]
struct LaneUse {
    lane: u16,
    writer: Option<OpIndex>,
    reader: Option<OpIndex>,
}

/// Who answers for the order inside manual scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manual {
    /// Tasks after the scope are ordered; tasks inside it are ordered by their author.
    ByItsAuthor,
    /// Everything that conflicts must be ordered.
    LikeAnyTask,
}

pub(crate) fn check(
    plan: &ExecutionPlan,
    happens: &Happens,
    manual: Manual,
    budget: &mut Budget,
) -> Result<(), CheckError> {
    let graph = &*plan.graph;
    let overlaps = overlapping_places(graph, budget)?;
    let mut uses: Vec<Vec<LaneUse>> = vec![Vec::new(); graph.places.len()];
    for (at, task) in graph.tasks.iter().enumerate() {
        let op = plan.task_ops[at];
        for dep in graph.deps_of(at) {
            let first = plan.task_ops[dep.index()];
            if !happens.before(first, op) {
                return Err(CheckError::Order { first: plan.site(first), second: plan.site(op) });
            }
        }
        let args = &graph.args[graph.args_range(at)];
        if !task.manual || manual == Manual::LikeAnyTask {
            for arg in args.iter().filter(|arg| arg.access != Access::NoDep) {
                for &other in &overlaps[arg.place as usize] {
                    budget.spend(1 + uses[other as usize].len() as u64)?;
                    let conflict = uses[other as usize].iter().find_map(|lane| {
                        let reader = lane.reader.filter(|_| arg.access.writes());
                        [lane.writer, reader]
                            .into_iter()
                            .flatten()
                            .find(|&first| !happens.before(first, op))
                    });
                    if let Some(first) = conflict {
                        return Err(race(plan, first, op, arg.place));
                    }
                }
            }
        }
        for arg in args.iter().filter(|arg| arg.access != Access::NoDep) {
            note(&mut uses[arg.place as usize], happens, op, arg.access);
        }
    }
    Ok(())
}

fn note(uses: &mut Vec<LaneUse>, happens: &Happens, op: OpIndex, access: Access) {
    let (lane, position) = happens.place(op);
    let at = uses.iter().position(|known| known.lane == lane).unwrap_or_else(|| {
        uses.push(LaneUse { lane, writer: None, reader: None });
        uses.len() - 1
    });
    let known = if access.writes() { &mut uses[at].writer } else { &mut uses[at].reader };
    if known.is_none_or(|last| happens.place(last).1 < position) {
        *known = Some(op);
    }
}

fn race(plan: &ExecutionPlan, first: OpIndex, second: OpIndex, place: u32) -> CheckError {
    let buffer = plan.graph.places[place as usize].buffer;
    CheckError::Race {
        first: plan.site(first),
        second: plan.site(second),
        buffer: plan.graph.names.get(plan.graph.buffers[buffer as usize].name).into(),
    }
}

/// For each place those of the same buffer that share a byte with it, itself included unless it is
/// empty.
fn overlapping_places(graph: &GraphData, budget: &mut Budget) -> Result<Vec<Vec<u32>>, CheckError> {
    let mut by_buffer: Vec<Vec<u32>> = vec![Vec::new(); graph.buffers.len()];
    for (at, place) in graph.places.iter().enumerate().filter(|(_, place)| !place.view.is_empty()) {
        by_buffer[place.buffer as usize].push(at as u32);
    }
    let mut overlaps = vec![Vec::new(); graph.places.len()];
    for places in by_buffer {
        let region = |&place: &u32| Region::of(&graph.places[place as usize].view);
        let regions: Vec<Region> = places.iter().map(region).collect();
        (0..places.len()).for_each(|at| overlaps[places[at] as usize].push(places[at]));
        each_overlap(&regions, budget, |one, other| {
            overlaps[places[one] as usize].push(places[other]);
            overlaps[places[other] as usize].push(places[one]);
            Ok(())
        })?;
    }
    Ok(overlaps)
}

/// Calls `each` with every two of `regions`, none of them empty, that share a byte.
pub(crate) fn each_overlap(
    regions: &[Region],
    budget: &mut Budget,
    mut each: impl FnMut(usize, usize) -> Result<(), CheckError>,
) -> Result<(), CheckError> {
    let mut order: Vec<usize> = (0..regions.len()).collect();
    order.sort_unstable_by_key(|&at| regions[at].start());
    for (at, &one) in order.iter().enumerate() {
        let later = order[at + 1..].iter();
        for &other in later.take_while(|&&other| regions[other].start() < regions[one].end()) {
            if overlap(&regions[one], &regions[other], budget)? {
                each(one, other)?;
            }
        }
    }
    Ok(())
}

/// Returns `true` if the regions share a byte.
pub(crate) fn overlap(
    one: &Region,
    other: &Region,
    budget: &mut Budget,
) -> Result<bool, CheckError> {
    let test = one.test_overlap(other);
    let solving = u64::from(test.solved) * Budget::PER_SOLVED
        + u64::from(test.exhausted) * Budget::PER_EXHAUSTED;
    budget.spend(1 + solving)?;
    Ok(test.overlaps)
}
