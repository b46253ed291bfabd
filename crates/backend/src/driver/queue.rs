//! The life of a lane's batches: pending with us, in flight with the driver, settled. `README.md`
//! beside this file has the protocol.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::fmt;
use std::mem;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use syncline_sync::lock;

use super::events::{Events, Found};
use super::{Driver, HandedOver, OpList, call};
use crate::{BridgeWaker, Woken};
use syncline_device::{
    CommandTime, Deadline, DeviceError, HostFunction, LaneCore, LaneInfo, Lease, Point,
    PointStatus, Timeline, TimelineOwner, Work, drop_guarded, fail_signals,
};

/// What a lane's handle, the bridge and the driver's callbacks share.
pub(super) struct LaneQueue<D: Driver> {
    pub(super) info: LaneInfo,
    me: Weak<LaneQueue<D>>,
    state: Mutex<State<D>>,
    /// What the driver has said since it was last read. Its callbacks touch this, `endings` and the
    /// bridge's inbox, nothing else: they may come on any thread, also from within a call of ours
    /// that holds `state`.
    ended: Mutex<Vec<(u64, Result<(), Arc<str>>)>>,
    /// Runs host functions; started at the first.
    caller: Mutex<Option<Sender<HostFunction>>>,
    /// Memory for batches to come.
    rooms: Mutex<Rooms<D>>,
    /// Memory for endings to come.
    #[expect(clippy::vec_box, reason = "the driver is given their addresses")]
    endings: Mutex<Vec<Box<Option<Ending<D>>>>>,
    /// Goes last: drivers may not survive that a queue is released after its context (PoCL 3.1 does
    /// not).
    pub(super) driver: Arc<D>,
}

/// What batches that have ended leave to those to come, empty. Never more than there is room for.
struct Rooms<D: Driver> {
    waits: Vec<Vec<Wait>>,
    steps: Vec<VecDeque<Step<D>>>,
}

impl<D: Driver> Default for Rooms<D> {
    fn default() -> Self {
        Self { waits: Vec::new(), steps: Vec::new() }
    }
}

/// Keeps `emptied`, if there is room for it.
fn keep<T>(all: &mut Vec<T>, emptied: T) {
    if all.len() < all.capacity() {
        all.push(emptied);
    }
}

/// Makes sure that `all` has `count`, and room for them.
fn stock<T>(all: &mut Vec<T>, count: usize, make: impl FnMut() -> T) {
    let missing = count.saturating_sub(all.len());
    all.reserve_exact(missing);
    all.extend(std::iter::repeat_with(make).take(missing));
}

struct State<D: Driver> {
    core: LaneCore<Pending<D>>,
    queue: D::Queue,
    events: Arc<Events<D::Event>>,
    ticket_last: u64,
    flight: VecDeque<Flight<D>>,
    /// Kept empty, for the memory that they have.
    heard: Vec<(u64, Result<(), Arc<str>>)>,
    after: Vec<D::Event>,
    /// Batches that failed while the driver still had others.
    dead: Vec<Pending<D>>,
    /// The bridge's thread tells, under no lock, how a batch has ended: nothing is handed over
    /// meanwhile.
    telling: bool,
    /// A host function of the first pending batch is running.
    calling: bool,
    /// The lane will fail as soon as the driver has nothing of it.
    doomed: Option<Doom>,
    /// The driver reported a failure: its queue is not used again.
    lost: bool,
    /// When commands ran, where that is noted.
    times: Option<Vec<CommandTime>>,
}

/// Why a lane will fail, and the value of the batch with which that begins: those before it
/// complete.
struct Doom {
    from: u64,
    cause: DeviceError,
}

impl<D: Driver> State<D> {
    /// The batch of `from` failed. Of several failures the one of the earliest batch counts.
    fn doom(&mut self, from: u64, cause: DeviceError) {
        if self.doomed.as_ref().is_none_or(|doom| from < doom.from) {
            self.doomed = Some(Doom { from, cause });
        }
    }
}

