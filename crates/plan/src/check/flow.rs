//! Every task reads what the serial run would have given it, through whatever copies.
//!
//! Bytes are followed as versions: the number of the task that wrote them. Buffers that lie in one
//! memory that the caller brings need no following: there, order is all.

use std::ops::Range;

use syncline_tensor::{Access, BufferId, View};

use super::{Budget, CheckError, Happens};
use crate::compile::{ByteRun, runs_count, runs_of};
use crate::plan::{ExecutionPlan, MemoryIndex, MemoryPlace, OpKind, TaskIndex};

/// What a buffer held before the run.
const INITIAL: u32 = 0;
/// Content of memory of the plan before its first write.
const GARBAGE: u32 = u32::MAX;

pub(crate) fn check(
    plan: &ExecutionPlan,
    happens: &Happens,
    budget: &mut Budget,
) -> Result<(), CheckError> {
    let mut memories_of: Vec<Vec<usize>> = vec![Vec::new(); plan.graph.buffers.len()];
    for (at, memory) in plan.memories.iter().enumerate() {
        memories_of[memory.buffer.0 as usize].push(at);
    }
    let mut flows: Vec<Option<Flow>> = (memories_of.iter())
        .map(|memories| {
            let followed = match memories[..] {
                [] => false,
                [one] => plan.memories[one].place != MemoryPlace::Bound,
                _ => true,
            };
            followed.then(|| Flow::new(plan, memories))
        })
        .collect();
    note_accesses(plan, &mut flows, budget)?;
    for flow in flows.iter_mut().flatten() {
        flow.ready(plan, budget)?;
    }
    for &op in &happens.sequence {
        match plan.ops[op.index()].kind {
            OpKind::Task(task) => run_task(plan, task, &mut flows, budget)?,
            OpKind::Copy(copy) => {
                let copy = &plan.copies[copy.index()];
                let buffer = plan.memories[copy.source.index()].buffer;
                if let Some(flow) = &mut flows[buffer.0 as usize] {
                    for run in copy.views.iter().flat_map(runs_of) {
                        flow.copy(copy.source, copy.target, run, budget)?;
                    }
                }
            }
        }
    }
    for (buffer, flow) in flows.iter().enumerate() {
        if let Some(flow) = flow
            && !plan.is_temporary(BufferId(buffer as u64))
        {
            flow.check_home(plan, budget)?;
        }
    }
    Ok(())
}

/// Collects the ends of all runs and the writers of the buffers that are followed.
fn note_accesses(
    plan: &ExecutionPlan,
    flows: &mut [Option<Flow>],
    budget: &mut Budget,
) -> Result<(), CheckError> {
    // Each view is enumerated here and once more when its op is followed.
    let mut pay = |view: &View| budget.spend(runs_count(view).saturating_mul(2 * Budget::PER_RUN));
    for task in plan.tasks() {
        for arg in task.args().filter(|arg| arg.access != Access::NoDep) {
            if let Some(flow) = &mut flows[arg.buffer.0 as usize] {
                pay(arg.view)?;
                for run in runs_of(arg.view) {
                    flow.bounds.extend([run.start, run.end]);
                    if arg.access.writes() {
                        flow.writes.push((run, task.index().0 + 1));
                    }
                }
            }
        }
    }
    for copy in &plan.copies {
        let buffer = plan.memories[copy.source.index()].buffer;
        if let Some(flow) = &mut flows[buffer.0 as usize] {
            for view in &copy.views {
                pay(view)?;
                flow.bounds.extend(runs_of(view).into_iter().flat_map(|run| [run.start, run.end]));
            }
        }
    }
    Ok(())
}

fn run_task(
    plan: &ExecutionPlan,
    task: TaskIndex,
    flows: &mut [Option<Flow>],
    budget: &mut Budget,
) -> Result<(), CheckError> {
    let flow_of = |memory: MemoryIndex| plan.memories[memory.index()].buffer.0 as usize;
    for arg in plan.args_of(task).filter(|arg| arg.access.reads()) {
        if let Some(flow) = &flows[flow_of(arg.memory)] {
            for run in runs_of(arg.view) {
                let reader = || format!("`{}`", plan.task(task).name());
                flow.check_read(plan, arg.memory, run, task.0 + 1, reader, budget)?;
            }
        }
    }
    for arg in plan.args_of(task).filter(|arg| arg.access.writes()) {
        if let Some(flow) = &mut flows[flow_of(arg.memory)] {
            for run in runs_of(arg.view) {
                flow.write(arg.memory, run, task.0 + 1, budget)?;
            }
        }
    }
    Ok(())
}

/// The versions of one buffer's bytes in each of its memories.
struct Flow {
    memories: Vec<usize>,
    bounds: Vec<u64>,
    writes: Vec<(ByteRun, u32)>,
    /// By piece between bounds: its writers, in submission order, counted from one.
    writers: Vec<Vec<u32>>,
    /// By memory and piece.
    versions: Vec<Vec<u32>>,
}

