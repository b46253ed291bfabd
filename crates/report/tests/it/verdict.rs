//! Verdicts that can be trusted: no single op decides them, and their amounts add up.

use syncline_report::{
    Analysis, Change, OutlierCause, PathCause, RunLane, RunOp, RunRecord, RunTiming,
};
use syncline_testing::{Rng, for_seeds};

use crate::runs::{cholesky, edge, random_run, senseless_run, timed};

fn lengthen(op: &mut RunOp, duration_ns: u64) {
    let timing = op.timing.as_mut().unwrap();
    timing.end_ns = timing.start_ns + duration_ns;
}

/// Ops of `lengths_ns` one after the other.
fn row(name: &str, lengths_ns: &[u64]) -> RunRecord {
    let mut run = RunRecord::new("row");
    run.lanes = vec![RunLane::new("w0", "cpu:0")];
    let mut at_ns = 0;
    for (task, length_ns) in (0u64..).zip(lengths_ns) {
        run.ops.push(timed(task, name, 0, at_ns, at_ns + length_ns));
        at_ns += length_ns;
    }
    run
}

#[test]
fn an_outlier_is_named_with_its_likely_cause() {
    let mut lengths = vec![31_640; 40];
    lengths[17] = 4_050_000;
    let analysis = Analysis::of(&row("syrk", &lengths)).unwrap();
    let said = "One `syrk` took 4.05 ms, 128 times the median: likely preempted; without it the \
                run takes 1.27 ms instead of 5.28 ms. Besides, `syrk` takes 100% of the \
                critical path; ";
    assert!(analysis.summary.limit.starts_with(said), "{}", analysis.summary.limit);
    let kernel = &analysis.summary.kernels[0];
    assert_eq!((kernel.median_ns, kernel.p95_ns, kernel.max_ns), (31_640, 31_640, 4_050_000));
    let usual = analysis.scenarios.iter().find(|one| one.change == Change::NoOutliers).unwrap();
    assert_eq!(usual.makespan_ns, 40 * 31_640);
    let halved = Change::Halve("syrk".to_owned());
    let halved = analysis.scenarios.iter().find(|one| one.change == halved).unwrap();
    let gain_ns = analysis.summary.makespan_ns - halved.makespan_ns;
    assert_eq!(gain_ns, 20 * 31_640, "a faster kernel is not interrupted less");
    lengths.swap(0, 17);
    let analysis = Analysis::of(&row("syrk", &lengths)).unwrap();
    assert_eq!(analysis.outliers[0].cause, OutlierCause::ColdStart);
    // Two sizes of one kernel are no outliers, nor are copies of more bytes.
    let sizes: Vec<u64> = (0..40).map(|at| if at % 5 == 0 { 900_000 } else { 10_000 }).collect();
    assert!(Analysis::of(&row("syrk", &sizes)).unwrap().outliers.is_empty());
    let mut copies = row("copy", &lengths);
    (0u64..).zip(&mut copies.ops).for_each(|(at, op)| op.bytes = at * at * at);
    assert!(Analysis::of(&copies).unwrap().outliers.is_empty());
}

#[test]
fn planted_outliers_are_found_and_no_others() {
    for_seeds("planted_outliers_are_found_and_no_others", 200, |rng| {
        let (ops, lanes) = (40 + rng.below(80), 1 + rng.below(4));
        let mut run = random_run(rng, ops, lanes);
        for op in &mut run.ops {
            op.name = "gemm".to_owned();
            op.kind = syncline_report::RunOpKind::Compute;
            lengthen(op, rng.range(500..1_000));
        }
        assert_eq!(Analysis::of(&run).unwrap().outliers, []);
        let planted = rng.below(ops);
        lengthen(&mut run.ops[planted], 90_000);
        let found = Analysis::of(&run).unwrap().outliers;
        assert_eq!(found.iter().map(|one| one.op as usize).collect::<Vec<_>>(), [planted]);
    });
}

/// One op decides nothing that is said of the rest of a run.
#[test]
fn an_outlier_moves_no_other_figure_of_the_verdict() {
    let calm = row("gemm", &[1_000; 50]);
    let mut struck = calm.clone();
    let mut late_ns = 0;
    for (at, op) in struck.ops.iter_mut().enumerate() {
        let RunTiming { start_ns, end_ns, .. } = *op.timing.as_mut().unwrap();
        let extra_ns = if at == 20 { 70_000 } else { 0 };
        let lane = 0;
        op.timing = Some(RunTiming {
            lane,
            start_ns: start_ns + late_ns,
            end_ns: end_ns + late_ns + extra_ns,
        });
        late_ns += extra_ns;
    }
    let about = |run: &RunRecord| {
        let limit = Analysis::of(run).unwrap().summary.limit;
        let cause = limit.split(". Besides, ").last().unwrap().to_owned();
        cause.split(';').next().unwrap().to_owned()
    };
    assert_eq!(about(&struck), about(&calm));
}

