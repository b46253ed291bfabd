//! The failures that a stream remembers.
//!
//! A task that failed is not retired from dependency discovery: whatever is submitted later and
//! depends on it finds it there and fails too, no matter how late it comes. That ends when
//! `wait_all` has reported the failure.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use syncline_tensor::TaskId;

use super::error::Failure;

/// Failures between two `wait_all`s, and reported ones, that are remembered.
pub(crate) const FAILURES_KEPT: usize = 1 << 16;

/// One task's failure.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The task of this ring whose record the failure goes back to: the one that dependants inherit
    /// from.
    pub(crate) origin: TaskId,
    pub(crate) failure: Arc<Failure>,
}

/// Who failed, and why.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Not reported by `wait_all` yet.
    live: HashMap<TaskId, Record>,
    first: Option<(TaskId, Arc<Failure>)>,
    /// Reported; kept for those who still ask for a task's outcome.
    reported: HashMap<TaskId, Record>,
    order: VecDeque<TaskId>,
    /// No outcome up to this task is certain any more.
    forgotten: Option<TaskId>,
    total: u64,
}

/// What is known of a task that has finished.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    Failed(Arc<Failure>),
    Forgotten,
}

impl Failures {
    /// `task` failed; `quiet` where `wait_all` need not report it.
    pub(crate) fn record(&mut self, task: TaskId, record: Record, quiet: bool) {
        self.total += 1;
        // The oldest, so that the report does not depend on timing.
        if !quiet && self.first.as_ref().is_none_or(|(first, _)| task < *first) {
            self.first = Some((task, record.failure.clone()));
        }
        self.live.insert(task, record);
    }

    /// The failure of `task` that those who depend on it inherit.
    pub(crate) fn live(&self, task: TaskId) -> Option<&Record> {
        self.live.get(&task)
    }

    /// The failure that goes back to `origin`.
    pub(crate) fn of_origin(&self, origin: TaskId) -> Arc<Failure> {
        match self.live.get(&origin).or_else(|| self.reported.get(&origin)) {
            Some(record) => record.failure.clone(),
            // Reported so long ago that it was forgotten, while a dependant was still waiting for
            // its turn.
            None => Arc::new(Failure {
                task: origin,
                name: "?".into(),
                cause: super::Cause::Failed("and the cause is no longer remembered".into()),
            }),
        }
    }

    /// Failures that `wait_all` has not reported.
    pub(crate) fn live_count(&self) -> usize {
        self.live.len()
    }

    /// Any failure that has not been reported, the first one if possible.
    pub(crate) fn first(&self) -> Option<&Arc<Failure>> {
        let any = || self.live.values().next().map(|record| &record.failure);
        self.first.as_ref().map(|(_, failure)| failure).or_else(any)
    }

    /// Tasks that ever failed.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// What became of a task that has finished.
    pub(crate) fn outcome(&self, task: TaskId) -> Outcome {
        match self.live.get(&task).or_else(|| self.reported.get(&task)) {
            Some(record) => Outcome::Failed(record.failure.clone()),
            None if self.forgotten.is_some_and(|last| task <= last) => Outcome::Forgotten,
            None => Outcome::Done,
        }
    }

    /// Moves all failures to the reported ones. `each` is called for every one; the first is
    /// returned.
    pub(crate) fn report(
        &mut self,
        mut each: impl FnMut(TaskId),
    ) -> Option<(TaskId, Arc<Failure>)> {
        let mut tasks: Vec<_> = self.live.drain().collect();
        tasks.sort_unstable_by_key(|(task, _)| *task);
        for (task, record) in tasks {
            each(task);
            self.reported.insert(task, record);
            self.order.push_back(task);
        }
        while self.order.len() > FAILURES_KEPT {
            let oldest = self.order.pop_front().expect("longer than the bound");
            self.reported.remove(&oldest);
            self.forgotten = self.forgotten.max(Some(oldest));
        }
        self.first.take()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::stream::Cause;

    #[test]
    fn outcomes_outlive_the_report_up_to_a_bound_and_then_are_unknown() {
        let mut failures = Failures::default();
        let task = |sequence| TaskId::new(0, sequence);
        for sequence in 0..FAILURES_KEPT as u64 + 1 {
            let cause = Cause::Failed("x".into());
            let failure = Arc::new(Failure { task: task(sequence), name: "t".into(), cause });
            let record = Record { origin: task(sequence), failure };
            failures.record(task(sequence), record, sequence == 0);
        }
        assert_eq!(failures.first().map(|failure| failure.task), Some(task(1)), "0 is quiet");
        let mut reported = 0;
        assert_eq!(failures.report(|_| reported += 1).map(|(first, _)| first), Some(task(1)));
        assert_eq!((reported, failures.live_count()), (FAILURES_KEPT + 1, 0));
        assert!(matches!(failures.outcome(task(0)), Outcome::Forgotten));
        assert!(matches!(failures.outcome(task(1)), Outcome::Failed(_)));
        assert!(matches!(failures.outcome(task(1 << 20)), Outcome::Done));
        assert!(failures.report(|_| ()).is_none());
    }
}
