//! Threads that run tasks: workers, to which a stream is a source of work, and threads that wait.

use std::sync::Arc;
use std::time::Duration;
#[cfg(not(shuttle))]
use std::time::Instant;

use syncline_device::cpu::{Source, Turn};

use syncline_sync::shim::{MutexGuard, Ordering};
use syncline_sync::{Polls, pause};

use super::circle::Goal;
use super::holds;
use super::pick::Picker;
use super::shared::Shared;
use super::tuning::TUNING;
use super::wait::Wait;

/// What workers see of a stream.
pub(crate) struct StreamSource(pub(crate) Arc<Shared>);

impl Source for StreamSource {
    fn serve(&self, turn: &mut Turn<'_>) {
        let shared = &self.0;
        if turn.has_searched() && shared.has_only_submitted() {
            linger(shared);
        }
        let Some((lane, mut picker)) = shared.take_seat(turn.worker()) else { return };
        let _worker = holds::run_above([(shared.stream_id, holds::WORKER)]);
        // Relaxed: only for those who want to know how many are running.
        let running = &shared.lanes[lane].running;
        let mut goes_on = true;
        let mut count = 0;
        while goes_on && let Some(job) = shared.pick(lane, &mut picker) {
            if count == 0 {
                running.store(true, Ordering::Relaxed);
                turn.starts();
            }
            shared.run(lane, job);
            count += 1;
            goes_on = turn.goes_on();
        }
        running.store(false, Ordering::Relaxed);
        drop(picker);
        shared.leave_seat();
        // What this worker leaves is for others.
        if !goes_on && shared.has_work() {
            shared.sleep.work_arrived();
        }
    }

    fn has_work(&self) -> bool {
        self.0.sleep.has_seat() && self.0.has_work()
    }

    fn ran_dry(&self) {
        self.0.sleep.ran_dry();
    }

    fn pass_lock(&self) {
        drop(self.0.lock());
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

/// Gives a submitter that is busy the time to get ahead, so that what it prepares comes over in one
/// go: running close behind it would move the same cache lines to and fro for every task.
///
/// What counts is submissions, not what is ready: the tasks of a chain follow the one that is.
fn linger(shared: &Shared) {
    if shared.workers.is_crowded() {
        return;
    }
    let first = shared.submitted.load(Ordering::Relaxed);
    let mut before = first;
    for _ in 0..TUNING.linger_polls {
        pause(TUNING.linger_pause);
        let now = shared.submitted.load(Ordering::Relaxed);
        if now == before || now - first >= TUNING.linger_tasks {
            return;
        }
        before = now;
    }
}

/// A point in time; in a model there is none, and none has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(#[cfg(not(shuttle))] Instant);

impl Moment {
    #[inline]
    pub(crate) fn now() -> Self {
        Self(
            #[cfg(not(shuttle))]
            Instant::now(),
        )
    }

    /// How long after `before` this is.
    #[cfg(not(shuttle))]
    pub(crate) fn since(self, before: Self) -> Duration {
        self.0 - before.0
    }

    #[cfg(shuttle)]
    pub(crate) fn since(self, _before: Self) -> Duration {
        Duration::ZERO
    }
}

impl Shared {
    /// Takes a lane for a worker, the same one as before if it is free.
    fn take_seat(&self, worker: usize) -> Option<(usize, MutexGuard<'_, Picker>)> {
        if !self.sleep.take_seat() {
            return None;
        }
        let seats = self.lanes.len() - 1;
        let taken = (0..seats).find_map(|at| self.try_lane((worker + at) % seats));
        if taken.is_none() {
            // It was given up, and is not free yet.
            self.leave_seat();
        }
        taken
    }

    fn leave_seat(&self) {
        self.sleep.leave_seat();
    }

    /// Returns a lane and its picker, unless another thread has it.
    fn try_lane(&self, lane: usize) -> Option<(usize, MutexGuard<'_, Picker>)> {
        let guard = match self.lanes[lane].picker.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        Some((lane, guard))
    }

    /// Returns the lane for a thread outside that helps, if no other has it.
    pub(crate) fn host_lane(&self) -> Option<(usize, MutexGuard<'_, Picker>)> {
        self.try_lane(self.lanes.len() - 1)
    }

    /// Polls of a thread that waits for the stream and does not park yet.
    pub(crate) fn polls(&self) -> Polls {
        Polls::new(self.workers.is_crowded())
    }

    /// Runs some ready tasks on the calling thread, which waits for something, and returns how
    /// many; `None` where it may not. Begins no task after an alarm that `alarms` does not count
    /// yet, or after the deadline.
    pub(crate) fn help(self: &Arc<Self>, alarms: u64, wait: &Wait<'_>) -> Option<usize> {
        if !self.options.help {
            return None;
        }
        let (lane, mut picker) = self.host_lane()?;
        let above = holds::run_above([]);
        let mut count = 0;
        let began = matches!(wait.goal, Goal::Room(_)).then(Moment::now);
        let is_late = |began: Moment| Moment::now().since(began) >= TUNING.help_time;
        let goes_on = |count: usize| match count {
            0 => true,
            count if count >= TUNING.help_tasks => false,
            _ => {
                self.sleep.alarms() == alarms
                    && !wait.deadline.has_passed()
                    && !(count.is_power_of_two() && began.is_some_and(is_late))
            }
        };
        while goes_on(count)
            && let Some(job) = self.pick(lane, &mut picker)
        {
            self.lanes[lane].running.store(true, Ordering::Relaxed);
            self.run(lane, job);
            count += 1;
        }
        self.lanes[lane].running.store(false, Ordering::Relaxed);
        // What is left in this lane's queue is for others: whoever put it there took it for this
        // thread's next.
        if self.lanes[lane].ready.len() > 0 {
            self.sleep.work_arrived();
        }
        drop(above);
        self.counters.helped.fetch_add(count as u64, Ordering::Relaxed);
        Some(count)
    }
}
