use syncline_deps::EdgeKinds;
use syncline_testing::{Rng, for_seeds};

use super::*;
use crate::{RunEdge, RunLane, RunOp};

/// Any edges and any times, whether they make sense together or not.
fn any_run(rng: &mut Rng) -> RunRecord {
    let (ops, lanes) = (1 + rng.below(60), 1 + rng.below(4));
    let mut run = RunRecord::new("any");
    run.lanes = vec![RunLane::default(); lanes];
    for task in 0..ops {
        let start_ns = 500 + rng.range(0..2_000);
        let end_ns = start_ns + rng.range(0..300);
        let timing = RunTiming { lane: rng.below(lanes) as u32, start_ns, end_ns };
        let kind = if rng.one_in(3) { RunOpKind::Copy } else { RunOpKind::Compute };
        run.ops.push(RunOp { timing: Some(timing), ..RunOp::new(task as u64, "any", kind) });
        for _ in 0..rng.below(3).min(task) {
            let (pred, kinds) = (rng.below(task) as u32, EdgeKinds::RAW);
            run.edges.push(RunEdge { pred, succ: task as u32, kinds, region: String::new() });
        }
    }
    run
}

#[test]
fn without_a_change_the_schedule_takes_what_it_took() {
    for_seeds("without_a_change_the_schedule_takes_what_it_took", 300, |rng| {
        let run = any_run(rng);
        let graph = Graph::new(&run).unwrap();
        let (start, end) = run.span_ns().unwrap();
        let outliers = crate::outliers::outliers(&run);
        let replay = Replay::new(&run, &graph, &outliers).unwrap();
        assert_eq!(replay.makespan_ns(None), end - start);
        for change in [Change::FreeCopies, Change::NoStalls, Change::MoreLanes, Change::NoOutliers]
        {
            assert!(replay.makespan_ns(Some(&change)) <= end - start, "{change}");
        }
    });
}
