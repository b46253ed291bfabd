//! Threads that run tasks: the workers, and whoever helps them.

use std::sync::Arc;
use std::time::Duration;
#[cfg(not(shuttle))]
use std::time::Instant;

use syncline_device::Deadline;

use syncline_sync::shim::{Ordering, thread};

use super::circle::Goal;
use super::holds;
use super::pick::Picker;
use super::shared::Shared;
use super::sleep::Want;
use super::tuning::TUNING;
use super::wait::Wait;

/// Runs tasks on `lane` until the stream stops.
pub(crate) fn work(shared: &Arc<Shared>, lane: usize) {
    let _worker = holds::run_above([(shared.stream_id, holds::WORKER)]);
    let mut picker = Picker::default();
    let mut searched = true;
    // Polls become rarer until a task was found, also where there is one that better stays where it
    // is (`steal`).
    let mut looks = Polls::new(shared);
    // Relaxed: only for those who want to know how many are running.
    let running = &shared.lanes[lane].running;
    loop {
        match shared.pick(lane, &mut picker) {
            Some(job) => {
                if std::mem::take(&mut searched) {
                    running.store(true, Ordering::Relaxed);
                    if shared.has_work() {
                        shared.sleep.work_arrived();
                    }
                }
                shared.run(lane, job);
                looks = Polls::new(shared);
            }
            None if shared.is_stopping() && !shared.has_work() => return,
            None => {
                searched = true;
                running.store(false, Ordering::Relaxed);
                if !search(shared, &mut looks) {
                    looks = if sleep(shared) { Polls::new(shared) } else { Polls::rare(shared) };
                }
            }
        }
    }
}

/// Polls for work for a while; whether there is some.
fn search(shared: &Shared, looks: &mut Polls) -> bool {
    shared.sleep.start_searching();
    let found = looks.any(|()| shared.has_work() || shared.is_stopping());
    shared.sleep.stop_searching();
    if found && shared.has_only_submitted() {
        linger(shared);
    }
    found
}

/// Gives a submitter that is busy the time to get ahead, so that what it prepares comes over in one
/// go: running close behind it would move the same cache lines to and fro for every task.
///
/// What counts is submissions, not what is ready: the tasks of a chain follow the one that is.
fn linger(shared: &Shared) {
    if shared.counters.is_crowded() {
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

/// Leaves the processor, and the cache lines of others, alone for a moment.
#[cfg(not(shuttle))]
pub(crate) fn pause(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// There is no time in a model: others go first.
#[cfg(shuttle)]
pub(crate) fn pause(_time: Duration) {
    thread::yield_now();
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

/// The looks of a thread that waits and does not sleep yet, with pauses between them.
pub(crate) struct Polls {
    left: u32,
    pause: Option<Duration>,
}

impl Polls {
    pub(crate) fn new(shared: &Shared) -> Self {
        let (left, pause) = match shared.counters.is_crowded() {
            // Spinning would keep off the very thread that has to bring the work.
            true => (TUNING.polls_crowded, None),
            false => (TUNING.polls, Some(TUNING.pause_first)),
        };
        Self { left, pause }
    }

    /// Polls with the longest pauses only.
    fn rare(shared: &Shared) -> Self {
        let looks = Self::new(shared);
        Self { pause: looks.pause.map(|_| TUNING.pause_last), ..looks }
    }
}

impl Iterator for Polls {
    type Item = ();

    fn next(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        match &mut self.pause {
            None => thread::yield_now(),
            Some(time) => {
                pause(*time);
                *time = (2 * *time).min(TUNING.pause_last);
            }
        }
        Some(())
    }
}

/// Sleeps until there may be work; `false` where there was some.
fn sleep(shared: &Shared) -> bool {
    shared.sleep.ran_dry();
    let ticket = shared.sleep.prepare(Want::Work, true);
    // Submissions before this one are seen below; those after it see that this thread sleeps.
    drop(shared.lock());
    let stays = shared.has_work() || shared.is_stopping();
    if stays {
        shared.sleep.cancel(ticket);
    } else {
        shared.sleep.commit(ticket, Deadline::NEVER);
    }
    !stays
}

impl Shared {
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
