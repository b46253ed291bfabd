//! Which threads that wait for a stream park, and which are woken. Workers park with their device.
//!
//! Waking a thread costs far more than a small task. So a worker *searches* for a while before it
//! parks, and no thread is woken while another one searches. A worker that found work searches once
//! more, and wakes the next one if there is more. `README.md` has the argument why no work is left
//! lying; parking itself is that of [`EventCount`].

use syncline_device::Deadline;
use syncline_device::cpu::WorkersHandle;

use syncline_sync::shim::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, fence};
use syncline_sync::{CachePadded, EventCount, lock};

/// Where the threads of a stream park.
#[derive(Debug)]
pub(crate) struct Sleep {
    workers: WorkersHandle,
    /// Workers that may yet come to this stream.
    seats: CachePadded<AtomicU32>,
    state: Mutex<State>,
    /// Where threads park that take work.
    work: EventCount,
    /// Where threads park that do not: a wake-up for work must not go to them.
    news: EventCount,
    sleepers: CachePadded<Sleepers>,
    /// Changes with every wake-up that is meant for all, under the lock.
    alarms: AtomicU64,
}

/// What is asked for at every task, and changes only when somebody falls asleep or wakes up.
#[derive(Debug, Default)]
struct Sleepers {
    /// Threads outside that take work, and that no permit is meant for yet.
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
    /// Something to run: a worker of its own, in tests.
    #[cfg(all(test, not(any(loom, shuttle))))]
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
    /// For a stream that `workers` serve, at most `seats` of them at a time.
    pub(crate) fn new(workers: WorkersHandle, seats: usize) -> Self {
        let seats = CachePadded::new(AtomicU32::new(seats as u32));
        Self {
            workers,
            seats,
            state: Mutex::default(),
            work: EventCount::new(),
            news: EventCount::new(),
            sleepers: CachePadded::default(),
            alarms: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Takes a seat for a worker. Returns `false` if none is free.
    pub(crate) fn take_seat(&self) -> bool {
        let taken =
            self.seats.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |free| free.checked_sub(1));
        taken.is_ok()
    }

    /// Gives a seat back. The worker then checks for work before it parks.
    pub(crate) fn leave_seat(&self) {
        self.seats.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns `true` if a seat is free.
    #[inline]
    pub(crate) fn has_seat(&self) -> bool {
        self.seats.load(Ordering::SeqCst) > 0
    }

    /// There is new work: wakes one sleeper, unless somebody is looking for work already.
    ///
    /// To be called after the work was put where a searcher looks, with a sequentially consistent
    /// store.
    #[inline]
    pub(crate) fn work_arrived(&self) {
        if self.workers.any_idle() && self.has_seat() {
            self.workers.work_arrived();
        } else if self.sleepers.idle.load(Ordering::SeqCst) != 0 && !self.workers.any_searching() {
            self.wake_helpers(1);
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
        self.workers.any_idle() || self.sleepers.idle.load(Ordering::Relaxed) != 0
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

    /// Wakes up to `count` threads, even if others search for work.
    #[cold]
    pub(crate) fn wake(&self, count: u32) {
        let seats = self.seats.load(Ordering::SeqCst);
        let woken = self.workers.wake(count.min(seats));
        if woken < count {
            self.wake_helpers(count - woken);
        }
    }

    /// Wakes up to `count` threads that wait for the stream and take work meanwhile.
    #[cold]
    fn wake_helpers(&self, count: u32) {
        let mut state = self.lock();
        let count = count.min(self.sleepers.idle.load(Ordering::Relaxed));
        self.sleepers.idle.fetch_sub(count, Ordering::SeqCst);
        state.permits += count;
        drop(state);
        self.work.wake(count);
    }

    /// Makes everybody who sleeps look again.
    #[cold]
    pub(crate) fn alarm(&self) {
        // SeqCst: a helper that has asked to be told reads it between two bodies.
        let state = self.lock();
        self.alarms.fetch_add(1, Ordering::SeqCst);
        drop(state);
        self.work.wake_all();
        self.news.wake_all();
    }

    /// Returns a number that changes with every alarm: when a task that was asked to tell has
    /// finished, a scope has, or a buffer was granted.
    #[inline]
    pub(crate) fn alarms(&self) -> u64 {
        self.alarms.load(Ordering::SeqCst)
    }

    /// A task has finished and its slot can be reclaimed: tells those who wait for room.
    #[inline]
    pub(crate) fn room_made(&self) {
        if self.sleepers.starving.load(Ordering::SeqCst) != 0 {
            self.sleepers.starving.store(0, Ordering::SeqCst);
            self.alarm();
        }
    }

    /// The next slot that can be reclaimed wakes everybody. Who calls this looks once more before
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
            Want::Task => {}
            #[cfg(all(test, not(any(loom, shuttle))))]
            Want::Work => {}
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

    /// Parks until what the ticket names happens, until `deadline` at the latest.
    pub(crate) fn commit(&self, ticket: Ticket, deadline: Deadline) {
        let parked = if ticket.takes_work { &self.work } else { &self.news };
        loop {
            // Before the check: an event in between keeps this thread awake.
            let epoch = parked.epoch();
            let mut state = self.lock();
            let is_woken =
                self.alarms() != ticket.alarms || (ticket.takes_work && state.permits > 0);
            if is_woken || deadline.has_passed() {
                return self.leave(&mut state, ticket);
            }
            drop(state);
            parked.park(epoch, deadline.instant());
        }
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
