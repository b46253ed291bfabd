//! Two runs side by side: what got slower, by kernel, by task, and on the critical path.

use std::collections::{BTreeMap, HashMap};

use crate::graph::Graph;
use crate::path::{CriticalPath, StepKind};
use crate::{RunOpKind, RunRecord};

/// Tasks are listed by how much they changed, this many at most.
const TASKS_MAX: usize = 200;

/// All ops of one name in both runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelChange {
    /// The name.
    pub name: String,
    /// How many ops had it, before and after.
    pub count: [u64; 2],
    /// Their time together, before and after.
    pub total_ns: [u64; 2],
}

/// One op that both runs have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChange {
    /// Its position in either run.
    pub op: [u32; 2],
    /// How long it took, before and after.
    pub duration_ns: [u64; 2],
}

/// What time on the critical path was spent on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathCause {
    /// Kernels of this name.
    Kernel(String),
    /// Copies.
    Copies,
    /// Stalls: an op could have started, and had not.
    Stalls,
    /// Lateness: nothing had to end first, and the op had not started.
    Lateness,
}

/// Time by which a run grew, by what it was spent on; negative where it shrank. All of them
/// together are the difference between the runs' lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Kernels on the critical path.
    pub work_ns: i64,
    /// Copies on it.
    pub copies_ns: i64,
    /// Ops that could have started, and had not.
    pub stalls_ns: i64,
    /// Ops that waited for nothing, and had not started.
    pub lateness_ns: i64,
}

impl Growth {
    /// The difference between the runs' lengths.
    pub fn total_ns(&self) -> i64 {
        self.work_ns + self.copies_ns + self.stalls_ns + self.lateness_ns
    }
}

/// Time on the critical paths of both runs. All of them together are the runs' lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// What it was spent on.
    pub cause: PathCause,
    /// How much, before and after.
    pub time_ns: [u64; 2],
}

/// What changed from one run to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// What the critical paths consisted of, what lost most time first; empty if one of the runs
    /// was not timed.
    pub path: Vec<PathChange>,
    /// By name, what lost most time first.
    pub kernels: Vec<KernelChange>,
    /// The kernels that changed most, greatest loss first.
    pub tasks: Vec<TaskChange>,
    /// Ops that both runs have.
    pub matched: u64,
    /// Ops that only one run has, before and after.
    pub unmatched: [u64; 2],
}

impl Comparison {
    /// Compares `before` with `after`. An op is the same in both if task id, name and kind are;
    /// where ids were given out anew, the n-th op of a name stands for the n-th.
    pub fn of(before: &RunRecord, after: &RunRecord) -> Self {
        let pairs = pairs(before, after);
        let matched = pairs.len() as u64;
        let unmatched = [before, after].map(|run| run.ops.len() as u64 - matched);
        Self {
            path: path(before, after),
            kernels: kernels(before, after),
            tasks: tasks(before, after, pairs),
            matched,
            unmatched,
        }
    }

    /// Returns by how much the run grew, and on what.
    pub fn growth(&self) -> Growth {
        let mut growth = Growth::default();
        for PathChange { cause, time_ns: [before_ns, after_ns] } in &self.path {
            let grown = match cause {
                PathCause::Kernel(_) => &mut growth.work_ns,
                PathCause::Copies => &mut growth.copies_ns,
                PathCause::Stalls => &mut growth.stalls_ns,
                PathCause::Lateness => &mut growth.lateness_ns,
            };
            // A run lasts 2^53 ns at most.
            *grown += *after_ns as i64 - *before_ns as i64;
        }
        growth
    }

    /// Returns what made the run longer or shorter, or `None` if it took as long as before.
    ///
    /// Only the critical path counts: work beside it makes no run longer.
    pub fn culprit(&self) -> Option<&PathChange> {
        let total =
            |side: usize| self.path.iter().map(|one| i128::from(one.time_ns[side])).sum::<i128>();
        match total(1).cmp(&total(0)) {
            std::cmp::Ordering::Greater => self.path.first(),
            std::cmp::Ordering::Less => self.path.last(),
            std::cmp::Ordering::Equal => None,
        }
    }
}

