//! Waits: the edges across lanes that nothing else implies.
//!
//! Each op has a vector clock: for every lane, how many of its ops have surely finished when this
//! one begins. An edge whose predecessor the clock already counts needs no wait; neither does one
//! that another wait of the same op brings along. The rest is needed: take away any
//! wait, and the edge it stands for is not kept.

use super::lower::Lowered;
use super::order::Schedule;
use crate::plan::{LaneIndex, Wait};

/// The waits of each op, by op number before flattening.
#[derive(Debug)]
pub(crate) struct OpWaits {
    ranges: Vec<(u32, u32)>,
    pub waits: Vec<Wait>,
}

impl OpWaits {
    pub(crate) fn of(&self, op: usize) -> &[Wait] {
        let (start, end) = self.ranges[op];
        &self.waits[start as usize..end as usize]
    }
}

/// An edge that memory reuse asks for: both are ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReuseEdge {
    pub succ: u32,
    pub pred: u32,
}

/// Reduces the edges of `lowered` and `reuse` (sorted by successor) to waits.
pub(crate) fn reduce(lowered: &Lowered, schedule: &Schedule, reuse: &[ReuseEdge]) -> OpWaits {
    let lanes = schedule.lane_counts.len();
    let mut clocks = Clocks::new(lanes, lowered.len());
    let mut out = OpWaits { ranges: vec![(0, 0); lowered.len()], waits: Vec::new() };
    let mut needed = vec![0u32; lanes];
    let mut touched: Vec<usize> = Vec::new();
    for &op in &schedule.sequence {
        let op = op as usize;
        let lane = schedule.lanes[op].index();
        let base = clocks.latest[lane];
        let first = reuse.partition_point(|edge| edge.succ < op as u32);
        let reused = reuse[first..].iter().take_while(|edge| edge.succ == op as u32);
        for pred in lowered.preds_of(op).iter().copied().chain(reused.map(|edge| edge.pred)) {
            let from = schedule.lanes[pred as usize].index();
            let count = schedule.positions[pred as usize] + 1;
            if from != lane && clocks.row(base)[from] < count && needed[from] < count {
                if needed[from] == 0 {
                    touched.push(from);
                }
                needed[from] = count;
            }
        }
        let start = out.waits.len() as u32;
        if touched.is_empty() {
            clocks.of_op[op] = base;
        } else {
            touched.sort_unstable();
            for &from in &touched {
                if !clocks.is_implied(from, needed[from], &touched, &needed) {
                    out.waits.push(Wait { lane: LaneIndex(from as u16), count: needed[from] });
                }
            }
            clocks.advance(op, lane, &out.waits[start as usize..]);
            touched.drain(..).for_each(|from| needed[from] = 0);
        }
        out.ranges[op] = (start, out.waits.len() as u32);
        clocks.by_position[lane].push(clocks.of_op[op]);
    }
    out
}

/// Vector clocks; a lane's clock changes only where it waits, so that the ops in between share a
/// row.
struct Clocks {
    lanes: usize,
    rows: Vec<u32>,
    /// By lane: the row of its newest op.
    latest: Vec<u32>,
    of_op: Vec<u32>,
    /// By lane and position: the row of that op.
    by_position: Vec<Vec<u32>>,
}

impl Clocks {
    fn new(lanes: usize, ops: usize) -> Self {
        Self {
            lanes,
            rows: vec![0; lanes],
            latest: vec![0; lanes],
            of_op: vec![0; ops],
            by_position: vec![Vec::new(); lanes],
        }
    }

    fn row(&self, row: u32) -> &[u32] {
        &self.rows[row as usize * self.lanes..][..self.lanes]
    }

    /// The row of what has finished before op number `count - 1` of `lane` began.
    fn row_at(&self, lane: usize, count: u32) -> &[u32] {
        self.row(self.by_position[lane][count as usize - 1])
    }

    /// Whether another of the needed waits brings `from` to `count`.
    fn is_implied(&self, from: usize, count: u32, touched: &[usize], needed: &[u32]) -> bool {
        touched
            .iter()
            .any(|&other| other != from && self.row_at(other, needed[other])[from] >= count)
    }

    /// Gives `op` on `lane` the clock that its waits bring.
    fn advance(&mut self, op: usize, lane: usize, waits: &[Wait]) {
        let new = (self.rows.len() / self.lanes) as u32;
        let base = self.latest[lane] as usize * self.lanes;
        self.rows.extend_from_within(base..base + self.lanes);
        for wait in waits {
            let from = wait.lane.index();
            let other = self.by_position[from][wait.count as usize - 1] as usize * self.lanes;
            for at in 0..self.lanes {
                let brought = self.rows[other + at];
                let own = &mut self.rows[new as usize * self.lanes + at];
                *own = (*own).max(brought);
            }
            let own = &mut self.rows[new as usize * self.lanes + from];
            *own = (*own).max(wait.count);
        }
        self.latest[lane] = new;
        self.of_op[op] = new;
    }
}