/// A batch that the driver does not have, or not all of it.
pub(super) struct Pending<D: Driver> {
    pub(super) value: u64,
    pub(super) waits: Vec<Wait>,
    pub(super) steps: VecDeque<Step<D>>,
    pub(super) signals: Vec<Point>,
    pub(super) task: Option<Arc<str>>,
    pub(super) leases: Vec<Lease>,
}

/// What a batch does, step by step.
pub(super) enum Step<D: Driver> {
    /// Commands, the numbers of which begin at `first`.
    Ops { list: Arc<OpList<D::Op>>, first: u32 },
    /// A function of the host.
    Call(HostFunction),
}

impl<D: Driver> Step<D> {
    /// The commands for the driver, with their numbers in the batch.
    fn ops(&self) -> impl Iterator<Item = (&D::Op, u32)> {
        let (list, first) = match self {
            Step::Ops { list, first } => (Some(list), *first),
            Step::Call(_) => (None, 0),
        };
        let ops = list.into_iter().flat_map(|list| list.ops.iter().zip(&list.commands));
        ops.map(move |(op, number)| (op, first + number))
    }
}

/// A point that a pending batch waits for, and whether the bridge was told.
pub(super) struct Wait {
    point: Point,
    watched: bool,
}

impl From<Point> for Wait {
    fn from(point: Point) -> Self {
        Self { point, watched: false }
    }
}

/// What the driver has.
struct Flight<D: Driver> {
    ticket: u64,
    /// The value of its batch.
    value: u64,
    /// The batch of which this is the end; none for a part before a host function.
    batch: Option<Ends>,
    /// How it ended, once the driver is done with it.
    ended: Option<Result<(), DeviceError>>,
    /// The driver would not take all of it. Told when it is done with what it took.
    refused: Option<DeviceError>,
    /// Points for whose events the driver waited: they are reached before this is.
    after: Vec<Wait>,
    /// Stays alive until the driver is done.
    steps: VecDeque<Step<D>>,
    task: Option<Arc<str>>,
    /// What tells when its commands ran, where that is noted.
    times: Option<D::Times>,
}

/// What happens when a batch has completed.
struct Ends {
    signals: Vec<Point>,
    leases: Vec<Lease>,
}

/// Whether a batch can go on.
enum Readiness {
    /// It can go to the driver, after the events of the points that it still waits for.
    Ready,
    Blocked,
    Failed(DeviceError),
}

impl<D: Driver> LaneQueue<D> {
    pub(super) fn new(info: LaneInfo, driver: Arc<D>) -> Result<Arc<Self>, DeviceError> {
        let queue = driver.open_queue()?;
        let events = Events::new(driver.context());
        let owner = Timeline::owned(&info.name, 0, Some(events.clone()));
        let state = State {
            core: LaneCore::new(&info.name, owner),
            queue,
            events,
            ticket_last: 0,
            flight: VecDeque::new(),
            heard: Vec::new(),
            after: Vec::new(),
            dead: Vec::new(),
            telling: false,
            calling: false,
            doomed: None,
            lost: false,
            times: None,
        };
        Ok(Arc::new_cyclic(|me| Self {
            info,
            driver,
            me: me.clone(),
            state: Mutex::new(state),
            ended: Mutex::default(),
            caller: Mutex::default(),
            rooms: Mutex::default(),
            endings: Mutex::default(),
        }))
    }

    /// Makes room for `batches` batches at a time, and for one that has ended and is
    /// not given back yet.
    pub(super) fn reserve(&self, batches: usize, waits: usize, buffers: usize) {
        let batches = batches + 1;
        self.info.spares.reserve(batches, waits, buffers);
        let mut rooms = lock(&self.rooms);
        stock(&mut rooms.waits, batches, Vec::new);
        rooms.waits.iter_mut().for_each(|one| one.reserve(waits));
        stock(&mut rooms.steps, batches, || VecDeque::with_capacity(1));
        drop(rooms);
        stock(&mut lock(&self.endings), batches, || Box::new(None));
        lock(&self.ended).reserve(batches);
        let mut state = self.lock();
        let (pending, flight) = (state.core.pending.len(), state.flight.len());
        state.core.pending.reserve(batches.saturating_sub(pending));
        state.flight.reserve(batches.saturating_sub(flight));
        state.heard.reserve(batches);
        state.after.reserve(waits);
        state.events.reserve(batches);
    }

