//! Happens-before of a plan, from the order on lanes and the waits alone.

use super::CheckError;
use crate::plan::{ExecutionPlan, LaneIndex, OpIndex};

/// Which ops have surely finished when an op begins.
#[derive(Debug)]
pub struct Happens {
    lanes: usize,
    /// By op: lane and place there.
    places: Vec<(u16, u32)>,
    /// By op: its row of counts.
    row_of: Vec<u32>,
    rows: Vec<u32>,
    /// All ops, each after all that happen before it.
    pub sequence: Vec<OpIndex>,
}

impl Happens {
    /// Runs the lanes without doing anything; an error if they cannot all come to their ends.
    pub fn of(plan: &ExecutionPlan) -> Result<Self, CheckError> {
        let lanes = plan.lanes.len();
        let mut happens = Self {
            lanes,
            places: Vec::with_capacity(plan.ops.len()),
            row_of: vec![0; plan.ops.len()],
            rows: vec![0; lanes],
            sequence: Vec::with_capacity(plan.ops.len()),
        };
        for (at, lane) in plan.lanes.iter().enumerate() {
            happens.places.extend((0..lane.count).map(|position| (at as u16, position)));
        }
        let mut done = vec![0u32; lanes];
        let mut latest = vec![0u32; lanes];
        loop {
            let before = happens.sequence.len();
            for lane in 0..lanes {
                happens.advance(plan, lane, &mut done, &mut latest);
            }
            if happens.sequence.len() == before {
                break;
            }
        }
        if happens.sequence.len() < plan.ops.len() {
            return Err(deadlock(plan, &done));
        }
        Ok(happens)
    }

    /// Runs `lane` until it ends or must wait.
    fn advance(&mut self, plan: &ExecutionPlan, lane: usize, done: &mut [u32], latest: &mut [u32]) {
        let record = plan.lanes[lane];
        while done[lane] < record.count {
            let op = record.first.index() + done[lane] as usize;
            let waits = plan.waits_of(&plan.ops[op]);
            if waits.iter().any(|wait| done[wait.lane.index()] < wait.count) {
                return;
            }
            if !waits.is_empty() {
                let new = (self.rows.len() / self.lanes) as u32;
                let base = latest[lane] as usize * self.lanes;
                self.rows.extend_from_within(base..base + self.lanes);
                for wait in waits.iter().filter(|wait| wait.count > 0) {
                    let from =
                        plan.lanes[wait.lane.index()].first.index() + wait.count as usize - 1;
                    self.join(new, self.row_of[from]);
                    let count = &mut self.rows[new as usize * self.lanes + wait.lane.index()];
                    *count = (*count).max(wait.count);
                }
                latest[lane] = new;
            }
            self.row_of[op] = latest[lane];
            self.sequence.push(OpIndex(op as u32));
            done[lane] += 1;
        }
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
    pub fn finished_before(&self, op: OpIndex, lane: u16) -> u32 {
        let (own, position) = self.places[op.index()];
        if own == lane {
            return position;
        }
        self.rows[self.row_of[op.index()] as usize * self.lanes + lane as usize]
    }

    /// Whether `first` has surely finished when `second` begins.
    #[inline]
    pub fn before(&self, first: OpIndex, second: OpIndex) -> bool {
        let (lane, position) = self.places[first.index()];
        self.finished_before(second, lane) > position
    }

    /// Lane and place of `op`.
    #[inline]
    pub fn place(&self, op: OpIndex) -> (u16, u32) {
        self.places[op.index()]
    }
}

fn deadlock(plan: &ExecutionPlan, done: &[u32]) -> CheckError {
    for (lane, record) in plan.lanes.iter().enumerate() {
        if done[lane] == record.count {
            continue;
        }
        let op = OpIndex(record.first.0 + done[lane]);
        for wait in plan.waits_of(&plan.ops[op.index()]) {
            if done[wait.lane.index()] < wait.count {
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
