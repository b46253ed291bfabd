//! Waits that cannot end: for what the calling thread holds itself, or in a circle of threads.
//!
//! A task is *behind* another one if it waits for it, directly or by way of others: along edges, or
//! by excluding it. A task that a thread runs, or that stands for a guard of it, cannot end before
//! the thread goes on; so nothing behind it can, and the lists of successors there stand still
//! under the submit lock.
//!
//! A thread that holds something runs only tasks that it waits for while it waits. What it runs on
//! top of a task is then really awaited by that task, and whether a wait is refused does not depend
//! on which thread meets it.

use std::sync::Arc;

use syncline_device::blocked::{Obstacle, Stopped};
use syncline_tensor::TaskId;

use syncline_sync::shim::Ordering;
use syncline_sync::shim::thread::{self, ThreadId};

use super::StreamError;
use super::holds;
use super::ready::Pick;
use super::ring::Ring;
use super::scope::ScopeState;
use super::shared::{RootState, Shared, lock};
use super::submit::Need;
use super::wait::Wait;
use super::work::Traits;

/// What a thread waits for.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    /// The end of a task, or that it is granted.
    Task(TaskId),
    /// The end of all tasks before this one.
    Before(TaskId),
    /// The end of all tasks of a scope.
    Scope(Arc<ScopeState>),
    /// Room for a task, which any task that ends may make.
    Room(Need),
}

impl Goal {
    /// Returns `true` if a wait for it cannot end before some slot in `behind` has been given back.
    fn is_behind(&self, state: &RootState, ring: &Ring, behind: &[bool]) -> bool {
        let mut live = state.table.live();
        match self {
            Goal::Task(task) => state.table.find(*task).is_some_and(|slot| behind[slot as usize]),
            Goal::Before(end) => live.any(|(task, slot)| task < *end && behind[slot as usize]),
            Goal::Scope(scope) => {
                live.any(|(_, slot)| behind[slot as usize] && state.is_in_scope(ring, slot, scope))
            }
            Goal::Room(_) => live.all(|(_, slot)| behind[slot as usize]),
        }
    }
}

impl RootState {
    /// Notes the scope of the task in `slot`.
    pub(crate) fn note_scope(&mut self, slot: u32, scope: &Arc<ScopeState>) {
        if self.scopes.len() <= slot as usize {
            self.scopes.resize(slot as usize + 1, 0);
        }
        self.scopes[slot as usize] = Arc::as_ptr(scope).addr();
    }

    fn is_in_scope(&self, ring: &Ring, slot: u32, scope: &Arc<ScopeState>) -> bool {
        ring.slots[slot as usize].traits().has(Traits::SCOPED)
            && self.scopes[slot as usize] == Arc::as_ptr(scope).addr()
    }

    /// By slot, what cannot end before those threads go on that `stops` says, or before `tasks`
    /// have ended: they themselves, and all that is behind them.
    fn behind(
        &self,
        ring: &Ring,
        stops: impl Fn(ThreadId) -> bool,
        tasks: impl Iterator<Item = TaskId>,
    ) -> Vec<bool> {
        let mut behind = vec![false; ring.slots.len()];
        let guards = self.guards.iter().filter(|guard| stops(guard.thread));
        let held = guards.map(|guard| guard.task).chain(tasks);
        let mut left: Vec<u32> = held.filter_map(|task| self.table.find(task)).collect();
        loop {
            while let Some(slot) = left.pop() {
                if !std::mem::replace(&mut behind[slot as usize], true) {
                    left.extend(ring.slots[slot as usize].fanout.peek().successors(&ring.nodes));
                }
            }
            lock(&ring.exclusion).add_behind(&behind, &mut left);
            if left.is_empty() {
                return behind;
            }
        }
    }

    /// By slot, what has to end before `goal` is reached: the goal itself, and all that it is
    /// behind.
    fn needed(&self, ring: &Ring, goal: &Goal) -> Vec<bool> {
        let mut edges: Vec<(u32, u32)> = Vec::new();
        let mut left: Vec<u32> = Vec::new();
        for (task, slot) in self.table.live() {
            // A list that is closed meanwhile says nothing any more: its task has ended.
            let successors = ring.slots[slot as usize].fanout.peek().successors(&ring.nodes);
            edges.extend(successors.map(|successor| (successor, slot)));
            let is_goal = match goal {
                Goal::Task(awaited) => task == *awaited,
                Goal::Before(end) => task < *end,
                Goal::Scope(scope) => self.is_in_scope(ring, slot, scope),
                Goal::Room(_) => true,
            };
            left.extend(is_goal.then_some(slot));
        }
        edges.sort_unstable();
        let mut needed = vec![false; ring.slots.len()];
        loop {
            while let Some(slot) = left.pop() {
                if !std::mem::replace(&mut needed[slot as usize], true) {
                    let first = edges.partition_point(|edge| edge.0 < slot);
                    let own = edges[first..].iter().take_while(|edge| edge.0 == slot);
                    left.extend(own.map(|edge| edge.1));
                }
            }
            lock(&ring.exclusion).add_needed(&needed, &mut left);
            if left.is_empty() {
                return needed;
            }
        }
    }
}

