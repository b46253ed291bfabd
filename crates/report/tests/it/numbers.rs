//! Memory, summary and comparison on runs that can be worked out by hand.

use syncline_report::{Allocation, Analysis, PathCause, PathChange, RunLane, RunRecord};

use crate::runs::{edge, timed};

fn allocation(name: &str, place: &str, bytes: u64, start_ns: u64, end_ns: u64) -> Allocation {
    Allocation { name: name.into(), place: place.into(), bytes, offset: None, start_ns, end_ns }
}

#[test]
fn the_peak_counts_what_lived_at_the_same_time() {
    let mut run = RunRecord::new("memory");
    run.memory = vec![
        allocation("a", "cpu", 100, 0, 10),
        allocation("b", "cpu", 50, 10, 30),
        allocation("c", "cpu", 30, 15, 20),
        allocation("never", "cpu", 1_000, 12, 12),
        allocation("d", "gpu", 7, 0, 1),
    ];
    let places = Analysis::of(&run).unwrap().places;
    assert_eq!(places.len(), 2);
    assert_eq!((places[0].name.as_str(), places[0].peak_bytes, places[0].peak_ns), ("cpu", 100, 0));
    assert_eq!((places[1].name.as_str(), places[1].peak_bytes), ("gpu", 7));
    assert_eq!(places[0].buffers, [0, 1, 3, 2]);
    assert_eq!(places[0].rows, [0, 0, 1, 1], "rows are used again as soon as they are free");
}

#[test]
fn the_summary_adds_up() {
    let mut run = RunRecord::new("sum");
    run.lanes = vec![RunLane::new("w0", "cpu"), RunLane::new("w1", "cpu")];
    run.ops = vec![
        timed(0, "gemm", 0, 1_000, 1_600),
        timed(1, "gemm", 1, 1_000, 1_300),
        timed(2, "copy", 1, 1_600, 2_000),
    ];
    run.ops[2].bytes = 4_096;
    run.edges = vec![edge(0, 2), edge(1, 2)];
    let summary = Analysis::of(&run).unwrap().summary;
    assert_eq!((summary.makespan_ns, summary.work_ns), (1_000, 1_300));
    assert_eq!(summary.lanes[0].busy_ns, 600);
    assert_eq!(summary.lanes[1].busy_ns, 700);
    let gemm = &summary.kernels[0];
    assert_eq!((gemm.name.as_str(), gemm.count, gemm.total_ns, gemm.max_ns), ("gemm", 2, 900, 600));
    assert_eq!(gemm.path_ns, 600);
    assert_eq!(summary.kernels[1].bytes, 4_096);
    let limit = "`gemm` takes 60% of the critical path; copies that take no time would shorten the run most, by up to 40%.";
    assert_eq!(summary.limit, limit);
}

#[test]
fn a_comparison_names_what_got_slower() {
    let mut before = RunRecord::new("before");
    before.lanes = vec![RunLane::default()];
    before.ops = vec![
        timed(0, "gemm", 0, 0, 100),
        timed(1, "gemm", 0, 100, 200),
        timed(2, "copy", 0, 200, 300),
        timed(3, "gone", 0, 300, 310),
    ];
    let mut after = before.clone();
    after.ops.pop();
    after.ops[1] = timed(1, "gemm", 0, 100, 250);
    after.ops[2] = timed(2, "copy", 0, 250, 330);
    let comparison = Analysis::compare(&before, &after);
    assert_eq!((comparison.matched, comparison.unmatched), (3, [1, 0]));
    let kernels: Vec<_> =
        comparison.kernels.iter().map(|one| (one.name.as_str(), one.count, one.total_ns)).collect();
    assert_eq!(
        kernels,
        [("gemm", [2, 2], [200, 250]), ("gone", [1, 0], [10, 0]), ("copy", [1, 1], [100, 80])]
    );
    let tasks: Vec<_> = comparison.tasks.iter().map(|one| (one.op, one.duration_ns)).collect();
    assert_eq!(tasks, [([1, 1], [100, 150]), ([2, 2], [100, 80])]);
}

/// Two lanes: a chain of `gemm`, copy, `gemm` with stalls between them on the first, and `other`
/// beside it.
fn chain(gemm_ns: u64, copy_ns: u64, stall_ns: u64, other_ns: u64) -> RunRecord {
    let mut run = RunRecord::new("chain");
    run.lanes = vec![RunLane::new("w0", "cpu"), RunLane::new("w1", "cpu")];
    let copy_at = gemm_ns + stall_ns;
    let last_at = copy_at + copy_ns + stall_ns;
    run.ops = vec![
        timed(0, "gemm", 0, 0, gemm_ns),
        timed(1, "copy", 0, copy_at, copy_at + copy_ns),
        timed(2, "gemm", 0, last_at, last_at + gemm_ns),
        timed(3, "other", 1, 0, other_ns),
    ];
    run.edges = vec![edge(0, 1), edge(1, 2)];
    run
}

#[test]
fn the_culprit_is_what_grew_on_the_critical_path() {
    let before = chain(100, 50, 10, 20);
    let culprit = |after: &RunRecord| Analysis::compare(&before, after).culprit().cloned();
    let change = |cause, time_ns| Some(PathChange { cause, time_ns });
    let gemm = || PathCause::Kernel("gemm".to_owned());
    assert_eq!(culprit(&chain(130, 50, 10, 20)), change(gemm(), [200, 260]), "work grew");
    assert_eq!(culprit(&chain(100, 90, 10, 20)), change(PathCause::Copies, [50, 90]));
    assert_eq!(culprit(&chain(100, 50, 60, 20)), change(PathCause::Stalls, [20, 120]));
    // Stalls grew most. `gemm` grew too, and `other`, beside the path, most of all.
    let stalled = chain(101, 50, 60, 200);
    assert_eq!(Analysis::compare(&before, &stalled).kernels[0].name, "other");
    assert_eq!(culprit(&stalled), change(PathCause::Stalls, [20, 120]));
    // Work beside the path makes no run longer.
    assert_eq!(culprit(&chain(100, 50, 10, 200)), None);
    // Until it becomes the path.
    let other = PathCause::Kernel("other".to_owned());
    assert_eq!(culprit(&chain(100, 50, 10, 300)), change(other, [0, 300]));
    assert_eq!(culprit(&chain(40, 50, 10, 20)), change(gemm(), [200, 80]), "what was gained");
    let lengths = |side: usize| {
        Analysis::compare(&before, &stalled).path.iter().map(|one| one.time_ns[side]).sum::<u64>()
    };
    assert_eq!([lengths(0), lengths(1)], [270, 372], "the paths are as long as the runs");
    let mut untimed = before.clone();
    untimed.ops.iter_mut().for_each(|op| op.timing = None);
    assert_eq!(Analysis::compare(&before, &untimed).culprit(), None);
}

#[test]
fn renumbered_tasks_are_matched_by_their_order_within_a_name() {
    let mut before = RunRecord::new("before");
    before.lanes = vec![RunLane::default()];
    before.ops = (0..6).map(|task| timed(task, "gemm", 0, task * 10, task * 10 + 5)).collect();
    let mut after = before.clone();
    after.ops.iter_mut().for_each(|op| op.task += 1_000);
    let comparison = Analysis::compare(&before, &after);
    assert_eq!((comparison.matched, comparison.unmatched), (6, [0, 0]));
    assert!(comparison.tasks.is_empty(), "nothing changed but the ids");
}
