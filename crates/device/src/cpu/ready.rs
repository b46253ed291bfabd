//! The lanes of a CPU device that have something to run, as a source of work.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use syncline_sync::lock;
use syncline_sync::shim::{AtomicUsize, Mutex, Ordering};

use super::queue::Queue;
use super::run;
use super::workers::{Source, Turn, WorkersHandle};

/// Lanes that are ready, each at most once, in the order in which they became so.
pub(super) struct ReadyLanes {
    queues: Mutex<VecDeque<Arc<Queue>>>,
    /// Their number, which idle workers poll.
    count: AtomicUsize,
    workers: WorkersHandle,
}

impl ReadyLanes {
    pub(super) fn new(workers: WorkersHandle) -> Self {
        Self { queues: Mutex::default(), count: AtomicUsize::new(0), workers }
    }

    pub(super) fn push(&self, queue: Arc<Queue>) {
        let mut queues = lock(&self.queues);
        queues.push_back(queue);
        // SeqCst: before the question whether a worker is idle.
        self.count.store(queues.len(), Ordering::SeqCst);
        drop(queues);
        self.workers.work_arrived();
    }

    fn pop(&self) -> Option<Arc<Queue>> {
        if !self.any() {
            return None;
        }
        let mut queues = lock(&self.queues);
        let queue = queues.pop_front();
        self.count.store(queues.len(), Ordering::SeqCst);
        queue
    }

    /// Returns `true` if a lane is ready.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }
}

impl fmt::Debug for ReadyLanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadyLanes({} of {:?})", self.count.load(Ordering::Relaxed), self.workers)
    }
}

/// What the workers see of [`ReadyLanes`].
pub(super) struct LaneSource(pub(super) Arc<ReadyLanes>);

impl Source for LaneSource {
    fn serve(&self, turn: &mut Turn<'_>) {
        while let Some(queue) = self.0.pop() {
            turn.starts();
            if !run::run_lane(&self.0, &queue, turn) {
                return;
            }
        }
    }

    fn has_work(&self) -> bool {
        self.0.any()
    }
}
