//! Forecasts: when the ops of a plan would run, by discrete events over its lanes.
//!
//! A plan was made from what its ops were thought to cost, and says when each is expected. A
//! forecast is told what they do cost and what passes between them, and follows the lanes as a
//! replay would: each in its order with the plan's waits, or, where idle lanes take ops of busy
//! ones, whatever is ready.

mod in_order;
mod stealing;

use crate::hazards::OpDeps;
use crate::plan::{ExecutionPlan, LaneIndex};

/// What an op takes, and what passes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCost {
    /// From its start to its end.
    pub body_ns: u64,
    /// From the end of the op before it on its lane to its start, where it was ready.
    pub dispatch_ns: u64,
    /// From the end of an op on another lane to its start, where it waited for that.
    pub sync_ns: u64,
}

/// Who runs an op, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// The lane that runs it: its own, or one that was idle.
    pub lane: LaneIndex,
    /// From the start of the run.
    pub start_ns: u64,
    /// From the start of the run.
    pub end_ns: u64,
}

/// Returns when every op of a program that has no plan would run, in the order of `costs`.
///
/// Pool number `p` has `lanes[p]` lanes, and any of them takes the ops that `pool_of` assigns to
/// it: the ready one with the lowest number. `preds` lists what an op comes
/// after.
///
/// ```
/// use syncline_plan::{OpCost, forecast_pools};
///
/// let cost = OpCost { body_ns: 100, ..OpCost::default() };
/// let end_ns = |lanes: u16| {
///     let times = forecast_pools(&[cost; 3], &[lanes], &[0; 3], |_| std::iter::empty());
///     times.iter().map(|time| time.end_ns).max()
/// };
/// assert_eq!([end_ns(1), end_ns(2), end_ns(9)], [Some(300), Some(200), Some(100)]);
/// ```
///
/// # Panics
/// If there is not a pool for every op, or an op is assigned to a pool without lanes.
pub fn forecast_pools<Preds: Iterator<Item = u32>>(
    costs: &[OpCost],
    lanes: &[u16],
    pool_of: &[u16],
    preds: impl Fn(u32) -> Preds,
) -> Vec<Forecast> {
    assert_eq!(costs.len(), pool_of.len(), "a pool for every op");
    let mut pools = Vec::new();
    let first_lanes: Vec<usize> = (lanes.iter())
        .map(|&count| {
            let first = pools.len();
            pools.resize(first + usize::from(count), first..first + usize::from(count));
            first
        })
        .collect();
    let home = |&pool: &u16| {
        assert!(lanes[usize::from(pool)] > 0, "pool {pool} has ops and no lanes");
        first_lanes[usize::from(pool)] as u16
    };
    let homes = pool_of.iter().map(home).collect();
    stealing::follow(costs, homes, pools, preds, |_| 0)
}

impl ExecutionPlan {
    /// When every op would run, each taking what `costs` says of it, by number of op; in the order
    /// on lanes, or, with `stealing`, as soon as a lane of its device is free and all that it must
    /// come after is done. Lanes begin `wake_ns` after the start, but for the one that a caller
    /// runs itself.
    ///
    /// ```
    /// use syncline_tensor::{Arg, Dtype, View};
    /// use syncline_plan::{
    ///     BufferSpec, CompileOptions, ExecutionPlan, Machine, OpCost, TaskGraph, TaskSpec,
    /// };
    ///
    /// let mut graph = TaskGraph::new();
    /// let x = graph.add_buffer(BufferSpec::external("x", 4))?;
    /// let arg = [Arg::inout(x, View::contiguous(Dtype::U32, &[1])?)];
    /// graph.submit(&TaskSpec::new("first", &arg))?;
    /// graph.submit(&TaskSpec::new("second", &arg))?;
    /// let plan = ExecutionPlan::compile(&graph, &Machine::cpu(1), &CompileOptions::default())?;
    /// let cost = OpCost { body_ns: 100, dispatch_ns: 5, sync_ns: 0 };
    /// let times = plan.forecast(&[cost, cost], 0, None);
    /// assert_eq!((times[1].start_ns, times[1].end_ns), (105, 205));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If there is not a cost for every op.
    pub fn forecast(
        &self,
        costs: &[OpCost],
        wake_ns: u64,
        stealing: Option<&OpDeps>,
    ) -> Vec<Forecast> {
        assert_eq!(costs.len(), self.ops.len(), "a cost for every op");
        match stealing {
            None => in_order::run(self, costs, wake_ns),
            Some(deps) => stealing::run(self, deps, costs, wake_ns),
        }
    }

    /// The lane that a caller runs itself: the one with the most ops, of several the first.
    fn callers_lane(&self) -> usize {
        let lanes = self.lanes.iter().enumerate().rev();
        lanes.max_by_key(|(_, lane)| lane.count).map_or(0, |(at, _)| at)
    }
}
