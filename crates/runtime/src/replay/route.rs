//! Routes: where a lane waits for others, and where it says how far it is.

use syncline_plan::{ExecutionPlan, LaneIndex, OpIndex, RunWaits, Wait};

use super::shared::{LaneWait, Route, Segment};

/// Returns the routes of all lanes; with `between`, for runs that begin before the ones before have
/// ended. Lanes that `is_split` says are cut between all of their ops.
pub fn routes(
    plan: &ExecutionPlan,
    between: Option<&RunWaits>,
    is_split: impl Fn(usize) -> bool,
) -> Vec<Route> {
    let mut is_awaited: Vec<bool> = plan.ops().iter().map(|op| op.is_awaited).collect();
    for wait in between.iter().flat_map(|between| between.all()) {
        let first = plan.lanes()[wait.lane.index()].first;
        is_awaited[first.index() + wait.count as usize - 1] = true;
    }
    let lanes = 0..plan.lanes().len();
    lanes.map(|lane| route(plan, lane, between, &is_awaited, is_split(lane))).collect()
}

/// Has lanes that are threads announce what `route`, of a lane of a device, waits for.
pub fn announce(routes: &mut [Route], route: &Route) {
    for wait in &route.waits {
        // What is awaited ends a segment, whichever lane waits. Routes of devices are elsewhere.
        let segments = &mut routes[wait.lane as usize].segments;
        let end = segments.binary_search_by_key(&wait.count(), |segment| segment.steps_end);
        if let Ok(end) = end {
            segments[end].announces = true;
        }
    }
}

/// Cuts a lane before ops that wait and behind those that are awaited; or between all of them.
fn route(
    plan: &ExecutionPlan,
    lane: usize,
    between: Option<&RunWaits>,
    is_awaited: &[bool],
    is_split: bool,
) -> Route {
    let first = plan.lanes()[lane].first;
    let mut waits: Vec<LaneWait> = Vec::new();
    let mut segments: Vec<Segment> = Vec::new();
    for (at, op) in plan.lane_ops(LaneIndex(lane as u16)).iter().enumerate() {
        let index = OpIndex(first.0 + at as u32);
        let own = plan.waits_of(op);
        let last = between.map_or(&[][..], |between| between.of(index));
        let ended = is_split || segments.last().is_none_or(|last| last.publishes);
        if ended || !own.is_empty() || !last.is_empty() {
            let waits_start = waits.len() as u32;
            waits.extend(last.iter().map(|wait| lane_wait(plan, wait, 1)));
            waits.extend(own.iter().map(|wait| lane_wait(plan, wait, 0)));
            let waits_end = waits.len() as u32;
            segments.push(Segment { waits_start, waits_end, ..Segment::default() });
        }
        let segment = segments.last_mut().expect("one was begun");
        segment.steps_end = at as u32 + 1;
        segment.publishes = is_awaited[index.index()];
    }
    Route { segments: segments.into(), waits: waits.into() }
}

/// `wait` in the run that lies `runs` before.
fn lane_wait(plan: &ExecutionPlan, wait: &Wait, runs: u64) -> LaneWait {
    let steps = plan.lanes()[wait.lane.index()].count;
    let back = u64::from(steps - wait.count) + runs * u64::from(steps);
    LaneWait { lane: u32::from(wait.lane.0), steps, back }
}