    /// Empty lists for the waits and the steps of a batch.
    pub(super) fn take_room(&self) -> (Vec<Wait>, VecDeque<Step<D>>) {
        let mut rooms = lock(&self.rooms);
        (rooms.waits.pop().unwrap_or_default(), rooms.steps.pop().unwrap_or_default())
    }

    /// Keeps the emptied lists of a batch.
    fn give_room(&self, waits: Vec<Wait>, steps: VecDeque<Step<D>>) {
        let mut rooms = lock(&self.rooms);
        keep(&mut rooms.waits, waits);
        keep(&mut rooms.steps, steps);
    }

    /// An error unless the lane takes work.
    pub(super) fn check_open(&self, task: Option<&Arc<str>>) -> Result<(), DeviceError> {
        self.lock().core.check_open(task)
    }

    /// Adds `work`, which comes to `steps`, and gives it to the driver if it can run. `waits` is
    /// empty. Leaves work and steps that are refused.
    pub(super) fn push(
        &self,
        work: &mut Work,
        mut waits: Vec<Wait>,
        steps: &mut VecDeque<Step<D>>,
    ) -> Result<Point, DeviceError> {
        let mut state = self.lock();
        let point = state.core.admit(&mut work.waits, work.task.as_ref())?;
        waits.extend(work.waits.drain(..).map(Wait::from));
        self.info.spares.give_points(mem::take(&mut work.waits));
        state.core.pending.push_back(Pending {
            value: point.value(),
            waits,
            steps: mem::take(steps),
            signals: mem::take(&mut work.signals),
            task: work.task.take(),
            leases: mem::take(&mut work.leases),
        });
        self.advance(&mut state);
        let has_ended = state.flight.front().is_some_and(|flight| flight.ended.is_some());
        let is_due = has_ended || state.doomed.is_some() || state.core.is_closing();
        drop(state);
        if is_due {
            self.pump_soon();
        }
        Ok(point)
    }

    pub(super) fn last(&self) -> Point {
        self.lock().core.last()
    }

    pub(super) fn recover(&self) {
        let mut state = self.lock();
        let State { core, events, .. } = &mut *state;
        let has_recovered = core.recover(|name| {
            *events = Events::new(self.driver.context());
            Ok(Timeline::owned(name, 0, Some(events.clone())))
        });
        if !has_recovered {
            return;
        }
        if mem::take(&mut state.lost)
            && let Ok(fresh) = self.driver.open_queue()
        {
            state.queue = fresh;
        }
    }

    /// Refuses further work. What the driver has completes; the rest fails.
    pub(super) fn close(&self) {
        if !self.lock().core.close() {
            return;
        }
        self.pump_soon();
        // The caller's thread ends when it has nothing more to call.
        lock(&self.caller).take();
    }

    pub(super) fn note_times(&self, on: bool) {
        let mut state = self.lock();
        match on {
            true => drop(state.times.get_or_insert_default()),
            false => state.times = None,
        }
    }

    pub(super) fn take_times(&self) -> Vec<CommandTime> {
        self.lock().times.as_mut().map(mem::take).unwrap_or_default()
    }

    /// Waits for what the driver has of the lane, and for the bridge to let go of it, until
    /// `deadline` at the latest. Returns at once on the bridge's thread, which would wait for
    /// itself.
    pub(super) fn drain(&self, deadline: Deadline) {
        if self.driver.bridge().is_current() {
            return;
        }
        if let Some(point) = self.last_in_flight() {
            // Whether it ends well does not matter to a lane that closes.
            let _ = point.wait(deadline);
        }
        // A program may exit next, and must not find a thread of ours inside of the driver.
        self.driver.bridge().settle(deadline);
    }

    /// The last point that the driver has.
    fn last_in_flight(&self) -> Option<Point> {
        let state = self.lock();
        let last = state.flight.iter().rev().find(|flight| flight.batch.is_some());
        last.map(|flight| state.core.owner().timeline().point(flight.value))
    }

