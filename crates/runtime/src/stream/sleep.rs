//! Sleeping and waking, for workers without work and for threads that wait for the stream.
//!
//! Waking a thread costs far more than a small task, so a worker looks around for a while before it
//! sleeps (it is *searching*), and nobody is woken while somebody searches. Whoever stops searching
//! because it found work looks once more, and wakes the next one if there is more. `README.md` has
//! the argument why no work is left lying.

use std::sync::PoisonError;
use std::time::Instant;

use syncline_device::Deadline;

use crossbeam_utils::CachePadded;

use super::sync::{AtomicU32, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, fence, lock};

/// Where the threads of a stream sleep.
#[derive(Debug, Default)]
pub(crate) struct Sleep {
    state: Mutex<State>,
    /// Where those sleep who take work.
    work: Condvar,
    /// Where those sleep who do not: a wake-up for work must not go to them.
    news: Condvar,
    /// Threads that look for work. On a line of its own: it changes all the time, and who submits
    /// seldom asks.
    searching: CachePadded<AtomicU32>,
    sleepers: CachePadded<Sleepers>,
    /// Changes with every wake-up that is meant for all, under the lock.
    alarms: AtomicU64,
}

/// What is asked for at every task, and changes only when somebody falls asleep or wakes up.
#[derive(Debug, Default)]
struct Sleepers {
    /// Sleepers that no permit is meant for yet.
    idle: AtomicU32,
    /// Somebody sleeps until a slot, memory or edges come back.
    starving: AtomicU32,
    /// Somebody sleeps until everything, or a scope, has finished.
    waiting: AtomicU32,
    /// Threads sleep that take only certain work: they look at all that arrives, and again when a
    /// task ends.
    choosy: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    permits: u32,
}

/// What a thread sleeps for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Something to run.
    Work,
    /// A resource: told at the next task that finishes.
    Room,
    /// All tasks, or those of a scope: told when workers run dry, or by the scope.
    Quiet,
    /// One task, which was asked to tell (`Fanout::ask`).
    Task,
}

/// A thread that is about to sleep.
#[derive(Debug)]
#[must_use = "commit or cancel"]
pub(crate) struct Ticket {
    want: Want,
    takes_work: bool,
    choosy: bool,
    alarms: u64,
}

impl Sleep {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A thread begins to look for work.
    pub(crate) fn start_searching(&self) {
        self.searching.fetch_add(1, Ordering::SeqCst);
    }

    /// A thread stops looking for work; whether it was the last one that did.
    pub(crate) fn stop_searching(&self) -> bool {
        let last = self.searching.fetch_sub(1, Ordering::SeqCst) == 1;
        // With the one in `work_arrived_guarded`: either this thread's next look finds the work, or
        // whoever brought it finds that nobody searches.
        fence(Ordering::SeqCst);
        last
    }

    /// There is new work: wakes one sleeper, unless somebody is looking for work already.
    ///
    /// To be called after the work was put where a searcher looks, with a sequentially consistent
    /// store.
    #[inline]
    pub(crate) fn work_arrived(&self) {
        if self.sleepers.idle.load(Ordering::SeqCst) != 0
            && self.searching.load(Ordering::SeqCst) == 0
        {
            self.wake(1);
        }
        if self.sleepers.choosy.load(Ordering::SeqCst) != 0 {
            self.alarm();
        }
    }

    /// Whether anybody sleeps who takes work. To be asked by the holder of the submit lock, about
    /// work that it has made available under it: sleepers announce themselves, take that lock, and
    /// look. Who took it before is seen here, who takes it later sees the work.
    #[inline]
    pub(crate) fn anybody_idle(&self) -> bool {
        self.sleepers.idle.load(Ordering::Relaxed) != 0
    }

    /// As [`Sleep::work_arrived`], for work that was made available under the submit lock, after
    /// [`Sleep::anybody_idle`].
    #[cold]
    pub(crate) fn work_arrived_guarded(&self) {
        // A searcher that was seen here has not looked for the last time yet, and then sees the
        // work.
        fence(Ordering::SeqCst);
        self.work_arrived();
    }

    /// Wakes up to `count` sleepers, whoever is looking for work.
    #[cold]
    pub(crate) fn wake(&self, count: u32) {
        let mut state = self.lock();
        let count = count.min(self.sleepers.idle.load(Ordering::Relaxed));
        self.sleepers.idle.fetch_sub(count, Ordering::SeqCst);
        state.permits += count;
        drop(state);
        for _ in 0..count {
            self.work.notify_one();
        }
    }

