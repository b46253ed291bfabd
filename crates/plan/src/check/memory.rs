//! Copies do not race with anything in the memories they touch, and memories that share bytes do
//! not meet in time.

use syncline_tensor::{Access, Region, View};

use super::conflicts::overlap;
use super::{Budget, CheckError, Happens};
use crate::plan::{ExecutionPlan, MemoryIndex, MemoryPlace, OpIndex, OpKind};

/// One op's use of one memory.
struct Use<'a> {
    op: OpIndex,
    view: &'a View,
    access: Access,
    is_copy: bool,
}

pub(crate) fn check(
    plan: &ExecutionPlan,
    happens: &Happens,
    budget: &mut Budget,
) -> Result<(), CheckError> {
    let uses = uses_by_memory(plan);
    for (memory, uses) in uses.iter().enumerate() {
        if uses.iter().any(|one| one.is_copy) {
            check_copies(plan, happens, MemoryIndex(memory as u32), uses, budget)?;
        }
    }
    check_arenas(plan, happens, &uses, budget)
}

fn uses_by_memory(plan: &ExecutionPlan) -> Vec<Vec<Use<'_>>> {
    let mut uses: Vec<Vec<Use<'_>>> = plan.memories.iter().map(|_| Vec::new()).collect();
    for (at, op) in plan.ops.iter().enumerate() {
        let index = OpIndex(at as u32);
        match op.kind {
            OpKind::Task(task) => {
                for arg in plan.args_of(task) {
                    let (view, access) = (arg.view, arg.access);
                    uses[arg.memory.index()].push(Use { op: index, view, access, is_copy: false });
                }
            }
            OpKind::Copy(copy) => {
                let copy = &plan.copies[copy.index()];
                for view in &copy.views {
                    let (op, is_copy) = (index, true);
                    let read = Use { op, view, access: Access::Input, is_copy };
                    uses[copy.source.index()].push(read);
                    let write = Use { op, view, access: Access::OutputExisting, is_copy };
                    uses[copy.target.index()].push(write);
                }
            }
        }
    }
    uses
}

/// Every copy against every other use of `memory`: conflicting ones must be ordered, either way.
fn check_copies(
    plan: &ExecutionPlan,
    happens: &Happens,
    memory: MemoryIndex,
    uses: &[Use<'_>],
    budget: &mut Budget,
) -> Result<(), CheckError> {
    let regions: Vec<Region> = uses.iter().map(|one| Region::of(one.view)).collect();
    for (at, one) in uses.iter().enumerate().filter(|(_, one)| one.is_copy) {
        budget.spend(uses.len() as u64)?;
        for (other_at, other) in uses.iter().enumerate() {
            let harmless = other.op == one.op
                || other.access == Access::NoDep
                || !(one.access.writes() || other.access.writes())
                || happens.before(one.op, other.op)
                || happens.before(other.op, one.op);
            if !harmless && overlap(&regions[at], &regions[other_at], budget)? {
                return Err(CheckError::Race {
                    first: plan.site(one.op),
                    second: plan.site(other.op),
                    buffer: plan.buffer_name(memory).into(),
                });
            }
        }
    }
    Ok(())
}

/// First and last user of a memory on each lane that uses it.
type LaneEnds = Vec<(u16, OpIndex, OpIndex)>;

fn check_arenas(
    plan: &ExecutionPlan,
    happens: &Happens,
    uses: &[Vec<Use<'_>>],
    budget: &mut Budget,
) -> Result<(), CheckError> {
    let mut in_arenas: Vec<(u16, u64, u64, usize)> = Vec::new();
    for (at, memory) in plan.memories.iter().enumerate() {
        if let MemoryPlace::Arena { offset } = memory.place
            && memory.bytes > 0
            && !uses[at].is_empty()
        {
            in_arenas.push((memory.device.0, offset, offset + memory.bytes, at));
        }
    }
    in_arenas.sort_unstable();
    let mut ends: Vec<LaneEnds> = Vec::with_capacity(uses.len());
    for uses in uses {
        ends.push(lane_ends(happens, uses, budget)?);
    }
    for (at, &(device, _, end, one)) in in_arenas.iter().enumerate() {
        let sharing = in_arenas[at + 1..]
            .iter()
            .take_while(|&&(other_device, start, _, _)| other_device == device && start < end);
        for &(_, _, _, other) in sharing {
            let (first, second) = (&ends[one], &ends[other]);
            budget.spend(1 + 2 * first.len() as u64 * second.len() as u64)?;
            let gap = find_gap(happens, first, second);
            if let (Some((a, b)), Some(_)) = (gap, find_gap(happens, second, first)) {
                let buffer = |memory| plan.buffer_name(MemoryIndex(memory as u32)).into();
                return Err(CheckError::Reuse {
                    first: plan.site(a),
                    first_buffer: buffer(one),
                    second: plan.site(b),
                    second_buffer: buffer(other),
                });
            }
        }
    }
    Ok(())
}

fn lane_ends(
    happens: &Happens,
    uses: &[Use<'_>],
    budget: &mut Budget,
) -> Result<LaneEnds, CheckError> {
    let mut ends: LaneEnds = Vec::new();
    for one in uses {
        budget.spend(1 + ends.len() as u64)?;
        let (lane, position) = happens.place(one.op);
        match ends.iter_mut().find(|known| known.0 == lane) {
            Some(known) => {
                if position < happens.place(known.1).1 {
                    known.1 = one.op;
                }
                if position > happens.place(known.2).1 {
                    known.2 = one.op;
                }
            }
            None => ends.push((lane, one.op, one.op)),
        }
    }
    Ok(ends)
}

/// A user of `first` that does not happen before some user of `second`.
fn find_gap(happens: &Happens, first: &LaneEnds, second: &LaneEnds) -> Option<(OpIndex, OpIndex)> {
    first.iter().find_map(|&(_, _, last)| {
        let early = second.iter().find(|&&(_, begin, _)| !happens.before(last, begin))?;
        Some((last, early.1))
    })
}