    /// Has the bridge's thread do what can be done.
    fn pump_soon(&self) {
        if let Some(me) = self.me.upgrade() {
            self.driver.bridge().wake(me);
        }
    }

    /// Does what can be done: tells of what has ended, gives the driver what can run. Called on the
    /// bridge's thread alone, which holds no lock: wakers are user code.
    fn pump(&self) {
        let mut state = self.lock();
        loop {
            self.note_ended(&mut state);
            if let Some((flight, doom)) = self.take_ended(&mut state) {
                state.telling = true;
                drop(state);
                let value = flight.value;
                let told = self.tell(flight, doom);
                state = self.lock();
                state.telling = false;
                if let Err((cause, dead)) = told {
                    state.doom(value, cause);
                    state.dead.extend(dead);
                }
                continue;
            }
            let handed = self.advance(&mut state);
            if let Some(given_up) = self.give_up(&mut state) {
                drop(state);
                given_up.tell(&self.info.name);
                state = self.lock();
                continue;
            }
            // What needs no driver has ended as soon as it is handed over.
            if !handed || state.flight.front().is_none_or(|flight| flight.ended.is_none()) {
                return;
            }
        }
    }

    /// Takes over what the driver's callbacks have said.
    fn note_ended(&self, state: &mut State<D>) {
        let mut heard = mem::take(&mut state.heard);
        mem::swap(&mut heard, &mut lock(&self.ended));
        for (ticket, result) in heard.drain(..) {
            let Some(flight) = state.flight.iter_mut().find(|flight| flight.ticket == ticket)
            else {
                continue;
            };
            state.lost |= result.is_err();
            flight.ended = Some(
                result.map_err(|message| self.failed(&format!("a command ended with {message}"))),
            );
        }
        state.heard = heard;
    }

    /// Takes the first batch in flight, if it has ended and so have the batches that it waited for.
    /// With it comes the cause of an earlier failure.
    fn take_ended(&self, state: &mut State<D>) -> Option<(Flight<D>, Option<DeviceError>)> {
        let flight = state.flight.front_mut()?;
        if flight.ended.is_none() || !self.has_seen(&mut flight.after) {
            return None;
        }
        let mut flight = state.flight.pop_front()?;
        if let Some((out, times)) = state.times.as_mut().zip(flight.times.take()) {
            self.driver.read_times(times, flight.value, out);
        }
        let doom = state.doomed.as_ref().filter(|doom| doom.from <= flight.value);
        let cause = doom.map(|doom| doom.cause.clone());
        Some((flight, cause))
    }

    /// Completes a batch that has ended. Returns why its lane fails, and the rest of the batch,
    /// which fails with the rest of the flight: the lane must not seem to have stopped while the
    /// driver works for it.
    fn tell(
        &self,
        mut flight: Flight<D>,
        doom: Option<DeviceError>,
    ) -> Result<(), (DeviceError, Option<Pending<D>>)> {
        let result = self.outcome(&mut flight);
        flight.steps.drain(..).for_each(drop_guarded);
        flight.after.clear();
        self.give_room(mem::take(&mut flight.after), mem::take(&mut flight.steps));
        let Some(mut ends) = flight.batch else { return result.map_err(|cause| (cause, None)) };
        let result = match doom {
            Some(cause) => Err(cause.inherited(&self.info.name, flight.task.as_ref())),
            None => result,
        };
        let result = result.and_then(|()| {
            ends.leases.drain(..).for_each(drop_guarded);
            self.info.spares.give_leases(mem::take(&mut ends.leases));
            ends.signals.iter().try_for_each(|point| point.timeline().signal(point.value()))
        });
        if let Err(cause) = result {
            let dead = Pending {
                value: flight.value,
                waits: Vec::new(),
                steps: VecDeque::new(),
                signals: ends.signals,
                task: flight.task,
                leases: ends.leases,
            };
            return Err((cause, Some(dead)));
        }
        let (owner, events) = {
            let state = self.lock();
            (state.core.owner().clone(), state.events.clone())
        };
        let signalled = owner.signal(flight.value);
        assert!(signalled.is_ok(), "values of one lane grow: {signalled:?}");
        events.complete(flight.value);
        Ok(())
    }

