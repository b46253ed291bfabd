//! Who runs the lanes of a plan: workers, to which it is a source of work, and threads that wait.
//!
//! A lane that nobody has is *unattended*. A thread takes one that can go on, runs it until it
//! meets an unmet wait that does not end soon, says what the lane waits for, and gives it up.
//! `README.md` argues why no lane is forgotten.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_device::cpu::{Source, Turn};
use syncline_device::{Deadline, Wake};
use syncline_sync::barrier;
use syncline_sync::shim::{Ordering, fence};

use super::lane::{Awaits, Held};
use super::run::Stood;
use super::shared::Shared;

/// A parked thread checks again after this time even if it is not woken: a bound on what a fault of
/// a kernel could cost.
const PARK_MAX: Duration = Duration::from_millis(100);

/// How often a lane that waits checks, before it asks whether its thread is awaited elsewhere.
const CHECKS: u32 = 16;

/// A thread that runs lanes.
pub trait Attendant {
    /// Called before it runs anything.
    fn starts(&mut self, shared: &Shared);

    /// Called after each piece of work; returns `false` if the thread must leave.
    fn goes_on(&mut self) -> bool;

    /// Returns `true` if a thread that waits for a lane's next step should rather leave.
    fn is_awaited(&self) -> bool;

    /// Whether it waits a moment for the next run, between two.
    const LINGERS: bool;
}

impl Attendant for Turn<'_> {
    fn starts(&mut self, _shared: &Shared) {
        Turn::starts(self);
    }

    #[inline]
    fn goes_on(&mut self) -> bool {
        Turn::goes_on(self)
    }

    fn is_awaited(&self) -> bool {
        Turn::is_awaited(self)
    }

    const LINGERS: bool = true;
}

/// A thread that waits for the plan, until a deadline.
pub struct Waiter {
    deadline: Deadline,
    /// It was woken, perhaps for more than it can do alone.
    was_woken: bool,
}

impl Waiter {
    pub fn new(deadline: Deadline) -> Self {
        Self { deadline, was_woken: false }
    }

    fn is_late(&self) -> bool {
        self.deadline != Deadline::NEVER && self.deadline.has_passed()
    }
}

impl Attendant for Waiter {
    fn starts(&mut self, shared: &Shared) {
        if std::mem::take(&mut self.was_woken) {
            shared.wake_workers();
        }
    }

    fn goes_on(&mut self) -> bool {
        !self.is_late()
    }

    fn is_awaited(&self) -> bool {
        self.is_late()
    }

    /// The thread that waits is the one to begin it.
    const LINGERS: bool = false;
}

/// What the workers of one device see of a plan: its lanes on that device.
pub struct PlanSource {
    pub shared: Arc<Shared>,
    /// Number of the device among those that run lanes.
    pub crew: usize,
}

impl Source for PlanSource {
    fn serve(&self, turn: &mut Turn<'_>) {
        // The caller mostly has the longest lane, and workers begin at others.
        let first = turn.worker() + 1;
        self.shared.run_ready(turn, first, |crew| crew == self.crew);
    }

    fn has_work(&self) -> bool {
        self.shared.any_ready(|crew| crew == self.crew)
    }
}

/// Where a device has come, or may have: the lanes that wait for one look again.
impl Wake for Shared {
    fn wake(&self) {
        self.seats.iter().for_each(|seat| seat.tell());
        self.wake_others(false);
    }
}

impl Shared {
    /// Tells the threads that wait of what was just published.
    #[inline]
    pub fn published(&self, ends_run: bool) {
        // N2 of event counts: the heavy half is in `attend`, and where workers park.
        barrier::light();
        // Relaxed: ordered by the barrier.
        if self.unattended.load(Ordering::Relaxed) != 0 {
            self.wake_others(ends_run);
        }
    }

    #[cold]
    fn wake_others(&self, ends_run: bool) {
        // Before the questions who is parked: who is not seen sees what was published.
        fence(Ordering::SeqCst);
        let is_awaited = ends_run && self.waiters.load(Ordering::SeqCst) != 0;
        let is_helped = self.helpers.load(Ordering::SeqCst) != 0 && self.any_ready(|_| true);
        if is_awaited || is_helped {
            self.news.wake_all();
        }
        if !is_helped {
            self.wake_workers();
        }
    }

    /// Wakes as many workers as there are lanes that can go on.
    fn wake_workers(&self) {
        for (number, crew) in self.crews.iter().enumerate() {
            if crew.any_idle() {
                let ready = self.ready_lanes(|other| other == number).count();
                match ready {
                    0 => {}
                    1 => crew.work_arrived(),
                    count => _ = crew.wake(count as u32),
                }
            }
        }
    }

    /// The lanes that nobody has and that can go on, of the crews that `of` names.
    fn ready_lanes(&self, of: impl Fn(usize) -> bool) -> impl Iterator<Item = usize> {
        (0..self.seats.len())
            .filter(move |&lane| self.crew_of[lane].is_some_and(&of) && self.is_ready(lane))
    }

    /// Whether some lane can go on that nobody has.
    #[inline]
    pub fn any_ready(&self, of: impl Fn(usize) -> bool) -> bool {
        self.unattended.load(Ordering::SeqCst) != 0 && self.ready_lanes(of).next().is_some()
    }

