//! More lanes, simulated: lanes that take whichever op is ready, in the order of the run.

use syncline_plan::{OpCost, forecast_pools};

use super::{Change, Replay, Scenario};
use crate::{RunOpKind, RunRecord};

/// Runs with more ops are not simulated: it would take seconds.
const OPS_MAX: usize = 1 << 18;
/// Devices are tried in the order of their work, this many at most.
const DEVICES_MAX: usize = 4;
/// The most lanes of a simulated run.
const LANES_MAX: usize = 4096;

/// The lanes of one device that do one kind of work, and take each other's ops.
struct Pool<'a> {
    device: &'a str,
    copies: bool,
    lanes: usize,
    work_ns: u64,
}

/// What one more lane, and twice as many, would gain on each device.
pub(super) fn scenarios(run: &RunRecord, replay: &Replay<'_>, makespan_ns: u64) -> Vec<Scenario> {
    if replay.order.len() > OPS_MAX || run.lanes.len() > LANES_MAX {
        return Vec::new();
    }
    let lists = Lists::of(run, replay);
    let before_ns = lists.makespan_ns(replay, None);
    let mut pools: Vec<usize> = (0..lists.pools.len())
        .filter(|&pool| !lists.pools[pool].copies && lists.pools[pool].work_ns > 0)
        .collect();
    pools.sort_by_key(|&pool| std::cmp::Reverse(lists.pools[pool].work_ns));
    pools.truncate(DEVICES_MAX);
    let changes = pools.into_iter().flat_map(|pool| {
        let had = lists.pools[pool].lanes;
        [had + 1, had * 2].into_iter().take(had.min(2)).map(move |lanes| (pool, had, lanes))
    });
    let scenario = |(pool, had, lanes): (usize, usize, usize)| {
        let gain_ns = before_ns.saturating_sub(lists.makespan_ns(replay, Some((pool, lanes))));
        let device = lists.pools[pool].device.to_owned();
        let change = Change::Lanes { device, had, lanes };
        Scenario { change, makespan_ns: makespan_ns.saturating_sub(gain_ns) }
    };
    changes.map(scenario).collect()
}

/// The run as lists of ops for pools of lanes, in the order of its starts.
struct Lists<'a> {
    pools: Vec<Pool<'a>>,
    pool_of: Vec<u16>,
    costs: Vec<OpCost>,
}

impl<'a> Lists<'a> {
    fn of(run: &'a RunRecord, replay: &Replay<'_>) -> Self {
        let copies = copy_lanes(run);
        let mut pools: Vec<Pool<'a>> = Vec::new();
        let mut pool_of_lane = Vec::with_capacity(run.lanes.len());
        for (lane, &copies) in run.lanes.iter().zip(&copies) {
            let is_it = |pool: &Pool<'_>| pool.device == lane.device && pool.copies == copies;
            let pool = pools.iter().position(is_it).unwrap_or_else(|| {
                pools.push(Pool { device: &lane.device, copies, lanes: 0, work_ns: 0 });
                pools.len() - 1
            });
            pools[pool].lanes += 1;
            pool_of_lane.push(pool as u16);
        }
        let (mut pool_of, mut costs) = (Vec::new(), Vec::new());
        for &op in &replay.order {
            let lane = run.ops[op as usize].timing.map_or(0, |timing| timing.lane);
            let pool = pool_of_lane[lane as usize];
            let (start, end) = replay.measured(op);
            let body_ns = replay.duration(op, end - start, Some(&Change::NoOutliers));
            let body_ns = u64::try_from(body_ns).unwrap_or(0);
            let dispatch_ns = u64::try_from(replay.delay(op)).unwrap_or(0);
            pools[usize::from(pool)].work_ns += body_ns;
            pool_of.push(pool);
            costs.push(OpCost { body_ns, dispatch_ns, sync_ns: dispatch_ns });
        }
        Self { pools, pool_of, costs }
    }

    /// How long the run takes with the lanes that it had, but for one pool.
    fn makespan_ns(&self, replay: &Replay<'_>, change: Option<(usize, usize)>) -> u64 {
        let count = |(at, pool): (usize, &Pool<'_>)| match change {
            Some((changed, lanes)) if changed == at => lanes as u16,
            _ => pool.lanes as u16,
        };
        let lanes: Vec<u16> = self.pools.iter().enumerate().map(count).collect();
        let times = forecast_pools(&self.costs, &lanes, &self.pool_of, |at| replay.preds(at));
        times.iter().map(|time| time.end_ns).max().unwrap_or(0)
    }
}

/// By lane: whether all that it did was to move bytes.
fn copy_lanes(run: &RunRecord) -> Vec<bool> {
    let mut did = vec![[false; 2]; run.lanes.len()];
    for op in &run.ops {
        let Some(timing) = op.timing else { continue };
        did[timing.lane as usize][usize::from(op.kind == RunOpKind::Copy)] = true;
    }
    did.iter().map(|[computed, copied]| *copied && !computed).collect()
}
