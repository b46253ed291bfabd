//! Waiting for the stream: for room, for a task, for all of them.

use std::sync::Arc;
use std::time::Instant;

use syncline_device::Deadline;
use syncline_tensor::TaskId;

use super::StreamError;
use super::circle::Goal;
use super::failure::Outcome;
use super::holds;
use super::shared::{RootState, Shared, lock};
use super::sleep::Want;

/// A wait of the calling thread.
pub(crate) struct Wait<'a> {
    pub(crate) want: Want,
    pub(crate) goal: Goal,
    pub(crate) deadline: Deadline,
    /// What the thread does, for errors.
    pub(crate) what: &'static str,
    /// Names what it waits for.
    pub(crate) name: &'a dyn Fn() -> String,
}

impl Shared {
    /// Runs ready tasks, then sleeps, until `check` is true; `false` where the deadline came first.
    ///
    /// `check` is called under the submit lock, and told whether the thread falls asleep unless it
    /// is true: then it has to see to being woken. An error of it ends the wait. A wait that can
    /// never end is refused.
    ///
    /// A thread that holds something runs only what it waits for: see `circle.rs`.
    pub(crate) fn wait_until(
        self: &Arc<Self>,
        wait: &Wait<'_>,
        mut check: impl FnMut(&mut RootState, bool) -> Result<bool, StreamError>,
    ) -> Result<bool, StreamError> {
        let holds = holds::holds_anything();
        let choosy = holds && !matches!(wait.goal, Goal::Room(_));
        // Inside a task it runs what that waits for in any case: who else should?
        let runs_needed = choosy && (self.options.help || holds::runs(|_| true));
        let mut announced = false;
        let mut looks = self.polls();
        let result = loop {
            // Read before the look: what happens after it ends a helper's burst.
            let alarms = self.sleep.alarms();
            match check(&mut self.lock(), false) {
                Ok(false) => {}
                ended => break ended,
            }
            if choosy && let Err(error) = self.refuse_own(wait) {
                break Err(error);
            }
            if wait.deadline.has_passed() {
                break Ok(false);
            }
            let helped = if choosy { None } else { self.help(alarms, wait) };
            if helped.is_some_and(|count| count > 0) {
                looks = self.polls();
                continue;
            }
            if !choosy && looks.next().is_some() {
                continue;
            }
            let takes_work = helped.is_some();
            let ticket = self.sleep.prepare_for(wait.want, takes_work, choosy);
            announced = true;
            let mut state = self.lock();
            let ended = check(&mut state, true);
            let others_hold = !state.guards.is_empty();
            drop(state);
            if !matches!(ended, Ok(false)) {
                self.sleep.cancel(ticket);
                break ended;
            }
            if runs_needed && let Some(pick) = self.pick_needed(&wait.goal) {
                self.sleep.cancel(ticket);
                self.run_needed(pick);
                continue;
            }
            if takes_work && self.has_work() {
                self.sleep.cancel(ticket);
                looks = self.polls();
                continue;
            }
            if choosy && self.has_work() {
                // What is left in the queue of this thread is for others.
                self.sleep.work_arrived();
            }
            match self.block(wait, holds || others_hold) {
                Ok(_blocked) => self.sleep.commit(ticket, wait.deadline),
                Err(error) => {
                    self.sleep.cancel(ticket);
                    break Err(error);
                }
            }
            looks = self.polls();
        };
        // A wake-up for work may have come to this thread, which leaves: pass it on.
        if announced && self.has_work() {
            self.sleep.work_arrived();
        }
        result
    }

    /// Waits until `task` has ended, and returns what became of it.
    pub(crate) fn wait_task(
        self: &Arc<Self>,
        task: TaskId,
        deadline: Deadline,
    ) -> Result<(), StreamError> {
        let began = Instant::now();
        let name = || format!("task {task}");
        let (want, goal) = (Want::Task, Goal::Task(task));
        let wait = Wait { want, goal, deadline, what: "waiting for a task", name: &name };
        let ended = self.wait_until(&wait, |state, _| {
            let slot = state.table.find(task);
            Ok(slot.is_none_or(|slot| !self.ring.slots[slot as usize].fanout.ask()))
        })?;
        if !ended {
            return Err(StreamError::TimedOut { what: name(), waited: began.elapsed() });
        }
        match lock(&self.ring.failures).outcome(task) {
            Outcome::Done => Ok(()),
            Outcome::Failed(failure) => Err(StreamError::TaskFailed { task, failure }),
            Outcome::Forgotten => {
                Err(StreamError::OutcomeForgotten { task, kept: super::failure::FAILURES_KEPT })
            }
        }
    }