impl Flow {
    fn new(plan: &ExecutionPlan, memories: &[usize]) -> Self {
        debug_assert!(memories.iter().all(|&at| at < plan.memories.len()));
        Self {
            memories: memories.to_vec(),
            bounds: Vec::new(),
            writes: Vec::new(),
            writers: Vec::new(),
            versions: Vec::new(),
        }
    }

    /// Called once all bounds and writes are known.
    fn ready(&mut self, plan: &ExecutionPlan, budget: &mut Budget) -> Result<(), CheckError> {
        self.bounds.sort_unstable();
        self.bounds.dedup();
        let pieces = self.bounds.len().saturating_sub(1);
        budget.spend(pieces as u64 * (2 + self.memories.len() as u64))?;
        self.writers = vec![Vec::new(); pieces];
        for (run, task) in std::mem::take(&mut self.writes) {
            let pieces = self.pieces(run);
            budget.spend(pieces.len() as u64)?;
            for piece in pieces {
                self.writers[piece].push(task);
            }
        }
        let initial = |&memory: &usize| match plan.memories[memory].place {
            MemoryPlace::Bound => vec![INITIAL; pieces],
            MemoryPlace::Arena { .. } => vec![GARBAGE; pieces],
        };
        self.versions = self.memories.iter().map(initial).collect();
        Ok(())
    }

    fn pieces(&self, run: ByteRun) -> Range<usize> {
        let at = |place| self.bounds.binary_search(&place).expect("every end is a bound");
        at(run.start)..at(run.end)
    }

    fn number(&self, memory: MemoryIndex) -> usize {
        let found = self.memories.iter().position(|&known| known == memory.index());
        found.expect("a memory of this buffer")
    }

    fn write(
        &mut self,
        memory: MemoryIndex,
        run: ByteRun,
        version: u32,
        budget: &mut Budget,
    ) -> Result<(), CheckError> {
        let (number, pieces) = (self.number(memory), self.pieces(run));
        budget.spend(pieces.len() as u64)?;
        self.versions[number][pieces].fill(version);
        Ok(())
    }

    fn copy(
        &mut self,
        source: MemoryIndex,
        target: MemoryIndex,
        run: ByteRun,
        budget: &mut Budget,
    ) -> Result<(), CheckError> {
        let (source, target) = (self.number(source), self.number(target));
        let pieces = self.pieces(run);
        budget.spend(pieces.len() as u64)?;
        for piece in pieces {
            self.versions[target][piece] = self.versions[source][piece];
        }
        Ok(())
    }

    /// What the serial run has in `piece` when task number `before` (from one) begins.
    fn expected(&self, piece: usize, before: u32) -> u32 {
        let writers = &self.writers[piece];
        let count = writers.partition_point(|&writer| writer < before);
        if count == 0 { INITIAL } else { writers[count - 1] }
    }

    fn check_read(
        &self,
        plan: &ExecutionPlan,
        memory: MemoryIndex,
        run: ByteRun,
        before: u32,
        reader: impl Fn() -> String,
        budget: &mut Budget,
    ) -> Result<(), CheckError> {
        let number = self.number(memory);
        let pieces = self.pieces(run);
        budget.spend(pieces.len() as u64)?;
        for piece in pieces {
            let (found, expected) = (self.versions[number][piece], self.expected(piece, before));
            if found != expected {
                return Err(CheckError::Stale {
                    reader: reader().into(),
                    buffer: plan.buffer_name(memory).into(),
                    start: self.bounds[piece],
                    end: self.bounds[piece + 1],
                    found: version_name(plan, found),
                    expected: version_name(plan, expected),
                });
            }
        }
        Ok(())
    }

    /// At the end, the memory that the caller brought holds the last version of every byte.
    fn check_home(&self, plan: &ExecutionPlan, budget: &mut Budget) -> Result<(), CheckError> {
        let home = self.memories.iter().find(|&&at| plan.memories[at].place == MemoryPlace::Bound);
        let Some(&home) = home else {
            let what = "an external buffer has no memory that the caller binds".into();
            return Err(CheckError::Malformed { what });
        };
        let (Some(&start), Some(&end)) = (self.bounds.first(), self.bounds.last()) else {
            return Ok(());
        };
        let memory = MemoryIndex(home as u32);
        let reader = || "the caller".to_owned();
        self.check_read(plan, memory, ByteRun { start, end }, u32::MAX, reader, budget)
    }
}

fn version_name(plan: &ExecutionPlan, version: u32) -> Box<str> {
    match version {
        INITIAL => "the caller".into(),
        GARBAGE => "no op".into(),
        task => format!("`{}` ({})", plan.task(TaskIndex(task - 1)).name(), task - 1).into(),
    }
}
