//! The checker: proves that a plan cannot race, cannot hang and cannot read anything but what the
//! serial run would.
//!
//! It trusts nothing that the compiler computed. Happens-before is built anew from the order on
//! lanes and the waits; conflicts are found from the arguments; arena memory counts by its bytes;
//! and the bytes that every task reads are followed through the copies. Its cost grows with the
//! pairs of overlapping places, not with the pairs of tasks.

mod budget;
mod conflicts;
mod flow;
mod happens;
mod memory;
mod runs;

use std::fmt;

pub(crate) use budget::Budget;
pub(crate) use happens::Happens;

use crate::hazards::OpDeps;
use crate::plan::{ExecutionPlan, LaneIndex, OpIndex, OpKind};
use crate::run_waits::RunWaits;

/// An op as people find it: what it is, on which lane, at which place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpSite {
    /// Its number in the plan.
    pub op: OpIndex,
    /// Its lane.
    pub lane: LaneIndex,
    /// Its place in the lane.
    pub position: u32,
    /// Name of the task, or of the buffer that is copied.
    pub name: Box<str>,
}

impl fmt::Display for OpSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({}, number {})", self.name, self.lane, self.position)
    }
}

/// A defect of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum CheckError {
    #[error("race on buffer `{buffer}`: {first} is not ordered before {second}")]
    Race { first: OpSite, second: OpSite, buffer: Box<str> },
    #[error("{second} was to come after {first}, and does not")]
    Order { first: OpSite, second: OpSite },
    #[error(
        "memory shared in time: {first} uses buffer `{first_buffer}` and {second} buffer `{second_buffer}` in the same \
         bytes, and the two are not ordered"
    )]
    Reuse { first: OpSite, first_buffer: Box<str>, second: OpSite, second_buffer: Box<str> },
    #[error(
        "{reader} reads bytes {start}..{end} of buffer `{buffer}` as {found} left them, not {expected}"
    )]
    Stale {
        reader: Box<str>,
        buffer: Box<str>,
        start: u64,
        end: u64,
        found: Box<str>,
        expected: Box<str>,
    },
    #[error(
        "race between runs on buffer `{buffer}`: {first} is not ordered before {second} of the next run"
    )]
    RunRace { first: OpSite, second: OpSite, buffer: Box<str> },
    #[error("no lane can go on: {op} waits for {count} ops of {lane}, which never come")]
    Deadlock { op: OpSite, lane: LaneIndex, count: u32 },
    #[error(
        "checking the plan takes more than the {steps_max} steps that its size allows: compile it from its graph again"
    )]
    TooCostly { steps_max: u64 },
    #[error("the plan is malformed: {what}")]
    Malformed { what: Box<str> },
}

impl ExecutionPlan {
    /// Proves the plan, or returns the first defect.
    pub fn check(&self) -> Result<(), CheckError> {
        self.check_within(&mut Budget::unlimited())
    }

    /// As [`ExecutionPlan::check`], for plans that may be hostile.
    pub(crate) fn check_within(&self, budget: &mut Budget) -> Result<(), CheckError> {
        self.validate()?;
        let happens = Happens::of_within(self, budget)?;
        conflicts::check(self, &happens, conflicts::Manual::ByItsAuthor, budget)?;
        memory::check(self, &happens, budget)?;
        flow::check(self, &happens, budget)
    }

    /// Proves what running the plan's kernels on shared memory takes: as [`ExecutionPlan::check`],
    /// and that tasks of manual scopes do not race either.
    ///
    /// Does nothing for plans without manual scopes that were compiled or read from a file: the
    /// first are right by construction, the others were checked when they were read.
    /// [`ExecutionPlan::verify`] checks those, too.
    pub fn prove(&self) -> Result<(), CheckError> {
        match self.is_proven {
            true => Ok(()),
            false => self.verify(),
        }
    }

    /// As [`ExecutionPlan::prove`], wherever the plan comes from.
    pub fn verify(&self) -> Result<(), CheckError> {
        self.check()?;
        let budget = &mut Budget::unlimited();
        conflicts::check(self, &Happens::of(self)?, conflicts::Manual::LikeAnyTask, budget)
    }

    /// Why wait number `wait` of [`ExecutionPlan::waits`] is there: what would go wrong without it.
    ///
    /// `None` would mean that it is not needed, and does not happen with plans made by
    /// [`ExecutionPlan::compile`].
    pub fn reason_for(&self, wait: usize) -> Option<CheckError> {
        self.without_wait(wait).check().err()
    }

    /// Proves that two successive runs do not race if the second begins before the first has ended,
    /// with nothing between them but `waits`. More than two follow: what conflicts with an op of
    /// the run before last also conflicts with the same op of the run between, which comes after
    /// it.
    ///
    /// That the plan itself is right is for [`ExecutionPlan::check`] to say.
    pub fn check_runs(&self, waits: &RunWaits) -> Result<(), CheckError> {
        runs::check_waits(self, &Happens::of_two_runs(self, waits)?)
    }

    /// Proves that ops may go in any order that `deps` allow, whatever their lanes: within a run
    /// and from run to run.
    ///
    /// That the plan itself is right is for [`ExecutionPlan::check`] to say.
    pub fn check_deps(&self, deps: &OpDeps) -> Result<(), CheckError> {
        runs::check_deps(self, &Happens::of(self)?, deps)
    }

    pub(crate) fn site(&self, op: OpIndex) -> OpSite {
        let (lane, position) = self.position_of(op);
        let name = match self.ops[op.index()].kind {
            OpKind::Task(task) => self.graph.task(task).name().into(),
            OpKind::Copy(copy) => {
                let memory = self.copies[copy.index()].source;
                format!("copy of {}", self.buffer_name(memory)).into()
            }
        };
        OpSite { op, lane, position, name }
    }

    pub(crate) fn buffer_name(&self, memory: crate::plan::MemoryIndex) -> &str {
        self.graph.buffer(self.memories[memory.index()].buffer).name
    }
}
