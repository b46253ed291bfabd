//! Forecasts: what replays must keep to, they keep to.

use syncline_plan::{
    BufferSpec, CompileOptions, ExecutionPlan, Forecast, LaneIndex, Machine, OpCost, OpIndex,
    TaskGraph, TaskSpec, forecast_pools,
};
use syncline_tensor::{Arg, View};
use syncline_testing::{Rng, for_seeds};

use crate::program::any_plan;

fn any_costs(rng: &mut Rng, plan: &ExecutionPlan) -> Vec<OpCost> {
    let mut cost = || OpCost {
        body_ns: rng.range(1..2_000),
        dispatch_ns: rng.range(0..100),
        sync_ns: rng.range(0..500),
    };
    plan.ops().iter().map(|_| cost()).collect()
}

/// Each op takes what it costs, after all that it must come after, and lanes do one thing at a
/// time.
fn assert_possible(plan: &ExecutionPlan, costs: &[OpCost], times: &[Forecast]) {
    let deps = plan.op_deps();
    for (at, (time, cost)) in times.iter().zip(costs).enumerate() {
        assert_eq!(time.end_ns - time.start_ns, cost.body_ns);
        for dep in deps.of(OpIndex(at as u32)).iter().filter(|dep| !dep.is_of_last_run) {
            let before = &times[dep.op.index()];
            assert!(before.end_ns <= time.start_ns, "{at} starts before {} ends", dep.op.index());
        }
    }
    let mut order: Vec<&Forecast> = times.iter().collect();
    order.sort_by_key(|time| (time.lane, time.start_ns));
    for pair in order.windows(2) {
        assert!(pair[0].lane != pair[1].lane || pair[0].end_ns <= pair[1].start_ns, "{pair:?}");
    }
}

#[test]
fn any_plan_is_followed_in_order_and_by_lanes_that_steal() {
    for_seeds("any_plan_is_followed_in_order_and_by_lanes_that_steal", 200, |rng| {
        let (_, _, plan) = any_plan(rng, 40);
        let costs = any_costs(rng, &plan);
        let wake_ns = rng.range(0..5_000);
        let in_order = plan.forecast(&costs, wake_ns, None);
        assert_possible(&plan, &costs, &in_order);
        for (at, lane) in plan.lanes().iter().enumerate() {
            let ops = lane.first.index()..lane.first.index() + lane.count as usize;
            let times = &in_order[ops.clone()];
            assert!(times.iter().all(|time| time.lane == LaneIndex(at as u16)));
            for (pair, op) in times.windows(2).zip(ops.skip(1)) {
                assert!(pair[0].end_ns + costs[op].dispatch_ns <= pair[1].start_ns);
            }
        }
        let stealing = plan.forecast(&costs, wake_ns, Some(&plan.op_deps()));
        assert_possible(&plan, &costs, &stealing);
        let lanes = plan.lanes();
        let home = |at: usize| lanes.iter().find(|lane| at < (lane.first.0 + lane.count) as usize);
        for (at, time) in stealing.iter().enumerate() {
            let (home, ran) = (home(at).unwrap(), &lanes[time.lane.index()]);
            assert_eq!((home.device, home.kind), (ran.device, ran.kind));
        }
    });
}

/// What the planner expects comes true when ops cost what it was told, with nothing else between
/// them.
#[test]
fn a_plan_takes_what_it_expected_to_take() {
    for_seeds("a_plan_takes_what_it_expected_to_take", 100, |rng| {
        let (_, _, plan) = any_plan(rng, 40);
        let sync_ns = plan.machine().sync_ns();
        let cost = |op: &syncline_plan::Op| OpCost {
            body_ns: op.end_ns - op.start_ns,
            dispatch_ns: 0,
            sync_ns,
        };
        let costs: Vec<OpCost> = plan.ops().iter().map(cost).collect();
        let times = plan.forecast(&costs, 0, None);
        let expected = plan.ops().iter().map(|op| op.end_ns).max();
        let found = times.iter().map(|time| time.end_ns).max();
        // Memory that ops share in time makes them wait where the expectation did not.
        let reuses = plan.arena_bytes().iter().any(|&bytes| bytes > 0);
        assert!(found == expected || (reuses && found > expected), "{found:?}, {expected:?}");
    });
}