    /// How the driver's part ended; the failure of what it waited for comes before its own.
    fn outcome(&self, flight: &mut Flight<D>) -> Result<(), DeviceError> {
        let own = flight.refused.take().map_or_else(|| flight.ended.take().unwrap_or(Ok(())), Err);
        let failure = flight.after.iter().find_map(|wait| match wait.point.status() {
            PointStatus::Failed(cause) => Some(cause),
            PointStatus::Pending | PointStatus::Reached => None,
        });
        match failure {
            Some(cause) => Err(cause.inherited(&self.info.name, flight.task.as_ref())),
            None => own,
        }
    }

    /// Returns `true` if all points in `after` are decided on their timelines, as they are for the
    /// driver.
    fn has_seen(&self, after: &mut [Wait]) -> bool {
        let mut all = true;
        for wait in after {
            if wait.point.status() == PointStatus::Pending {
                all = false;
                self.watch(wait);
            }
        }
        all
    }

    fn watch(&self, wait: &mut Wait) {
        if !mem::replace(&mut wait.watched, true)
            && let Some(me) = self.me.upgrade()
        {
            self.driver.bridge().when(&wait.point, me);
        }
    }

    /// Gives the driver what can run. Returns whether it was given anything.
    fn advance(&self, state: &mut State<D>) -> bool {
        let mut handed = false;
        while state.doomed.is_none() && !state.core.is_closing() && !state.calling && !state.telling
        {
            // Signals of ours come before anything behind them: they may fail.
            let unsettled = |flight: &Flight<D>| {
                flight.batch.as_ref().is_some_and(|ends| !ends.signals.is_empty())
            };
            if state.flight.back().is_some_and(unsettled) {
                break;
            }
            let idle = state.flight.is_empty();
            let Some(batch) = state.core.pending.front() else { break };
            let is_call = matches!(batch.steps.front(), Some(Step::Call(_)));
            let mut events = mem::take(&mut state.after);
            let Some(batch) = state.core.pending.front_mut() else { break };
            let readiness = self.look(batch, is_call, &mut events);
            let is_blocked = match readiness {
                Readiness::Blocked => true,
                Readiness::Ready => is_call && !idle,
                Readiness::Failed(_) => false,
            };
            match readiness {
                Readiness::Blocked => {}
                Readiness::Failed(cause) => {
                    let from = state.core.pending.front().map_or(0, |batch| batch.value);
                    state.doom(from, cause);
                }
                Readiness::Ready if is_call && !idle => {}
                Readiness::Ready if is_call => self.call(state),
                Readiness::Ready => {
                    self.hand_over(state, &events);
                    handed = true;
                }
            }
            events.clear();
            state.after = events;
            if is_blocked {
                break;
            }
        }
        if handed {
            // Others may wait for these events: the driver must not keep them for later.
            self.driver.flush(&state.queue);
        }
        handed
    }

    /// Checks the waits of the first pending batch, and tells the bridge of the ones that need it.
    /// Waits that are reached are dropped; `events` are those of the others.
    fn look(&self, batch: &mut Pending<D>, on_host: bool, events: &mut Vec<D::Event>) -> Readiness {
        let (mut failed, mut blocked) = (None, false);
        batch.waits.retain_mut(|wait| {
            match wait.point.status() {
                PointStatus::Reached => return false,
                PointStatus::Failed(cause) => failed = failed.take().or(Some(cause)),
                PointStatus::Pending => {
                    let native = Events::<D::Event>::behind(&wait.point, self.driver.context());
                    match native.filter(|_| !on_host).map(|of| self.find(of, wait)) {
                        Some(Found::Event(event)) => events.push(event),
                        Some(Found::NotYet) | None => {
                            blocked = true;
                            self.watch(wait);
                        }
                    }
                }
            }
            true
        });
        match failed {
            Some(cause) => Readiness::Failed(cause.inherited(&self.info.name, batch.task.as_ref())),
            None if blocked => Readiness::Blocked,
            None => Readiness::Ready,
        }
    }

    fn find(&self, events: &Events<D::Event>, wait: &Wait) -> Found<D::Event> {
        events.find(wait.point.value(), || {
            let me = self.me.upgrade().filter(|_| !wait.watched)?;
            Some(me)
        })
    }