fn path(before: &RunRecord, after: &RunRecord) -> Vec<PathChange> {
    let mut times: BTreeMap<PathCause, [u64; 2]> = BTreeMap::new();
    for (side, run) in [before, after].into_iter().enumerate() {
        // A run whose edges make no sense is refused where its own page is made.
        let Some(graph) = Graph::new(run).ok().filter(|_| run.is_timed()) else {
            return Vec::new();
        };
        for step in CriticalPath::of(run, &graph).steps {
            let cause = match step.kind {
                StepKind::Compute => PathCause::Kernel(run.ops[step.op as usize].name.clone()),
                StepKind::Copy => PathCause::Copies,
                StepKind::Stall => PathCause::Stalls,
                StepKind::Late => PathCause::Lateness,
            };
            times.entry(cause).or_default()[side] += step.duration_ns();
        }
    }
    let change = |(cause, time_ns)| PathChange { cause, time_ns };
    let mut changes: Vec<PathChange> = times.into_iter().map(change).collect();
    changes.sort_by_key(|one| i128::from(one.time_ns[0]) - i128::from(one.time_ns[1]));
    changes
}

fn duration_ns(run: &RunRecord, op: u32) -> u64 {
    run.ops[op as usize].timing.map_or(0, |timing| timing.end_ns - timing.start_ns)
}

fn kernels(before: &RunRecord, after: &RunRecord) -> Vec<KernelChange> {
    let mut by_name: HashMap<&str, KernelChange> = HashMap::new();
    for (side, run) in [before, after].into_iter().enumerate() {
        for (position, op) in (0u32..).zip(&run.ops) {
            let change = by_name.entry(&op.name).or_insert_with(|| KernelChange {
                name: op.name.clone(),
                count: [0; 2],
                total_ns: [0; 2],
            });
            change.count[side] += 1;
            change.total_ns[side] =
                change.total_ns[side].saturating_add(duration_ns(run, position));
        }
    }
    let mut changes: Vec<KernelChange> = by_name.into_values().collect();
    changes.sort_by(|a, b| {
        let gain = |one: &KernelChange| i128::from(one.total_ns[0]) - i128::from(one.total_ns[1]);
        gain(a).cmp(&gain(b)).then_with(|| a.name.cmp(&b.name))
    });
    changes
}

/// Ids decide if most ops agree by them, otherwise the order within a name does.
fn pairs(before: &RunRecord, after: &RunRecord) -> Vec<[u32; 2]> {
    let by_id = pair_up(before, after, |op, _| op);
    if by_id.len() * 2 >= before.ops.len().min(after.ops.len()) {
        return by_id;
    }
    pair_up(before, after, |_, seen| seen)
}

fn pair_up(before: &RunRecord, after: &RunRecord, key: impl Fn(u64, u64) -> u64) -> Vec<[u32; 2]> {
    type Key<'a> = (u64, &'a str, RunOpKind, u64);
    fn keys<'a>(run: &'a RunRecord, key: &impl Fn(u64, u64) -> u64) -> Vec<Key<'a>> {
        let mut of_name: HashMap<(&str, RunOpKind), u64> = HashMap::new();
        let mut of_key: HashMap<(u64, &str, RunOpKind), u64> = HashMap::new();
        run.ops
            .iter()
            .map(|op| {
                let seen = of_name.entry((&op.name, op.kind)).or_default();
                let key = key(op.task, *seen);
                *seen += 1;
                // Several ops of one task and name are blocks: the n-th is the n-th.
                let block = of_key.entry((key, &op.name, op.kind)).or_default();
                *block += 1;
                (key, &*op.name, op.kind, *block)
            })
            .collect()
    }
    let there: HashMap<Key, u32> = keys(before, &key).into_iter().zip(0u32..).collect();
    let here = keys(after, &key).into_iter().zip(0u32..);
    here.filter_map(|(key, op)| there.get(&key).map(|&other| [other, op])).collect()
}

fn tasks(before: &RunRecord, after: &RunRecord, pairs: Vec<[u32; 2]>) -> Vec<TaskChange> {
    let mut changes: Vec<TaskChange> = pairs
        .into_iter()
        .map(|op| {
            let duration_ns = [duration_ns(before, op[0]), duration_ns(after, op[1])];
            TaskChange { op, duration_ns }
        })
        .filter(|change| change.duration_ns[0] != change.duration_ns[1])
        .collect();
    let gain = |one: &TaskChange| i128::from(one.duration_ns[0]) - i128::from(one.duration_ns[1]);
    changes.sort_by_key(|one| std::cmp::Reverse(gain(one).abs()));
    changes.truncate(TASKS_MAX);
    changes.sort_by_key(gain);
    changes
}
