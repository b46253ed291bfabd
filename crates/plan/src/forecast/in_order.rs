//! Every lane in its order, waiting where the plan says.

use super::{Forecast, OpCost};
use crate::plan::{ExecutionPlan, LaneIndex};

pub(crate) fn run(plan: &ExecutionPlan, costs: &[OpCost], wake_ns: u64) -> Vec<Forecast> {
    let mut times = vec![Forecast::default(); plan.ops.len()];
    let mut done = vec![0u32; plan.lanes.len()];
    let own = plan.callers_lane();
    let mut left = plan.ops.len();
    // An op's time is known once those of its waits are: lanes go on in turns, each as far as that.
    while left > 0 {
        let before = left;
        for (at, lane) in plan.lanes.iter().enumerate() {
            for number in done[at]..lane.count {
                let op = (lane.first.0 + number) as usize;
                let waits = plan.waits_of(&plan.ops[op]);
                if waits.iter().any(|wait| done[wait.lane.index()] < wait.count) {
                    break;
                }
                let free_ns = match number {
                    0 if at == own => 0,
                    0 => wake_ns,
                    _ => times[op - 1].end_ns.saturating_add(costs[op].dispatch_ns),
                };
                let awaited = waits.iter().map(|wait| {
                    let last = plan.lanes[wait.lane.index()].first.0 + wait.count - 1;
                    times[last as usize].end_ns.saturating_add(costs[op].sync_ns)
                });
                let start_ns = awaited.fold(free_ns, u64::max);
                let end_ns = start_ns.saturating_add(costs[op].body_ns);
                times[op] = Forecast { lane: LaneIndex(at as u16), start_ns, end_ns };
                done[at] += 1;
                left -= 1;
            }
        }
        assert!(left < before, "a plan that was compiled or proven cannot hang");
    }
    times
}
