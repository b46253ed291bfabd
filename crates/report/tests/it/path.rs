//! Critical path, gaps and what-if: what must hold of every run.

use syncline_report::{Analysis, GapCause, PathLink, RunOp, RunOpKind, RunRecord, StepKind};
use syncline_testing::{Rng, for_seeds};

use crate::runs::{edge, random_run, senseless_run, timed};

fn any_run(rng: &mut Rng) -> RunRecord {
    let (ops, lanes) = (1 + rng.below(120), 1 + rng.below(6));
    if rng.one_in(2) { random_run(rng, ops, lanes) } else { senseless_run(rng, ops, lanes) }
}

#[test]
fn the_path_tiles_the_makespan() {
    for_seeds("the_path_tiles_the_makespan", 600, |rng| {
        let run = any_run(rng);
        let path = Analysis::of(&run).unwrap().path;
        let Some((start, end)) = run.span_ns() else {
            return assert!(path.steps.is_empty());
        };
        assert_eq!(path.steps.first().unwrap().start_ns, start);
        assert_eq!(path.steps.last().unwrap().end_ns, end);
        for pair in path.steps.windows(2) {
            assert_eq!(pair[0].end_ns, pair[1].start_ns, "{pair:?}");
        }
        let parts = StepKind::ALL.map(|kind| path.time_ns(kind));
        assert_eq!(parts.iter().sum::<u64>(), end - start);
        let links = path.link_times();
        assert_eq!(links.data_ns + links.lane_ns, parts[0] + parts[1]);
    });
}

#[test]
fn steps_say_what_ran_and_how_it_depends_on_the_step_before() {
    for_seeds("steps_say_what_ran_and_how_it_depends_on_the_step_before", 300, |rng| {
        let (ops, lanes) = (1 + rng.below(120), 1 + rng.below(6));
        let run = random_run(rng, ops, lanes);
        let steps = Analysis::of(&run).unwrap().path.steps;
        let ran: Vec<_> = steps.iter().filter(|step| step.kind.ran()).collect();
        for step in &ran {
            // Clocks agree here, so that every op counts in full.
            let timing = run.ops[step.op as usize].timing.unwrap();
            assert_eq!((step.start_ns, step.end_ns), (timing.start_ns, timing.end_ns));
            let is_copy = run.ops[step.op as usize].kind == RunOpKind::Copy;
            assert_eq!(step.kind == StepKind::Copy, is_copy);
        }
        for pair in ran.windows(2) {
            // By brute force: nothing that the later op had to follow ended after the earlier one.
            let end = |op: u32| run.ops[op as usize].timing.unwrap().end_ns;
            let preds = run.edges.iter().filter(|edge| edge.succ == pair[1].op);
            assert!(preds.clone().all(|edge| end(edge.pred) <= end(pair[0].op)), "{pair:?}");
            let later = run.ops[pair[1].op as usize].timing.unwrap();
            let on_lane = run.ops[..pair[1].op as usize].iter().filter_map(|op| op.timing);
            let mut before = on_lane.filter(|timing| timing.lane == later.lane);
            assert!(before.all(|timing| timing.end_ns <= end(pair[0].op)), "{pair:?}");
            match pair[1].link.expect("only the first op follows nothing") {
                PathLink::Edge(edge) => {
                    let edge = &run.edges[edge as usize];
                    assert_eq!((edge.pred, edge.succ), (pair[0].op, pair[1].op));
                }
                PathLink::Lane => {
                    let lane = |op: u32| run.ops[op as usize].timing.unwrap().lane;
                    assert_eq!(lane(pair[0].op), lane(pair[1].op));
                }
            }
        }
    });
}

#[test]
fn gaps_and_ops_tile_every_lane() {
    for_seeds("gaps_and_ops_tile_every_lane", 400, |rng| {
        let run = any_run(rng);
        let analysis = Analysis::of(&run).unwrap();
        let Some((start, end)) = run.span_ns() else { return };
        for (lane, used) in (0u32..).zip(&analysis.summary.lanes) {
            let on_lane = run.ops.iter().filter_map(|op| op.timing).filter(|one| one.lane == lane);
            let mut marks: Vec<(u64, u64)> =
                on_lane.map(|one| (one.start_ns, one.end_ns)).filter(|one| one.0 < one.1).collect();
            let gaps: Vec<_> = analysis.gaps.iter().filter(|gap| gap.lane == lane).collect();
            for gap in &gaps {
                assert!(gap.start_ns < gap.end_ns, "{gap:?}");
                let clash = marks.iter().find(|one| one.0 < gap.end_ns && gap.start_ns < one.1);
                assert_eq!(clash, None, "{gap:?}");
            }
            marks.extend(gaps.iter().map(|gap| (gap.start_ns, gap.end_ns)));
            marks.sort_unstable();
            let reached = marks.iter().fold(start, |reached, one| {
                assert!(one.0 <= reached, "nothing from {reached} to {}", one.0);
                reached.max(one.1)
            });
            assert_eq!(reached, end);
            assert_eq!(used.busy_ns + used.idle_ns.iter().sum::<u64>(), end - start);
        }
    });
}

