//! What changed between two runs, as the page carries it.

use serde::Serialize;

use crate::compare::{Comparison, PathCause, PathChange};

/// Time on the critical paths by what it was spent on: 0 a kernel of this name, 1 copies, 2 stalls,
/// 3 lateness; before and after.
type PathData = (u8, String, [u64; 2]);

#[derive(Serialize)]
pub(super) struct CompareData {
    matched: u64,
    unmatched: [u64; 2],
    /// What lost most time first; together the lengths of the runs.
    path: Vec<PathData>,
    /// By how much the run grew in work, copies, stalls and lateness.
    growth: [i64; 4],
    /// What the run's length changed by most.
    culprit: Option<PathData>,
    kernels: Vec<(String, [u64; 2], [u64; 2])>,
    tasks: Vec<([u32; 2], [u64; 2])>,
}

impl CompareData {
    pub(super) fn of(comparison: &Comparison) -> Self {
        let Comparison { kernels, tasks, matched, unmatched, path } = comparison;
        let growth = comparison.growth();
        Self {
            matched: *matched,
            unmatched: *unmatched,
            path: path.iter().map(path_data).collect(),
            growth: [growth.work_ns, growth.copies_ns, growth.stalls_ns, growth.lateness_ns],
            culprit: comparison.culprit().map(path_data),
            kernels: kernels
                .iter()
                .map(|one| (one.name.clone(), one.count, one.total_ns))
                .collect(),
            tasks: tasks.iter().map(|one| (one.op, one.duration_ns)).collect(),
        }
    }
}

fn path_data(change: &PathChange) -> PathData {
    let (kind, name) = match &change.cause {
        PathCause::Kernel(name) => (0, name.clone()),
        PathCause::Copies => (1, String::new()),
        PathCause::Stalls => (2, String::new()),
        PathCause::Lateness => (3, String::new()),
    };
    (kind, name, change.time_ns)
}
