//! Successive runs, and ops out of their lanes' order: whatever conflicts is ordered all the same.
//!
//! Two runs are followed one after the other, op by op in an order that the plan allows. Of every
//! set of bytes that ops use, the last writer and the readers since are kept; each op must come
//! after those whose bytes it shares and that it conflicts with. What was used before that, the
//! last writer comes after. Nothing is taken over from how the waits and deps were found.

use std::collections::BTreeMap;

use syncline_tensor::{BufferId, Region};

use super::conflicts::each_overlap;
use super::{Budget, CheckError, Happens};
use crate::hazards::OpDeps;
use crate::plan::{ExecutionPlan, OpIndex};
use rustc_hash::FxHashMap;

/// Distinct sets of bytes, and which ops use them.
struct Uses {
    /// By op: the sets that it uses, and whether it writes them.
    of_op: Vec<Vec<(u32, bool)>>,
    /// By set: the sets that share a byte with it, itself included.
    overlaps: Vec<Vec<u32>>,
    blocks: Vec<BufferId>,
}

impl Uses {
    fn of(plan: &ExecutionPlan) -> Result<Self, CheckError> {
        let mut known: FxHashMap<(BufferId, Region), u32> = FxHashMap::default();
        let mut by_block: BTreeMap<BufferId, (Vec<Region>, Vec<u32>)> = BTreeMap::new();
        let mut blocks = Vec::new();
        let mut of_op = vec![Vec::new(); plan.ops.len()];
        for (at, uses) in of_op.iter_mut().enumerate() {
            plan.each_use(OpIndex(at as u32), |block, view, access| {
                let region = Region::of(&view);
                let set = *known.entry((block, region)).or_insert_with(|| {
                    let (regions, sets) = by_block.entry(block).or_default();
                    regions.push(region);
                    sets.push(blocks.len() as u32);
                    blocks.push(block);
                    blocks.len() as u32 - 1
                });
                uses.push((set, access.writes()));
            });
        }
        let mut overlaps: Vec<Vec<u32>> = (0..blocks.len() as u32).map(|set| vec![set]).collect();
        for (regions, sets) in by_block.values() {
            each_overlap(regions, &mut Budget::unlimited(), |one, other| {
                overlaps[sets[one] as usize].push(sets[other]);
                overlaps[sets[other] as usize].push(sets[one]);
                Ok(())
            })?;
        }
        Ok(Self { of_op, overlaps, blocks })
    }
}

/// Who wrote a set of bytes last and who has read it since: ops of two runs, counted through.
#[derive(Clone, Default)]
struct Last {
    writer: Option<u32>,
    readers: Vec<u32>,
}

/// Asks `is_before` about every two ops of two successive runs that must be in order.
fn check(
    plan: &ExecutionPlan,
    happens: &Happens,
    mut is_before: impl FnMut(u32, u32) -> bool,
) -> Result<(), CheckError> {
    let count = plan.ops.len() as u32;
    let uses = Uses::of(plan)?;
    let mut last = vec![Last::default(); uses.blocks.len()];
    for run in 0..2 {
        for op in happens.sequence.iter().filter(|op| op.0 < count) {
            let second = run * count + op.0;
            for &(set, writes) in &uses.of_op[op.index()] {
                for &other in &uses.overlaps[set as usize] {
                    let Last { writer, readers } = &last[other as usize];
                    let readers = readers.iter().filter(|_| writes);
                    for &first in writer.iter().chain(readers) {
                        if first != second && !is_before(first, second) {
                            return Err(race(plan, first, second, uses.blocks[set as usize]));
                        }
                    }
                }
            }
            for &(set, writes) in &uses.of_op[op.index()] {
                let last = &mut last[set as usize];
                match writes {
                    true => *last = Last { writer: Some(second), readers: Vec::new() },
                    false => last.readers.push(second),
                }
            }
        }
    }
    Ok(())
}

/// `happens` is of two runs.
pub(crate) fn check_waits(plan: &ExecutionPlan, happens: &Happens) -> Result<(), CheckError> {
    check(plan, happens, |first, second| happens.before(OpIndex(first), OpIndex(second)))
}

/// `happens` is of one run, and says which of two ops is to come first.
pub(crate) fn check_deps(
    plan: &ExecutionPlan,
    happens: &Happens,
    deps: &OpDeps,
) -> Result<(), CheckError> {
    if deps.len() != plan.ops.len() {
        return Err(CheckError::Malformed { what: "deps of another plan".into() });
    }
    let mut paths = Paths::new(happens, deps);
    for (at, _) in plan.graph.tasks.iter().enumerate() {
        let op = plan.task_ops[at];
        for dep in plan.graph.deps_of(at) {
            let first = plan.task_ops[dep.index()];
            if !paths.lead(first.0, op.0) {
                return Err(CheckError::Order { first: plan.site(first), second: plan.site(op) });
            }
        }
    }
    check(plan, happens, |first, second| paths.lead(first, second))
}

fn race(plan: &ExecutionPlan, first: u32, second: u32, block: BufferId) -> CheckError {
    let count = plan.ops.len() as u32;
    let buffer = block_name(plan, block);
    let is_between_runs = first / count != second / count;
    let [first, second] = [first, second].map(|op| plan.site(OpIndex(op % count)));
    match is_between_runs {
        true => CheckError::RunRace { first, second, buffer },
        false => CheckError::Race { first, second, buffer },
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

/// Paths along deps through two runs, searched from the later op back to the earlier one.
struct Paths<'a> {
    deps: &'a OpDeps,
    /// By op: its place in an order that every dep agrees with.
    ranks: Vec<u32>,
    /// By op of two runs: the last search that came by.
    seen: Vec<u32>,
    searches: u32,
    open: Vec<u32>,
}

impl<'a> Paths<'a> {
    fn new(happens: &Happens, deps: &'a OpDeps) -> Self {
        let mut ranks = vec![0; deps.len()];
        for (rank, op) in happens.sequence.iter().enumerate() {
            ranks[op.index()] = rank as u32;
        }
        let seen = vec![0; 2 * deps.len()];
        Self { deps, ranks, seen, searches: 0, open: Vec::new() }
    }

    /// Returns `true` if there is a path from `first` to `second`.
    fn lead(&mut self, first: u32, second: u32) -> bool {
        let count = self.deps.len() as u32;
        let rank = |ranks: &[u32], op: u32| (op / count, ranks[(op % count) as usize]);
        let from = rank(&self.ranks, first);
        self.searches += 1;
        self.open.clear();
        self.open.push(second);
        while let Some(op) = self.open.pop() {
            let (run, index) = (op / count, op % count);
            let deps = self.deps.of(OpIndex(index)).iter();
            let deps = deps.filter(|dep| run == 1 || !dep.is_of_last_run).map(|dep| {
                let run = run - u32::from(dep.is_of_last_run);
                run * count + dep.op.0
            });
            // After itself in the run before.
            for pred in deps.chain((run == 1).then_some(index)) {
                if pred == first {
                    return true;
                }
                let seen = &mut self.seen[pred as usize];
                if *seen != self.searches && rank(&self.ranks, pred) > from {
                    *seen = self.searches;
                    self.open.push(pred);
                }
            }
        }
        false
    }
}
