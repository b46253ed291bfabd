//! Successive runs, and ops out of their lanes' order: whatever conflicts is ordered all the same.
//!
//! Conflicts are looked for by comparing uses, each with each that shares a block; nothing is taken over from how the
//! waits and deps were found.

use std::collections::BTreeMap;

use syncline_deps::{BufferId, OverlapStats, Region};

use super::{CheckError, Happens};
use crate::hazards::OpDeps;
use crate::plan::{ExecutionPlan, OpIndex};

/// The use of some bytes by one op.
struct Use {
    op: OpIndex,
    region: Region,
    writes: bool,
}

fn uses_by_block(plan: &ExecutionPlan) -> BTreeMap<BufferId, Vec<Use>> {
    let mut uses: BTreeMap<BufferId, Vec<Use>> = BTreeMap::new();
    for op in (0..plan.ops.len() as u32).map(OpIndex) {
        plan.each_use(op, |block, view, access| {
            let (region, writes) = (Region::of(&view), access.writes());
            uses.entry(block).or_default().push(Use { op, region, writes });
        });
    }
    uses
}

/// Calls `each` with every two uses of which one may not pass the other, in both orders.
fn each_conflict(
    plan: &ExecutionPlan,
    mut each: impl FnMut(OpIndex, OpIndex, BufferId) -> Result<(), CheckError>,
) -> Result<(), CheckError> {
    let mut stats = OverlapStats::default();
    for (block, uses) in uses_by_block(plan) {
        for (at, one) in uses.iter().enumerate() {
            for other in &uses[at..] {
                if (one.writes || other.writes) && one.region.overlaps(&other.region, &mut stats) {
                    each(one.op, other.op, block)?;
                    each(other.op, one.op, block)?;
                }
            }
        }
    }
    Ok(())
}

/// `happens` is of two runs.
pub fn check_waits(plan: &ExecutionPlan, happens: &Happens) -> Result<(), CheckError> {
    each_conflict(plan, |first, second, block| {
        let of_next_run = OpIndex(second.0 + plan.ops.len() as u32);
        match happens.before(first, of_next_run) {
            true => Ok(()),
            false => Err(run_race(plan, first, second, block)),
        }
    })
}

/// `happens` is of one run, and says which of two ops is to come first.
pub fn check_deps(
    plan: &ExecutionPlan,
    happens: &Happens,
    deps: &OpDeps,
) -> Result<(), CheckError> {
    let count = plan.ops.len();
    if deps.len() != count {
        return Err(CheckError::Malformed { what: "deps of another plan".into() });
    }
    let reached = Reached::of(happens, deps);
    for (at, _) in plan.graph.tasks.iter().enumerate() {
        let op = plan.task_ops[at];
        for dep in plan.graph.deps_of(at) {
            let first = plan.task_ops[dep.index()];
            if !reached.get(first.index(), op.index()) {
                return Err(CheckError::Order { first: plan.site(first), second: plan.site(op) });
            }
        }
    }
    each_conflict(plan, |first, second, block| {
        if first != second
            && happens.before(first, second)
            && !reached.get(count + first.index(), count + second.index())
        {
            let buffer = block_name(plan, block);
            let (first, second) = (plan.site(first), plan.site(second));
            return Err(CheckError::Race { first, second, buffer });
        }
        match reached.get(first.index(), count + second.index()) {
            true => Ok(()),
            false => Err(run_race(plan, first, second, block)),
        }
    })
}

fn run_race(plan: &ExecutionPlan, first: OpIndex, second: OpIndex, block: BufferId) -> CheckError {
    CheckError::RunRace {
        first: plan.site(first),
        second: plan.site(second),
        buffer: block_name(plan, block),
    }
}

fn block_name(plan: &ExecutionPlan, block: BufferId) -> Box<str> {
    let devices = plan.machine.devices();
    match devices.get(block.0 as usize) {
        Some(device) => format!("(arena of {})", device.name).into(),
        None => {
            let memory = block.0 as usize - devices.len();
            plan.buffer_name(crate::plan::MemoryIndex(memory as u32)).into()
        }
    }
}

/// For every op of two runs those that surely come before it, one bit each.
struct Reached {
    words: usize,
    bits: Vec<u64>,
}

impl Reached {
    fn of(happens: &Happens, deps: &OpDeps) -> Self {
        let count = deps.len();
        let words = (2 * count).div_ceil(64);
        let mut reached = Self { words, bits: vec![0; words * 2 * count] };
        for run in 0..2 {
            for op in &happens.sequence {
                let own = run * count + op.index();
                if run == 1 {
                    reached.add(op.index(), own);
                }
                for dep in deps.of(*op) {
                    match (run, dep.is_of_last_run) {
                        (0, true) => {}
                        (_, true) => reached.add(dep.op.index(), own),
                        (_, false) => reached.add(run * count + dep.op.index(), own),
                    }
                }
            }
        }
        reached
    }

    /// `first` and all before it come before `second`.
    fn add(&mut self, first: usize, second: usize) {
        let (from, to) = (first * self.words, second * self.words);
        for word in 0..self.words {
            self.bits[to + word] |= self.bits[from + word];
        }
        self.bits[to + first / 64] |= 1 << (first % 64);
    }

    fn get(&self, first: usize, second: usize) -> bool {
        self.bits[second * self.words + first / 64] >> (first % 64) & 1 == 1
    }
}