/// All paths through the edges, one by one.
fn longest_by_force(run: &RunRecord, op: u32) -> u64 {
    let preds = run.edges.iter().filter(|edge| edge.succ == op);
    let before = preds.map(|edge| longest_by_force(run, edge.pred)).max().unwrap_or(0);
    let timing = run.ops[op as usize].timing;
    before + timing.map_or(0, |timing| timing.end_ns - timing.start_ns)
}

#[test]
fn the_chain_that_data_forces_is_the_longest_of_all_paths() {
    for_seeds("the_chain_that_data_forces_is_the_longest_of_all_paths", 200, |rng| {
        let (ops, lanes) = (1 + rng.below(12), 1 + rng.below(4));
        let run = if rng.one_in(2) {
            random_run(rng, ops, lanes)
        } else {
            senseless_run(rng, ops, lanes)
        };
        let chain = Analysis::of(&run).unwrap().chain;
        if !run.is_timed() {
            return assert!(chain.steps.is_empty());
        }
        let longest = (0..ops as u32).map(|op| longest_by_force(&run, op)).max().unwrap();
        assert_eq!(chain.time_ns, longest);
        let length =
            |op: u32| run.ops[op as usize].timing.map_or(0, |one| one.end_ns - one.start_ns);
        assert_eq!(chain.steps.iter().map(|step| length(step.op)).sum::<u64>(), longest);
        for pair in chain.steps.windows(2) {
            let edge = &run.edges[pair[1].edge.unwrap() as usize];
            assert_eq!((edge.pred, edge.succ), (pair[0].op, pair[1].op));
        }
    });
}

/// The run with more lanes, scheduled by the tests' own scheduler, takes what was forecast.
#[test]
fn more_lanes_gain_what_a_run_with_them_gains() {
    for lanes in [2, 3, 4] {
        let analysis = Analysis::of(&cholesky(14, lanes)).unwrap();
        for more in [lanes + 1, 2 * lanes] {
            let change = Change::Lanes { device: "cpu:0".into(), had: lanes, lanes: more };
            let forecast = analysis.scenarios.iter().find(|one| one.change == change).unwrap();
            let taken = Analysis::of(&cholesky(14, more)).unwrap().summary.makespan_ns as f64;
            let off = (forecast.makespan_ns as f64 - taken).abs() / taken;
            assert!(off < 0.1, "{change}: forecast {}, took {taken}", forecast.makespan_ns);
        }
    }
    let limit = Analysis::of(&cholesky(14, 2)).unwrap().summary.limit;
    assert!(limit.contains("; more lanes would shorten the run most, by up to "), "{limit}");
    assert!(limit.contains(" lanes on cpu:0 instead of 2: "), "{limit}");
}

#[test]
fn what_a_run_grew_by_adds_up_to_the_difference() {
    fn any(rng: &mut Rng) -> RunRecord {
        let (ops, lanes) = (1 + rng.below(60), 1 + rng.below(4));
        if rng.one_in(2) { random_run(rng, ops, lanes) } else { senseless_run(rng, ops, lanes) }
    }
    for_seeds("what_a_run_grew_by_adds_up_to_the_difference", 400, |rng| {
        let (before, after) = (any(rng), any(rng));
        let lasted = |run: &RunRecord| run.span_ns().map(|(start, end)| (end - start) as i64);
        let (Some(was), Some(is)) = (lasted(&before), lasted(&after)) else { return };
        let comparison = Analysis::compare(&before, &after);
        let growth = comparison.growth();
        assert_eq!(growth.total_ns(), is - was);
        let of = |wanted: fn(&PathCause) -> bool| {
            let parts = comparison.path.iter().filter(|part| wanted(&part.cause));
            parts.map(|part| part.time_ns[1] as i64 - part.time_ns[0] as i64).sum::<i64>()
        };
        assert_eq!(growth.work_ns, of(|cause| matches!(cause, PathCause::Kernel(_))));
        assert_eq!(growth.lateness_ns, of(|cause| *cause == PathCause::Lateness));
    });
}

#[test]
fn time_before_a_task_that_waited_for_nothing_is_lateness() {
    let run = |late_ns| {
        let mut run = RunRecord::new("late");
        run.lanes = vec![RunLane::new("w0", "cpu:0"), RunLane::new("w1", "cpu:0")];
        run.ops = vec![
            timed(0, "a", 0, 0, 10),
            timed(1, "b", 1, late_ns, late_ns + 100),
            timed(2, "c", 1, late_ns + 105, late_ns + 200),
        ];
        run.edges = vec![edge(1, 2)];
        run
    };
    let growth = Analysis::compare(&run(20), &run(90)).growth();
    assert_eq!((growth.lateness_ns, growth.stalls_ns, growth.total_ns()), (70, 0, 70));
    let late = Analysis::of(&run(500)).unwrap().summary.limit;
    assert!(
        late.starts_with(
            "71% of the run had passed when the first task of its critical path started"
        ),
        "{late}"
    );
}