    fn is_ready(&self, lane: usize) -> bool {
        let seat = &self.seats[lane];
        if seat.is_taken() {
            return false;
        }
        if let Some(board) = self.board() {
            return board.could_claim(lane, self.started.get());
        }
        match seat.awaits() {
            Awaits::Run(number) => self.started.get() >= number,
            Awaits::Lane(other, value) => self.progress[other as usize].get() >= value,
            Awaits::Device => seat.was_told(),
        }
    }

    /// Runs lanes that can go on until there is none or the thread must leave; from number `first`
    /// on, of the crews that `of` names. Returns `true` if any did.
    fn run_ready<A: Attendant>(
        &self,
        attendant: &mut A,
        first: usize,
        of: impl Fn(usize) -> bool + Copy,
    ) -> bool {
        let (count, mut ran) = (self.seats.len(), false);
        while self.unattended.load(Ordering::SeqCst) != 0 {
            let mut lanes = (0..count).map(|at| (first + at) % count);
            let found = lanes.find_map(|lane| {
                let is_ready = self.crew_of[lane].is_some_and(of) && self.is_ready(lane);
                Some((lane, is_ready.then(|| self.seats[lane].take()).flatten()?))
            });
            let Some((lane, held)) = found else { return ran };
            self.unattended.fetch_sub(1, Ordering::SeqCst);
            ran = true;
            if !self.run_held(attendant, lane, held) {
                return ran;
            }
        }
        ran
    }

    /// Runs a lane that the calling thread has taken, and gives it up. Returns `false` if the
    /// thread must leave.
    fn run_held<A: Attendant>(&self, attendant: &mut A, lane: usize, mut held: Held<'_>) -> bool {
        attendant.starts(self);
        let goes_on = match self.board() {
            Some(board) => board.work(self, lane, attendant),
            None => self.advance(attendant, lane, &mut held),
        };
        self.give_up(held);
        goes_on
    }

    /// Gives up a lane that the calling thread has, which looks at it again before it parks.
    pub fn give_up(&self, held: Held<'_>) {
        // Before the lane can be taken, so that the count is never too low.
        self.unattended.fetch_add(1, Ordering::SeqCst);
        drop(held);
    }

    /// Runs a lane until it waits for something that does not come soon. Returns `false` if the
    /// thread must leave.
    pub fn advance<A: Attendant>(
        &self,
        attendant: &mut A,
        lane: usize,
        held: &mut Held<'_>,
    ) -> bool {
        loop {
            let awaits = if held.is_inside {
                match self.run_lane(attendant, lane, held) {
                    Stood::AtTheEnd => {
                        held.is_inside = false;
                        continue;
                    }
                    Stood::Waiting(awaits) => awaits,
                    Stood::Leaving => {
                        held.set_awaits(Awaits::Run(0));
                        return false;
                    }
                }
            } else {
                let next = held.run + 1;
                if self.started.get() < next && !self.linger(attendant, next) {
                    held.set_awaits(Awaits::Run(next));
                    return !attendant.is_awaited();
                }
                self.apart.settle(lane, &mut held.moves);
                (held.run, held.is_inside, held.segment, held.waited) = (next, true, 0, 0);
                continue;
            };
            held.set_awaits(awaits);
            return true;
        }
    }

    /// Waits a moment for run `number` to begin, after the one before.
    fn linger<A: Attendant>(&self, attendant: &A, number: u64) -> bool {
        A::LINGERS && self.is_soon(attendant, || self.started.get() >= number)
    }

    /// Waits a moment for `condition`, while the thread is not awaited elsewhere.
    pub fn is_soon<A: Attendant>(&self, attendant: &A, condition: impl Fn() -> bool) -> bool {
        let mut checks = 0;
        self.spin.until(|| {
            checks += 1;
            condition()
                || (checks % CHECKS == 0 && (self.any_ready(|_| true) || attendant.is_awaited()))
        });
        condition()
    }

    /// Waits until `condition` holds, and runs lanes meanwhile if the thread `helps`: where no body
    /// waits for what the thread does later. Returns `false` if the deadline passed first.
    pub fn attend(&self, helps: bool, deadline: Deadline, condition: impl Fn() -> bool) -> bool {
        let mut waiter = Waiter::new(deadline);
        let mut ran = false;
        loop {
            let (holds, is_late) = (condition(), waiter.is_late());
            if holds || is_late {
                // A lane that this thread has given up may be able to go on, and is for others.
                if ran && self.any_ready(|_| true) {
                    self.wake_others(false);
                }
                return holds;
            }
            if helps && self.run_ready(&mut waiter, 0, |_| true) {
                ran = true;
                continue;
            }
            let may_go_on = || condition() || helps && self.any_ready(|_| true);
            if !self.spin.until(may_go_on) {
                self.park(helps, &waiter, may_go_on);
                waiter.was_woken = true;
            }
        }
    }

    fn park(&self, helps: bool, waiter: &Waiter, may_go_on: impl Fn() -> bool) {
        let longest = Instant::now() + PARK_MAX;
        let until = waiter.deadline.instant().map_or(longest, |at| at.min(longest));
        // W1 to W4 of event counts.
        let epoch = self.news.epoch();
        let helpers = u32::from(helps);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        self.helpers.fetch_add(helpers, Ordering::SeqCst);
        self.unattended.fetch_add(1, Ordering::SeqCst);
        barrier::heavy();
        if !may_go_on() {
            self.news.park(epoch, Some(until));
        }
        self.unattended.fetch_sub(1, Ordering::SeqCst);
        self.helpers.fetch_sub(helpers, Ordering::SeqCst);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }
}