    /// Makes everybody who sleeps look again.
    #[cold]
    pub(crate) fn alarm(&self) {
        // SeqCst: a helper that has asked to be told reads it between two bodies.
        let state = self.lock();
        self.alarms.fetch_add(1, Ordering::SeqCst);
        drop(state);
        self.work.notify_all();
        self.news.notify_all();
    }

    /// Returns a number that changes with every alarm: when a task that was asked to tell has
    /// finished, a scope has, or a buffer was granted.
    #[inline]
    pub(crate) fn alarms(&self) -> u64 {
        self.alarms.load(Ordering::SeqCst)
    }

    /// A task has finished and its slot can be taken back: tells those who wait for room.
    #[inline]
    pub(crate) fn room_made(&self) {
        if self.sleepers.starving.load(Ordering::SeqCst) != 0 {
            self.sleepers.starving.store(0, Ordering::SeqCst);
            self.alarm();
        }
    }

    /// The next slot that can be taken back wakes everybody. Who calls this looks once more before
    /// it sleeps.
    pub(crate) fn tell_of_room(&self) {
        self.sleepers.starving.store(1, Ordering::SeqCst);
    }

    /// A worker has run dry: tells those who wait for everything.
    pub(crate) fn ran_dry(&self) {
        if self.sleepers.waiting.load(Ordering::SeqCst) != 0 {
            self.alarm();
        }
    }

    /// First step of falling asleep: from now on, whatever `want` names leaves a trace in the
    /// ticket. The caller then looks once more whether there is a reason to stay awake, and goes on
    /// with [`Sleep::commit`] or [`Sleep::cancel`].
    pub(crate) fn prepare(&self, want: Want, takes_work: bool) -> Ticket {
        self.prepare_for(want, takes_work, false)
    }

    /// As [`Sleep::prepare`], for a thread that may be `choosy`: one that takes only certain work.
    pub(crate) fn prepare_for(&self, want: Want, takes_work: bool, choosy: bool) -> Ticket {
        let state = self.lock();
        match want {
            Want::Room => self.sleepers.starving.store(1, Ordering::SeqCst),
            Want::Quiet => _ = self.sleepers.waiting.fetch_add(1, Ordering::SeqCst),
            Want::Work | Want::Task => {}
        }
        if takes_work {
            self.sleepers.idle.fetch_add(1, Ordering::SeqCst);
        }
        if choosy {
            self.sleepers.choosy.fetch_add(1, Ordering::SeqCst);
            self.tell_of_room();
        }
        let alarms = self.alarms();
        drop(state);
        Ticket { want, takes_work, choosy, alarms }
    }

    /// Stays awake.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        self.leave(&mut self.lock(), ticket);
    }

    /// Sleeps until what the ticket names happens, until `deadline` at the latest.
    pub(crate) fn commit(&self, ticket: Ticket, deadline: Deadline) {
        let mut state = self.lock();
        let sleepers = if ticket.takes_work { &self.work } else { &self.news };
        while self.alarms() == ticket.alarms && !(ticket.takes_work && state.permits > 0) {
            let late;
            (state, late) = wait_on(sleepers, state, deadline);
            if late {
                break;
            }
        }
        self.leave(&mut state, ticket);
    }

    /// Wake-ups that no sleeper has taken yet.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn permits(&self) -> u32 {
        self.lock().permits
    }

    /// Leaves the sleepers: by a permit where there is one, else by taking oneself off.
    fn leave(&self, state: &mut State, ticket: Ticket) {
        if ticket.want == Want::Quiet {
            self.sleepers.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        if ticket.choosy {
            self.sleepers.choosy.fetch_sub(1, Ordering::SeqCst);
        }
        if ticket.takes_work {
            if state.permits > 0 {
                state.permits -= 1;
            } else {
                self.sleepers.idle.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

/// Waits once, and says whether the deadline had passed before.
fn wait_on<'a>(
    sleepers: &Condvar,
    state: MutexGuard<'a, State>,
    deadline: Deadline,
) -> (MutexGuard<'a, State>, bool) {
    let Some(deadline) = deadline.instant() else {
        return (sleepers.wait(state).unwrap_or_else(PoisonError::into_inner), false);
    };
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return (state, true);
    }
    let (state, _) = sleepers.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
    (state, false)
}
