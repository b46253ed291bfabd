//! Waits between successive runs: what a lane must see of the run before, to begin the next one
//! while it goes on.
//!
//! A lane goes straight from the end of one run to the beginning of the next. Its own ops are
//! ordered by that; for ops of other lanes it may have to wait. As within a run, vector clocks
//! leave out what something else implies.

use crate::check::Happens;
use crate::hazards::OpDeps;
use crate::plan::{ExecutionPlan, LaneIndex, OpIndex, Wait};

/// For every op of a plan the waits for ops of the run before.
///
/// Together with the plan's own waits they let run after run begin before the one before has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunWaits {
    ends: Vec<u32>,
    waits: Vec<Wait>,
}

impl RunWaits {
    /// What `op` waits for in the run before.
    #[inline]
    pub fn of(&self, op: OpIndex) -> &[Wait] {
        let start = if op.0 == 0 { 0 } else { self.ends[op.index() - 1] };
        &self.waits[start as usize..self.ends[op.index()] as usize]
    }

    /// All of them, in the order of their ops.
    pub fn all(&self) -> &[Wait] {
        &self.waits
    }

    /// The same without wait number `at`. Such waits must not be run by; checking them tells why
    /// the wait is there.
    #[must_use]
    pub fn without(&self, at: usize) -> Self {
        let mut waits = self.clone();
        waits.waits.remove(at);
        waits.ends.iter_mut().for_each(|end| *end -= u32::from(*end as usize > at));
        waits
    }
}

impl ExecutionPlan {
    /// The waits between successive runs that `deps`, of this plan, ask for.
    pub fn run_waits(&self, deps: &OpDeps) -> RunWaits {
        assert_eq!(deps.len(), self.ops.len(), "the deps are another plan's");
        let happens =
            Happens::of(self).expect("the lanes of a plan that was checked come to their ends");
        let mut clocks = Clocks::new(self, &happens);
        let mut found: Vec<(u32, Wait)> = Vec::new();
        let mut needed: Vec<Wait> = Vec::new();
        for &op in &happens.sequence {
            let lane = happens.place(op).0;
            let row = clocks.begin(self, op, lane);
            for dep in deps.of(op).iter().filter(|dep| dep.is_of_last_run) {
                let (from, position) = happens.place(dep.op);
                if from != lane && clocks.rows[row][from as usize] <= position {
                    needed.push(Wait { lane: LaneIndex(from), count: position + 1 });
                }
            }
            if needed.is_empty() {
                continue;
            }
            // Of several on one lane the last is enough.
            needed.sort_unstable_by_key(|wait| (wait.lane, std::cmp::Reverse(wait.count)));
            needed.dedup_by_key(|wait| wait.lane);
            for wait in &needed {
                let implied = needed.iter().any(|other| {
                    other.lane != wait.lane
                        && happens.finished_before(clocks.last_of(self, other), wait.lane.0)
                            >= wait.count
                });
                if !implied {
                    found.push((op.0, *wait));
                }
            }
            let row = clocks.renew(lane, row);
            for wait in needed.drain(..) {
                clocks.join_first_run(self, &happens, row, wait);
            }
            clocks.row_of[op.index()] = row;
        }
        found.sort_unstable();
        let mut ends = vec![0u32; self.ops.len()];
        for &(op, _) in &found {
            ends[op as usize] += 1;
        }
        for at in 1..ends.len() {
            ends[at] += ends[at - 1];
        }
        RunWaits { ends, waits: found.into_iter().map(|(_, wait)| wait).collect() }
    }
}

/// By op of a second run and by lane: how many ops of the first run have surely finished when it
/// begins.
struct Clocks {
    rows: Vec<Vec<u32>>,
    /// By lane: the row of its newest op.
    latest: Vec<usize>,
    row_of: Vec<usize>,
}

impl Clocks {
    /// Lanes at the beginning of the second run: each has seen its own first run to the end.
    fn new(plan: &ExecutionPlan, happens: &Happens) -> Self {
        let rows: Vec<Vec<u32>> = (plan.lanes.iter().enumerate())
            .map(|(at, lane)| {
                let mut row = vec![0; plan.lanes.len()];
                if lane.count > 0 {
                    let last = OpIndex(lane.first.0 + lane.count - 1);
                    for (other, count) in row.iter_mut().enumerate() {
                        *count = happens.finished_before(last, other as u16);
                    }
                    row[at] = lane.count;
                }
                row
            })
            .collect();
        Self { latest: (0..rows.len()).collect(), row_of: vec![0; plan.ops.len()], rows }
    }

    /// The row of `op` as its lane and its waits within the run make it.
    fn begin(&mut self, plan: &ExecutionPlan, op: OpIndex, lane: u16) -> usize {
        let mut row = self.latest[usize::from(lane)];
        let waits = plan.waits_of(&plan.ops[op.index()]);
        if !waits.is_empty() {
            row = self.renew(lane, row);
            for wait in waits {
                let from = self.row_of[self.last_of(plan, wait).index()];
                for at in 0..plan.lanes.len() {
                    self.rows[row][at] = self.rows[row][at].max(self.rows[from][at]);
                }
            }
        }
        self.row_of[op.index()] = row;
        row
    }

    /// A copy of `row` as the newest of `lane`.
    fn renew(&mut self, lane: u16, row: usize) -> usize {
        let copy = self.rows[row].clone();
        self.rows.push(copy);
        self.latest[usize::from(lane)] = self.rows.len() - 1;
        self.rows.len() - 1
    }

    /// Adds to `row` what has finished when `wait`, for the first run, is over.
    fn join_first_run(&mut self, plan: &ExecutionPlan, happens: &Happens, row: usize, wait: Wait) {
        let last = self.last_of(plan, &wait);
        for (at, own) in self.rows[row].iter_mut().enumerate() {
            *own = (*own).max(happens.finished_before(last, at as u16));
        }
        let own = &mut self.rows[row][wait.lane.index()];
        *own = (*own).max(wait.count);
    }

    /// The op that `wait` is over with.
    fn last_of(&self, plan: &ExecutionPlan, wait: &Wait) -> OpIndex {
        OpIndex(plan.lanes[wait.lane.index()].first.0 + wait.count - 1)
    }
}
