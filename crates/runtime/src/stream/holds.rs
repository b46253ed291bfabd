//! What the calling thread runs and holds, so that a wait that would wait for itself is found.
//!
//! Streams and devices share one table of blocked threads: `syncline_device::blocked`.

use syncline_tensor::TaskId;

#[cfg(not(shuttle))]
pub(crate) use syncline_device::blocked::{
    block, block_anyway, current_task, guard_dropped, guard_opened, holds_anything, run_above,
    runs, swap_task, tasks,
};

#[cfg(shuttle)]
pub(crate) use model::*;

/// In place of a task: the thread is a worker of the stream.
pub(crate) const WORKER: u64 = u64::MAX;

/// Returns the tasks of `stream` that the calling thread runs, be it below others.
pub(crate) fn tasks_of(stream: u64) -> Vec<TaskId> {
    let own = tasks().into_iter().filter(|held| held.0 == stream && held.1 != WORKER);
    own.map(|held| TaskId::from_bits(held.1)).collect()
}

/// Returns `true` if the calling thread belongs to `stream` or runs one of its tasks, be it below
/// others.
pub(crate) fn is_inside(stream: u64) -> bool {
    runs(|held| held.0 == stream)
}

/// Returns the stream of the task that the calling thread runs.
pub(crate) fn innermost() -> Option<u64> {
    current_task().map(|held| held.0)
}

/// The same for the threads of a model, which are no threads of the system. Circles are not looked
/// for there.
#[cfg(shuttle)]
mod model {
    use std::cell::{Cell, RefCell};
    use std::sync::Arc;

    use syncline_device::blocked::{Held, NeverEnds, Obstacle};

    use syncline_sync::shim::thread_local;

    const NOTHING: Held = (0, u64::MAX);

    thread_local! {
        static CURRENT: Cell<Held> = Cell::new(NOTHING);
        static BELOW: RefCell<Vec<Held>> = RefCell::new(Vec::new());
        static GUARDS: Cell<usize> = Cell::new(0);
    }

    pub(crate) fn swap_task(task: Held) -> Held {
        CURRENT.with(|current| current.replace(task))
    }

    pub(crate) fn current_task() -> Option<Held> {
        Some(CURRENT.with(Cell::get)).filter(|task| *task != NOTHING)
    }

    pub(crate) struct Above(Held, usize);

    pub(crate) fn run_above(held: impl IntoIterator<Item = Held>) -> Above {
        let current = swap_task(NOTHING);
        BELOW.with(|below| {
            let mut below = below.borrow_mut();
            let depth = below.len();
            below.extend((current != NOTHING).then_some(current));
            below.extend(held);
            Above(current, depth)
        })
    }

    impl Drop for Above {
        fn drop(&mut self) {
            swap_task(self.0);
            BELOW.with(|below| below.borrow_mut().truncate(self.1));
        }
    }

    pub(crate) fn tasks() -> Vec<Held> {
        let below = BELOW.with(|below| below.borrow().clone());
        below.into_iter().chain(current_task()).collect()
    }

    pub(crate) fn runs(task: impl Fn(Held) -> bool) -> bool {
        tasks().into_iter().any(task)
    }

    pub(crate) fn guard_opened() {
        GUARDS.with(|guards| guards.set(guards.get() + 1));
    }

    pub(crate) fn guard_dropped() {
        GUARDS.with(|guards| guards.set(guards.get() - 1));
    }

    pub(crate) fn holds_anything() -> bool {
        runs(|_| true) || GUARDS.with(Cell::get) > 0
    }

    pub(crate) fn block(_: Arc<dyn Obstacle>) -> Result<(), NeverEnds> {
        Ok(())
    }

    pub(crate) fn block_anyway(_: Arc<dyn Obstacle>) {}
}
