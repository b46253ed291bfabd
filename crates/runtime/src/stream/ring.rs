//! Rings: tasks that are ordered among themselves, those of a stream or the children of one task.

use std::collections::HashMap;
use std::sync::Arc;

use syncline_deps::Submitter;
use syncline_sync::lock;
use syncline_sync::shim::{AtomicUsize, Mutex, Ordering};
use syncline_tensor::TaskId;

use super::children::Parent;
use super::error::Failure;
use super::exclusion::Exclusion;
use super::failure::{Failures, Record};
use super::fanout::EdgeNodes;
use super::ready::Ready;
use super::slot::Slot;
use super::work::Traits;

/// What finishers may touch without the lock of the ring's task table.
pub(crate) struct Ring {
    pub(crate) slots: Box<[Slot]>,
    /// The nodes of the slots' fan-out lists.
    pub(crate) nodes: EdgeNodes,
    /// By slot, what the first block to fail said.
    block_failures: Mutex<HashMap<u32, Record>>,
    pub(crate) exclusion: Mutex<Exclusion>,
    pub(crate) failures: Mutex<Failures>,
    /// `Failures::live_count`, to read without the lock.
    failures_live: AtomicUsize,
    /// The task whose children these are; `None` for the ring of a stream.
    pub(crate) parent: Option<Parent>,
}

impl Ring {
    /// A ring for `tasks` unfinished tasks. One task's fan-in is at most all others, so that as
    /// many nodes beyond the pool are enough.
    pub(crate) fn new(tasks: usize, edge_pool: usize) -> Self {
        Self {
            slots: (0..tasks).map(|_| Slot::new()).collect(),
            nodes: EdgeNodes::new(edge_pool + tasks),
            block_failures: Mutex::default(),
            exclusion: Mutex::default(),
            failures: Mutex::default(),
            failures_live: AtomicUsize::new(0),
            parent: None,
        }
    }

    #[inline]
    pub(crate) fn slot(&self, number: u32) -> &Slot {
        &self.slots[number as usize]
    }

    /// Returns `true` if the task in `slot`, which has become ready, excludes all that it must;
    /// else it is queued when the last of them ends.
    pub(crate) fn exclude(&self, number: u32) -> bool {
        // SAFETY: the caller counted the task down to ready: it is the owner.
        let work = unsafe { self.slot(number).work() };
        lock(&self.exclusion).acquire(number, work.args())
    }

    /// Describes the task in `slot`, which is ready, to a queue.
    pub(crate) fn ready_of(&self, number: u32) -> Ready {
        let slot = self.slot(number);
        // SAFETY: as in `exclude`.
        let work = unsafe { slot.work() };
        let (priority, blocks, gang) =
            (work.priority, work.blocks, slot.traits().has(Traits::GANG));
        Ready { slot: number, priority, blocks, gang }
    }

    /// Keeps the failure of one block until all have ended. The first one counts.
    pub(crate) fn keep_block_failure(&self, number: u32, record: Record) {
        lock(&self.block_failures).entry(number).or_insert(record);
    }

    /// Takes the failure that was kept.
    pub(crate) fn take_block_failure(&self, number: u32) -> Option<Record> {
        lock(&self.block_failures).remove(&number)
    }

    /// Notes that `task` failed. `quiet` if nobody need be told of it.
    pub(crate) fn record_failure(&self, task: TaskId, record: Record, quiet: bool) {
        let mut failures = lock(&self.failures);
        failures.record(task, record, quiet);
        self.failures_live.store(failures.live_count(), Ordering::Release);
    }

    /// Returns how many failures have not been reported.
    #[inline]
    pub(crate) fn failures_live(&self) -> usize {
        self.failures_live.load(Ordering::Acquire)
    }

    /// Returns the origin of the failure that dependants of `task`, which has ended, inherit.
    #[inline]
    pub(crate) fn origin_of(&self, task: TaskId) -> Option<TaskId> {
        if self.failures_live() == 0 {
            return None;
        }
        lock(&self.failures).live(task).map(|record| record.origin)
    }

    /// Returns the failure that goes back to `origin`.
    pub(crate) fn failure_of(&self, origin: TaskId) -> Arc<Failure> {
        lock(&self.failures).of_origin(origin)
    }

    /// Returns the oldest failure and has discovery forget all that were recorded: what is
    /// submitted later no longer inherits them.
    pub(crate) fn report_failures(
        &self,
        submitter: &mut Submitter,
    ) -> Option<(TaskId, Arc<Failure>)> {
        let mut failures = lock(&self.failures);
        let first = failures.report(|task| _ = submitter.retire(task));
        self.failures_live.store(0, Ordering::Release);
        first
    }
}