    /// Waits until everything submitted so far has ended; `false` where `deadline` came first.
    pub(crate) fn wait_quiet(self: &Arc<Self>, deadline: Deadline) -> Result<bool, StreamError> {
        let state = self.lock();
        let end = state.table.submitter.next_task();
        // The tasks that may not have ended. The last one in this list is asked to tell when it
        // ends: a helper needs no clock then, and workers may never run dry.
        let mut left: Vec<TaskId> = state.table.live().map(|(task, _)| task).collect();
        drop(state);
        let name = || "all tasks".to_owned();
        let (want, goal) = (Want::Quiet, Goal::Before(end));
        let wait = Wait { want, goal, deadline, what: "waiting for everything", name: &name };
        self.wait_until(&wait, |state, sleepy| {
            self.reclaim(state);
            if sleepy && let Some(youngest) = (0..left.len()).max_by_key(|&at| left[at]) {
                // It mostly ends last, so that a thread that sleeps is woken seldom.
                let last = left.len() - 1;
                left.swap(youngest, last);
            }
            while let Some(&task) = left.last() {
                if let Some(slot) = state.table.find(task) {
                    if self.ring.slots[slot as usize].fanout.ask() {
                        return Ok(false);
                    }
                    // It has ended, too late to be asked, and its slot is on the way back: that
                    // must not be missed.
                    if sleepy {
                        self.sleep.tell_of_room();
                        self.reclaim(state);
                    }
                    if state.table.find(task).is_some() {
                        return Ok(false);
                    }
                }
                left.pop();
            }
            Ok(true)
        })
    }

    /// Waits for everything, and reports the first failure since the last report.
    pub(crate) fn wait_all(self: &Arc<Self>, deadline: Deadline) -> Result<(), StreamError> {
        let began = Instant::now();
        if !self.wait_quiet(deadline)? {
            let (what, waited) = ("all tasks".into(), began.elapsed());
            return Err(StreamError::TimedOut { what, waited });
        }
        if self.ring.failures_live() == 0 {
            return Ok(());
        }
        let first = self.ring.report_failures(&mut self.lock().table.submitter);
        first.map_or(Ok(()), |(task, failure)| Err(StreamError::TaskFailed { task, failure }))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::time::Duration;

    use syncline_device::cpu::WorkersHandle;

    use super::*;
    use crate::stream::StreamOptions;
    use crate::stream::pick::Picker;
    use crate::stream::ready::Ready;
    use crate::stream::shared::Job;
    use crate::stream::task::{Task, TaskSpec};

    /// The shared part of a stream whose workers have all been asleep since the beginning.
    fn shared() -> Arc<Shared> {
        let options = StreamOptions { ring_tasks: 64, workers: 1, ..Default::default() };
        Arc::new(Shared::new(options, WorkersHandle::none()))
    }

    #[test]
    fn a_waiter_hears_of_a_task_that_was_closed_before_it_could_be_asked() {
        let shared = shared();
        shared.submit(TaskSpec::reused("closing".into()), None).expect("room");
        let Some(Job::Root(pick)) = shared.pick(0, &mut Picker::default()) else {
            panic!("it is ready");
        };
        // Its finisher has closed it, and is stopped before it gives the slot back.
        shared.ring.slots[pick.slot as usize].fanout.close();
        let host_lane = shared.host_lane().expect("nobody helps");
        let waiting = shared.clone();
        let (sender, woken) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(waiting.wait_all(Deadline::NEVER)));
        std::thread::sleep(Duration::from_millis(100));
        shared.lanes[0].done.push(pick.slot);
        shared.sleep.room_made();
        let woken = woken.recv_timeout(Duration::from_secs(20));
        assert!(woken.expect("the waiter sleeps on").is_ok());
        drop(host_lane);
    }

    #[test]
    fn what_a_helper_leaves_behind_is_announced() {
        let shared = shared();
        let mut last = None;
        for _ in 0..17 {
            let mut task = Task::new("link").body(|_| ());
            if let Some(before) = &last {
                task = task.after(before);
            }
            last = Some(shared.submit(task.spec, None).expect("room"));
        }
        let worker = shared.sleep.prepare(Want::Work, true);
        let name = || "a test".to_owned();
        let (want, goal) = (Want::Task, Goal::Task(TaskId::new(0, 99)));
        let wait = Wait { want, goal, deadline: Deadline::NEVER, what: "a test", name: &name };
        assert_eq!(shared.help(shared.sleep.alarms(), &wait), Some(16), "one burst");
        assert!(shared.has_work());
        assert_eq!(shared.sleep.permits(), 1, "nobody runs the last one");
        shared.sleep.cancel(worker);
    }

    #[test]
    fn a_waiter_that_need_not_sleep_passes_a_wake_up_on() {
        let shared = shared();
        let worker = shared.sleep.prepare(Want::Work, true);
        let name = || "a test".to_owned();
        let goal = Goal::Task(TaskId::new(0, 0));
        let (want, deadline) = (Want::Task, Deadline::NEVER);
        let wait = Wait { want, goal, deadline, what: "a test", name: &name };
        let ended = shared.wait_until(&wait, |_, sleepy| {
            if sleepy {
                // Between the waiter's announcement and its last look work arrives, and the end of
                // its wait.
                shared.queue.push(Ready { slot: 0, priority: 0, blocks: 1, gang: false });
                shared.sleep.work_arrived();
            }
            Ok(sleepy)
        });
        assert!(matches!(ended, Ok(true)), "{ended:?}");
        assert_eq!(shared.sleep.permits(), 1, "the worker sleeps on");
        shared.sleep.cancel(worker);
    }
}