impl Shared {
    /// By slot, what the calling thread itself holds up.
    pub(crate) fn behind_own(&self, state: &RootState) -> Vec<bool> {
        let own = thread::current().id();
        let tasks = holds::tasks_of(self.stream_id).into_iter();
        state.behind(&self.ring, |thread| thread == own, tasks)
    }

    /// Refuses a wait for what the calling thread itself holds up.
    pub(crate) fn refuse_own(&self, wait: &Wait<'_>) -> Result<(), StreamError> {
        let (own, state, what) = (thread::current().id(), self.lock(), wait.what);
        let is_behind = |behind: Vec<bool>| wait.goal.is_behind(&state, &self.ring, &behind);
        if state.guards.iter().any(|guard| guard.thread == own) {
            let none = std::iter::empty();
            let guarded = state.behind(&self.ring, |thread| thread == own, none);
            if is_behind(guarded) {
                return Err(StreamError::WaitsForOwnGuard { what, waits_for: (wait.name)() });
            }
        }
        let tasks = holds::tasks_of(self.stream_id);
        if !tasks.is_empty() {
            let tasks = tasks.into_iter();
            if is_behind(state.behind(&self.ring, |_| false, tasks)) {
                let way_out = "that task, or one that waits for it, is what it waits for; use the \
                               task's own context (`Task::parent`), or an explicit dependency";
                return Err(StreamError::InsideTask { what, way_out });
            }
        }
        Ok(())
    }

    /// Enters the calling thread, which is about to sleep, among the blocked ones, where others may
    /// wait for it or it may wait for others that hold something. With a deadline it wakes up by
    /// itself.
    pub(crate) fn block(
        self: &Arc<Self>,
        wait: &Wait<'_>,
        holds: bool,
    ) -> Result<Option<impl Sized + use<>>, StreamError> {
        if !holds || wait.deadline.instant().is_some() {
            return Ok(None);
        }
        let (shared, goal) = (self.clone(), wait.goal.clone());
        let circle = |_| {
            let (what, waits_for) = (wait.what, (wait.name)());
            StreamError::WaitsInCircle { what, waits_for }
        };
        holds::block(Arc::new(StreamWait { shared, goal })).map(Some).map_err(circle)
    }

    /// Takes a ready task out of any queue that `goal` cannot be reached without.
    pub(crate) fn pick_needed(&self, goal: &Goal) -> Option<Pick> {
        let state = self.lock();
        let needed = state.needed(&self.ring, goal);
        let is_needed = |slot: u32| needed[slot as usize];
        let (mut found, mut moved) = (self.queue.pop_where(is_needed), false);
        let queues = std::iter::once(&self.inbox).chain(self.lanes.iter().map(|lane| &lane.ready));
        for queue in queues {
            for _ in 0..queue.len() {
                if found.is_some() {
                    break;
                }
                let Some(slot) = queue.pop() else { break };
                match is_needed(slot) {
                    true => found = Some(Pick { slot, block: 0 }),
                    false => {
                        // For others: this thread holds the submit lock, and so produces for the
                        // inbox.
                        self.inbox.push_guarded(slot);
                        moved = true;
                    }
                }
            }
        }
        drop(state);
        if moved {
            self.sleep.work_arrived_guarded();
        }
        found
    }

    /// Runs a task on top of the one that waits for it.
    pub(crate) fn run_needed(self: &Arc<Self>, pick: Pick) {
        let above = holds::run_above([]);
        self.run_in(None, &self.ring, pick);
        drop(above);
        self.counters.helped.fetch_add(1, Ordering::Relaxed);
    }
}

/// A thread that sleeps until its goal is reached.
pub(crate) struct StreamWait {
    pub(crate) shared: Arc<Shared>,
    pub(crate) goal: Goal,
}

impl Obstacle for StreamWait {
    fn is_stuck(&self, stopped: &Stopped<'_>) -> bool {
        self.shared.look_at_state(|state| {
            let shared = &*self.shared;
            if let Goal::Room(need) = self.goal
                && (shared.lacking_now(state, need).is_none() || state.table.tasks().now == 0)
            {
                return false;
            }
            let tasks = stopped.tasks(shared.stream_id).map(TaskId::from_bits);
            let stops = |thread| stops(stopped, thread);
            let behind = state.behind(&shared.ring, stops, tasks);
            self.goal.is_behind(state, &shared.ring, &behind)
        })
    }

    fn wake(&self) {
        self.shared.sleep.alarm();
    }
}

#[cfg(not(any(loom, shuttle)))]
fn stops(stopped: &Stopped<'_>, thread: ThreadId) -> bool {
    stopped.contains(thread)
}

#[cfg(any(loom, shuttle))]
fn stops(_: &Stopped<'_>, _: ThreadId) -> bool {
    false
}

/// A parent that sleeps until its children have ended.
pub(crate) struct ChildrenWait {
    pub(crate) shared: Arc<Shared>,
    /// The outermost parent.
    pub(crate) root: TaskId,
}

impl Obstacle for ChildrenWait {
    fn is_stuck(&self, stopped: &Stopped<'_>) -> bool {
        stopped.others_run((self.shared.stream_id, self.root.to_bits()))
    }

    fn wake(&self) {
        self.shared.sleep.alarm();
    }
}