fn columns(tasks: u64) -> ExecutionPlan {
    let mut graph = TaskGraph::new();
    let buffer = graph.add_buffer(BufferSpec::external("columns", tasks * 64)).unwrap();
    for column in 0..tasks {
        let view = View::bytes_at(column * 64, 64).unwrap();
        graph.submit(&TaskSpec::new("k", &[Arg::inout(buffer, view)]).cost_ns(1_000)).unwrap();
    }
    ExecutionPlan::compile(&graph, &Machine::cpu(2), &CompileOptions::default()).unwrap()
}

#[test]
fn lanes_that_wake_late_leave_their_ops_to_others() {
    let plan = columns(10);
    let costs = [OpCost { body_ns: 1_000, dispatch_ns: 0, sync_ns: 0 }; 10];
    let end = |wake_ns, steal: bool| {
        let deps = steal.then(|| plan.op_deps());
        let times = plan.forecast(&costs, wake_ns, deps.as_ref());
        times.iter().map(|time| time.end_ns).max().unwrap()
    };
    assert_eq!((end(0, false), end(0, true)), (5_000, 5_000));
    assert_eq!((end(3_000, false), end(3_000, true)), (8_000, 7_000));
    assert_eq!((end(50_000, false), end(50_000, true)), (55_000, 10_000));
}

/// Greedy lanes keep between the bounds that hold for every list schedule: Graham's from above, the
/// work of each lane and the longest chain from below.
#[test]
fn pools_keep_to_the_bounds_of_list_schedules() {
    for_seeds("pools_keep_to_the_bounds_of_list_schedules", 200, |rng| {
        let (ops, lanes) = (1 + rng.below(80), 1 + rng.below(6) as u16);
        let body = |rng: &mut Rng| OpCost { body_ns: rng.range(1..1_000), ..OpCost::default() };
        let costs: Vec<OpCost> = (0..ops).map(|_| body(rng)).collect();
        let mut preds: Vec<Vec<u32>> = Vec::new();
        let mut chains: Vec<u64> = Vec::new();
        for (op, cost) in costs.iter().enumerate() {
            let before: Vec<u32> =
                (0..rng.below(3).min(op)).map(|_| rng.below(op) as u32).collect();
            let chain = before.iter().map(|&pred| chains[pred as usize]).max().unwrap_or(0);
            chains.push(chain + cost.body_ns);
            preds.push(before);
        }
        let times = forecast_pools(&costs, &[lanes], &vec![0; ops], |op| {
            preds[op as usize].iter().copied()
        });
        for (op, time) in times.iter().enumerate() {
            assert_eq!(time.end_ns - time.start_ns, costs[op].body_ns);
            assert!(preds[op].iter().all(|&pred| times[pred as usize].end_ns <= time.start_ns));
            let others = times.iter().enumerate().filter(|(other, one)| {
                *other != op && one.lane == time.lane && one.start_ns < time.end_ns
            });
            assert!(others.clone().all(|(_, one)| one.end_ns <= time.start_ns), "{op}");
        }
        let makespan = times.iter().map(|time| time.end_ns).max().unwrap();
        let (work, chain) =
            (costs.iter().map(|cost| cost.body_ns).sum::<u64>(), chains.into_iter().max().unwrap());
        let lanes = u64::from(lanes);
        assert!(makespan >= chain && makespan * lanes >= work, "{makespan}");
        assert!(makespan * lanes <= work + chain * (lanes - 1), "{makespan}, {work}, {chain}");
    });
}
