//! Happens-before of a plan, from the order on lanes and the waits alone.

use super::{Budget, CheckError};
use crate::plan::{ExecutionPlan, LaneIndex, OpIndex, Wait};
use crate::run_waits::RunWaits;

/// Which ops have surely finished when an op begins.
///
/// Over several runs, op `n` of run `r` (from zero) has number `r * ops + n`, and its place in its
/// lane is after all of the runs before.
#[derive(Debug)]
pub(crate) struct Happens {
    lanes: usize,
    /// By op: lane and place there.
    places: Vec<(u16, u32)>,
    /// By op: its row of counts.
    row_of: Vec<u32>,
    rows: Vec<u32>,
    /// All ops, each after all that happen before it.
    pub sequence: Vec<OpIndex>,
}

/// How far a lane has come.
#[derive(Clone, Copy, Default)]
struct Position {
    done: u32,
    /// The row of its newest op.
    latest: u32,
}

impl Happens {
    /// Runs the lanes without doing anything; an error if they cannot all come to their ends.
    pub(crate) fn of(plan: &ExecutionPlan) -> Result<Self, CheckError> {
        Self::of_within(plan, &mut Budget::unlimited())
    }

    /// As [`Happens::of`], within `budget`.
    pub(crate) fn of_within(plan: &ExecutionPlan, budget: &mut Budget) -> Result<Self, CheckError> {
        Self::of_runs(plan, 1, None, budget)
    }

    /// As [`Happens::of`] for two successive runs that are ordered by nothing but their lanes and
    /// `between`.
    pub(crate) fn of_two_runs(
        plan: &ExecutionPlan,
        between: &RunWaits,
    ) -> Result<Self, CheckError> {
        Self::of_runs(plan, 2, Some(between), &mut Budget::unlimited())
    }

    fn of_runs(
        plan: &ExecutionPlan,
        runs: u32,
        between: Option<&RunWaits>,
        budget: &mut Budget,
    ) -> Result<Self, CheckError> {
        let lanes = plan.lanes.len();
        let count = plan.ops.len() * runs as usize;
        let mut happens = Self {
            lanes,
            places: Vec::with_capacity(count),
            row_of: vec![0; count],
            rows: vec![0; lanes],
            sequence: Vec::with_capacity(count),
        };
        for run in 0..runs {
            for (at, lane) in plan.lanes.iter().enumerate() {
                let places = run * lane.count..(run + 1) * lane.count;
                happens.places.extend(places.map(|position| (at as u16, position)));
            }
        }
        let mut positions = vec![Position::default(); lanes];
        loop {
            let before = happens.sequence.len();
            budget.spend(lanes as u64)?;
            for lane in 0..lanes {
                happens.advance(plan, runs, between, lane, &mut positions, budget)?;
            }
            if happens.sequence.len() == before {
                break;
            }
        }
        if happens.sequence.len() < count {
            return Err(deadlock(plan, &positions));
        }
        Ok(happens)
    }

    /// Runs `lane` until it ends or must wait.
    fn advance(
        &mut self,
        plan: &ExecutionPlan,
        runs: u32,
        between: Option<&RunWaits>,
        lane: usize,
        positions: &mut [Position],
        budget: &mut Budget,
    ) -> Result<(), CheckError> {
        let record = plan.lanes[lane];
        while positions[lane].done < record.count * runs {
            let Position { done, latest } = positions[lane];
            let run = done / record.count;
            let op = OpIndex(record.first.0 + done % record.count);
            let own = plan.waits_of(&plan.ops[op.index()]);
            let last = between.filter(|_| run > 0).map_or(&[][..], |between| between.of(op));
            // Counts within a run become counts over all of them.
            let over = |wait: &Wait, run: u32| {
                (wait.lane.index(), run * plan.lanes[wait.lane.index()].count + wait.count)
            };
            let waits = || {
                let own = own.iter().map(|wait| over(wait, run));
                own.chain(last.iter().map(|wait| over(wait, run - 1)))
            };
            if waits().any(|(from, count)| positions[from].done < count) {
                return Ok(());
            }
            if own.len() + last.len() > 0 {
                let rows = 1 + own.len() + last.len();
                budget.spend(rows as u64 * self.lanes as u64)?;
                let new = (self.rows.len() / self.lanes) as u32;
                let base = latest as usize * self.lanes;
                self.rows.extend_from_within(base..base + self.lanes);
                for (from, count) in waits().filter(|&(_, count)| count > 0) {
                    let awaited = self.number(plan, from, count - 1);
                    self.join(new, self.row_of[awaited]);
                    let known = &mut self.rows[new as usize * self.lanes + from];
                    *known = (*known).max(count);
                }
                positions[lane].latest = new;
            }
            let number = self.number(plan, lane, done);
            self.row_of[number] = positions[lane].latest;
            self.sequence.push(OpIndex(number as u32));
            positions[lane].done += 1;
        }
        Ok(())
    }

    /// The number of the op at `position` of `lane`, over all runs.
    fn number(&self, plan: &ExecutionPlan, lane: usize, position: u32) -> usize {
        let record = &plan.lanes[lane];
        let (run, position) = (position / record.count, position % record.count);
        run as usize * plan.ops.len() + record.first.index() + position as usize
    }

    fn join(&mut self, into: u32, from: u32) {
        for at in 0..self.lanes {
            let brought = self.rows[from as usize * self.lanes + at];
            let own = &mut self.rows[into as usize * self.lanes + at];
            *own = (*own).max(brought);
        }
    }

    /// How many ops of `lane` have surely finished when `op` begins.
    #[inline]
    pub(crate) fn finished_before(&self, op: OpIndex, lane: u16) -> u32 {
        let (own, position) = self.places[op.index()];
        if own == lane {
            return position;
        }
        self.rows[self.row_of[op.index()] as usize * self.lanes + lane as usize]
    }

    /// Whether `first` has surely finished when `second` begins.
    #[inline]
    pub(crate) fn before(&self, first: OpIndex, second: OpIndex) -> bool {
        let (lane, position) = self.places[first.index()];
        self.finished_before(second, lane) > position
    }

    /// Lane and place of `op`.
    #[inline]
    pub(crate) fn place(&self, op: OpIndex) -> (u16, u32) {
        self.places[op.index()]
    }
}

fn deadlock(plan: &ExecutionPlan, positions: &[Position]) -> CheckError {
    for (lane, record) in plan.lanes.iter().enumerate() {
        if positions[lane].done == record.count {
            continue;
        }
        let op = OpIndex(record.first.0 + positions[lane].done);
        for wait in plan.waits_of(&plan.ops[op.index()]) {
            if positions[wait.lane.index()].done < wait.count {
                let LaneIndex(_) = wait.lane;
                return CheckError::Deadlock {
                    op: plan.site(op),
                    lane: wait.lane,
                    count: wait.count,
                };
            }
        }
    }
    unreachable!("a lane that is not at its end waits for something")
}