    /// Starts the host function that is the first step of the first pending batch.
    fn call(&self, state: &mut State<D>) {
        let Some(Step::Call(function)) =
            state.core.pending.front_mut().and_then(|batch| batch.steps.pop_front())
        else {
            return;
        };
        state.calling = true;
        let mut caller = lock(&self.caller);
        if caller.is_none() {
            *caller = call::start(&self.info.name, self.info.id(), self.me.clone());
        }
        let sent = caller.as_ref().map(|caller| caller.send(function));
        if !matches!(sent, Some(Ok(()))) {
            state.calling = false;
            let from = state.core.pending.front().map_or(0, |batch| batch.value);
            state.doom(from, self.failed("no thread for host functions"));
        }
    }

    /// A host function has returned.
    pub(super) fn called(&self, result: Result<(), DeviceError>) {
        let mut state = self.lock();
        state.calling = false;
        if let Err(cause) = result {
            let from = state.core.pending.front().map_or(0, |batch| batch.value);
            state.doom(from, cause);
        }
        drop(state);
        self.pump_soon();
    }

    /// The task of the batch whose host function is running.
    pub(super) fn task(&self) -> Option<Arc<str>> {
        self.lock().core.pending.front().and_then(|batch| batch.task.clone())
    }

    /// Gives the driver the first pending batch, up to its next host function.
    fn hand_over(&self, state: &mut State<D>, events: &[D::Event]) {
        let Some(batch) = state.core.pending.front_mut() else { return };
        let after = mem::take(&mut batch.waits);
        let until = batch.steps.iter().position(|step| matches!(step, Step::Call(_)));
        let steps = match until {
            Some(until) => batch.steps.drain(..until).collect(),
            None => mem::take(&mut batch.steps),
        };
        let (value, task) = (batch.value, batch.task.clone());
        let batch = match until {
            Some(_) => None,
            None => state
                .core
                .pending
                .pop_front()
                .map(|batch| Ends { signals: batch.signals, leases: batch.leases }),
        };
        state.ticket_last += 1;
        let ticket = state.ticket_last;
        let mut flight = Flight {
            ticket,
            value,
            batch,
            ended: None,
            refused: None,
            after,
            steps,
            task,
            times: None,
        };
        let is_empty = flight.steps.iter().all(|step| step.ops().next().is_none());
        if is_empty && events.is_empty() && state.flight.is_empty() {
            flight.ended = Some(Ok(()));
        } else {
            self.hand(state, &mut flight, events);
        }
        state.flight.push_back(flight);
    }

    fn hand(&self, state: &mut State<D>, flight: &mut Flight<D>, events: &[D::Event]) {
        let Some(lane) = self.me.upgrade() else { return };
        let ending = Ending { lane, ticket: flight.ticket, waker: self.driver.bridge().waker() };
        let ops = flight.steps.iter().flat_map(Step::ops);
        let notes_times = state.times.is_some();
        // SAFETY: the steps stay in the flight, the flight in the queue, and the leases in either,
        // until the driver has said that it is done; who submitted the batch has ordered it with
        // all that conflicts.
        let handed =
            unsafe { self.driver.hand_over(&state.queue, ops, events, notes_times, ending) };
        let HandedOver { event, refused, has_ended, times } = handed;
        flight.times = times;
        // Other queues wait by themselves only for work that is sure to complete.
        let is_sure = |ends: &Ends| ends.signals.is_empty() && refused.is_none() && !has_ended;
        if let Some(event) = event.filter(|_| flight.batch.as_ref().is_some_and(is_sure)) {
            state.events.hand(flight.value, event, |lane| self.driver.bridge().wake(lane));
        }
        if let Some(message) = refused {
            flight.refused = Some(self.failed(&format!("the driver refuses a command: {message}")));
            state.lost = true;
        }
        if has_ended {
            flight.ended = Some(Ok(()));
        }
    }

    fn failed(&self, message: &str) -> DeviceError {
        DeviceError::Backend { device: self.info.device, message: message.into() }
    }