#[test]
fn no_change_is_estimated_to_make_a_run_longer() {
    for_seeds("no_change_is_estimated_to_make_a_run_longer", 300, |rng| {
        let run = any_run(rng);
        let analysis = Analysis::of(&run).unwrap();
        let mut last = 0;
        for scenario in &analysis.scenarios {
            assert!(scenario.makespan_ns < analysis.summary.makespan_ns, "{scenario:?}");
            assert!(last <= scenario.makespan_ns, "the best comes first");
            last = scenario.makespan_ns;
        }
    });
}

/// `load` -> `copy` -> `scale` on three lanes, with a delay of 5 before the last.
fn chain() -> RunRecord {
    let mut run = RunRecord::new("chain");
    run.lanes = vec![Default::default(); 3];
    run.ops = vec![
        timed(0, "load", 0, 100, 140),
        timed(1, "copy", 1, 140, 200),
        timed(2, "scale", 2, 205, 265),
    ];
    run.edges = vec![edge(0, 1), edge(1, 2)];
    run
}

#[test]
fn a_chain_by_hand() {
    let analysis = Analysis::of(&chain()).unwrap();
    let steps: Vec<_> = analysis
        .path
        .steps
        .iter()
        .map(|one| (one.kind, one.op, one.start_ns, one.end_ns))
        .collect();
    assert_eq!(
        steps,
        [
            (StepKind::Compute, 0, 100, 140),
            (StepKind::Copy, 1, 140, 200),
            (StepKind::Stall, 2, 200, 205),
            (StepKind::Compute, 2, 205, 265),
        ]
    );
    let gaps: Vec<_> = (analysis.gaps.iter().filter(|gap| gap.lane == 2))
        .map(|gap| (gap.cause, gap.start_ns, gap.end_ns))
        .collect();
    assert_eq!(
        gaps,
        [
            (GapCause::Data, 100, 140),
            (GapCause::Transfer, 140, 200),
            (GapCause::Dispatch, 200, 205)
        ]
    );
    let found: Vec<_> =
        (analysis.scenarios.iter()).map(|one| (one.change.to_string(), one.makespan_ns)).collect();
    assert_eq!(found[0], ("copies that take no time".to_owned(), 105));
    assert_eq!(found[1], ("`scale` twice as fast".to_owned(), 135));
    assert_eq!(found[2], ("`load` twice as fast".to_owned(), 145));
    assert_eq!(found[3], ("no delay between ready and started".to_owned(), 160));
    assert_eq!(found.len(), 4);
}

#[test]
fn a_queue_is_lane_busy_to_those_who_wait_for_its_end() {
    let mut run = RunRecord::new("queue");
    run.lanes = vec![Default::default(); 2];
    run.ops = vec![
        timed(0, "long", 0, 0, 50),
        timed(1, "wanted", 0, 50, 60),
        timed(2, "user", 1, 60, 70),
        timed(3, "late", 0, 70, 80),
    ];
    run.edges = vec![edge(1, 2), edge(2, 3)];
    let gaps = Analysis::of(&run).unwrap().gaps;
    let on = |lane| move |gap: &&syncline_report::Gap| gap.lane == lane;
    let second: Vec<_> =
        gaps.iter().filter(on(1)).map(|gap| (gap.cause, gap.start_ns, gap.end_ns)).collect();
    assert_eq!(
        second,
        [(GapCause::LaneBusy, 0, 50), (GapCause::Data, 50, 60), (GapCause::NothingReady, 70, 80)]
    );
}

#[test]
fn a_run_without_times_has_a_graph_and_no_path() {
    let mut run = chain();
    run.ops.iter_mut().for_each(|op| op.timing = None);
    let analysis = Analysis::of(&run).unwrap();
    assert!(analysis.path.steps.is_empty() && analysis.gaps.is_empty());
    assert_eq!(analysis.layout(&run, &analysis.redundant(&run)).depth, 3);
    assert!(analysis.summary.limit.contains("no timings"), "{}", analysis.summary.limit);
    let empty = RunRecord { ops: Vec::<RunOp>::new(), edges: vec![], ..run };
    let analysis = Analysis::of(&empty).unwrap();
    assert_eq!(analysis.layout(&empty, &analysis.redundant(&empty)).rows, 0);
}