    /// Has the lane fail, if it is doomed or closes, once the driver has nothing of it. Returns the
    /// batches of which the end is told under no lock.
    fn give_up(&self, state: &mut State<D>) -> Option<GivenUp<D>> {
        if !state.flight.is_empty() || state.calling {
            return None;
        }
        if state.core.is_closing()
            && let Some(me) = self.me.upgrade()
        {
            self.driver.bridge().forget(me);
        }
        let cause = match state.doomed.take() {
            Some(doom) => doom.cause,
            None if state.core.is_closing() && !state.core.pending.is_empty() => {
                state.core.closed()
            }
            None => return None,
        };
        // First it takes no more work: who learns of the failure from the timeline may recover it
        // at once.
        let behind = state.core.poison(&cause);
        let batches = mem::take(&mut state.dead).into_iter().chain(behind).collect();
        let (owner, events) = (state.core.owner().clone(), state.events.clone());
        Some(GivenUp { cause, owner, events, batches })
    }

    fn lock(&self) -> MutexGuard<'_, State<D>> {
        lock(&self.state)
    }
}

impl<D: Driver> Woken for LaneQueue<D> {
    fn wake(self: Arc<Self>) {
        self.pump();
    }
}

/// A lane that has failed, and its batches that will not run.
struct GivenUp<D: Driver> {
    cause: DeviceError,
    owner: Arc<TimelineOwner>,
    events: Arc<Events<D::Event>>,
    batches: Vec<Pending<D>>,
}

impl<D: Driver> GivenUp<D> {
    /// Tells everyone who waits for the lane called `name`.
    fn tell(self, name: &Arc<str>) {
        self.owner.fail(self.cause.clone());
        self.events.abandon();
        for (at, batch) in self.batches.into_iter().enumerate() {
            drop_guarded(batch.leases);
            drop_guarded(batch.steps);
            let cause = match at {
                0 => self.cause.clone(),
                _ => self.cause.inherited(name, batch.task.as_ref()),
            };
            fail_signals(&batch.signals, &cause);
        }
    }
}

/// What a driver calls when commands have ended, once, on any thread.
///
/// It may be called from within a driver's callback, and from within [`Driver::hand_over`]: it only
/// leaves word, and hands its lane to the bridge, so that nothing of the driver's is released
/// there.
pub struct Ending<D: Driver> {
    lane: Arc<LaneQueue<D>>,
    ticket: u64,
    /// Not the bridge itself: its last owner waits for its thread, which the driver's must not do.
    waker: BridgeWaker,
}

impl<D: Driver> Ending<D> {
    /// The commands have ended, well or with what the driver says.
    pub fn end(self, result: Result<(), Arc<str>>) {
        let Ending { lane, ticket, waker } = self;
        lock(&lane.ended).push((ticket, result));
        waker.wake(lane);
    }

    /// Has `ask` give the driver an address for its callback, which passes it to
    /// [`Ending::from_raw`].
    ///
    /// # Safety
    /// `ask` fails only where the driver does not call back.
    pub unsafe fn pass<E>(self, ask: impl FnOnce(*mut c_void) -> Result<(), E>) -> Result<(), E> {
        let data = self.into_raw();
        let asked = ask(data);
        if asked.is_err() {
            // SAFETY: the driver refused, so that the address is used here only.
            drop(unsafe { Self::from_raw(data) });
        }
        asked
    }

    fn into_raw(self) -> *mut c_void {
        let mut room = lock(&self.lane.endings).pop().unwrap_or_default();
        *room = Some(self);
        Box::into_raw(room).cast()
    }

    /// Returns what [`Ending::pass`] made an address of.
    ///
    /// # Safety
    /// The address comes from there, for the same driver, and is passed here once.
    pub unsafe fn from_raw(data: *mut c_void) -> Self {
        // SAFETY: the caller's promise.
        let mut room = unsafe { Box::from_raw(data.cast::<Option<Self>>()) };
        let ending = room.take().expect("passed once");
        keep(&mut lock(&ending.lane.endings), room);
        ending
    }
}

impl<D: Driver> fmt::Debug for Ending<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ending({}, {})", self.lane.info.name, self.ticket)
    }
}
