//! Bound plans: running a loaded plan on the memory bound to it, one run after the other or several
//! at a time.

use std::sync::Arc;
use std::time::Instant;

use syncline_device::{CancelToken, Deadline, Wake};
use syncline_plan::{CostModel, LaneIndex, OpKind};

use syncline_sync::shim::Ordering;

use super::bind::Claims;
use super::crew::Waiter;
use super::device_run::DeviceRun;
use super::error::{LoadError, RunError};
use super::lane::Awaits;
use super::load::LoadedPlan;
use super::run::OpTime;
use super::shared::{RUNS_MAX, RunMode, Shared};
use super::stop::Why;

/// The token that stops the runs of a loaded plan.
#[derive(Debug)]
pub(super) struct Cancel {
    token: CancelToken,
    /// What the token wakes, for as long as this lives.
    _stopper: Arc<Stopper>,
}

impl Cancel {
    pub(super) fn new(token: &CancelToken, shared: &Arc<Shared>) -> Self {
        let stopper = Arc::new(Stopper(Arc::clone(shared)));
        token.watch(&stopper);
        Self { token: token.clone(), _stopper: stopper }
    }
}

#[derive(Debug)]
struct Stopper(Arc<Shared>);

impl Wake for Stopper {
    fn wake(&self) {
        // There is no run number zero: all that are under way come after it.
        self.0.stop.lower(0, Why::Cancelled);
    }
}

/// A loaded plan with memory bound to it, to be run any number of times.
///
/// While it lives, the host and other work keep off what the plan writes. Dropping it waits for the
/// runs that were started.
#[derive(Debug)]
pub struct BoundPlan<'a> {
    pub(super) plan: &'a mut LoadedPlan,
    pub(super) _claims: Claims<'a>,
}

impl BoundPlan<'_> {
    /// How many runs may be under way at a time.
    pub const RUNS_MAX: u64 = RUNS_MAX;

    /// Runs the plan once and returns when all of it is done. Waits for runs that were started.
    pub fn run(&mut self) -> Result<(), RunError> {
        self.run_until(Deadline::NEVER)
    }

    /// As [`BoundPlan::run`]; no body begins after `deadline`, and runs that were started are
    /// waited for no longer.
    ///
    /// Returns once the bodies that are running have ended. The error [`RunError::DeadlinePassed`]
    /// means that some body did not begin; a run whose last body began in time is complete.
    ///
    /// On lanes of devices a batch of ops counts as one body, and each costs a call of the host.
    pub fn run_until(&mut self, deadline: Deadline) -> Result<(), RunError> {
        self.plan.run_bound(deadline, false)
    }

    /// As [`BoundPlan::run`], and notes when each op ran; see [`LoadedPlan::times`].
    pub fn run_timed(&mut self) -> Result<(), RunError> {
        self.plan.run_bound(Deadline::NEVER, true)
    }

    /// Starts a run and returns. It begins where its data allow, while earlier runs are still under
    /// way: what it reads and writes is as if it came after them.
    ///
    /// Up to [`BoundPlan::RUNS_MAX`] runs are under way at a time; starting another waits for the
    /// first of them. Workers run them.
    ///
    /// If a run fails, is cancelled or passes its deadline, the runs before it are not touched.
    /// Those that were started after it end, too, with the same error, unless all their bodies had
    /// begun; runs started after those are as any.
    ///
    /// A plan with lanes on devices other than the CPU has come to its end when this returns: its
    /// batches are queued by the thread that calls, and its runs do not overlap.
    ///
    /// # Errors
    /// The waits between runs are not safe, where that is checked.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use syncline_tensor::{Arg, Dtype, View};
    /// use syncline_device::cpu::CpuDevice;
    /// use syncline_plan::{
    ///     BufferSpec, CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskSpec,
    /// };
    /// use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};
    ///
    /// let mut graph = TaskGraph::new();
    /// let x = graph.add_buffer(BufferSpec::external("x", 4))?;
    /// let view = View::contiguous(Dtype::U32, &[1])?;
    /// graph.submit(&TaskSpec::new("increment", &[Arg::inout(x, view)]))?;
    /// let plan = ExecutionPlan::compile(&graph, &Machine::cpu(2), &CompileOptions::default())?;
    /// let device = CpuDevice::open_default()?;
    /// let mut loaded = LoadedPlan::load(Arc::new(plan), &[device.clone()], |_, _| {
    ///     Some(TaskBody::new(|args| args.open().slice_mut::<u32>(0).map(|x| x[0] += 1)))
    /// })?;
    /// let buffer = device.buffer(4);
    /// buffer.write(0, &[0u32])?;
    /// let bindings = Bindings::new().bind("x", &buffer);
    /// let mut bound = loaded.bind(&bindings)?;
    /// let tickets = [bound.start()?, bound.start()?, bound.start()?];
    /// for ticket in tickets {
    ///     ticket.wait()?;
    /// }
    /// drop(bound);
    /// assert_eq!(buffer.read::<u32>(0, 1)?, [3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start(&mut self) -> Result<RunTicket, LoadError> {
        self.start_until(Deadline::NEVER)
    }

    /// As [`BoundPlan::start`]; no body of this run begins after `deadline`. If the deadline passes
    /// while earlier runs leave no room, or while the runs that a failure stopped end,
    /// the run does not begin, and its ticket says so.
    pub fn start_until(&mut self, deadline: Deadline) -> Result<RunTicket, LoadError> {
        self.plan.start_bound(deadline)
    }

    /// As [`LoadedPlan::set_cancel`].
    pub fn set_cancel(&mut self, token: &CancelToken) {
        self.plan.set_cancel(token);
    }

    /// Adds what the last timed run took to `costs`, for the next plan to be better.
    pub fn observe(&mut self, costs: &mut CostModel) {
        self.plan.observe(costs);
    }
}

impl Drop for BoundPlan<'_> {
    fn drop(&mut self) {
        // Before the claims are let go of.
        self.plan.wait_for_all();
        self.plan.leave_workers();
    }
}

/// A run that was started. Dropping it leaves the run alone.
#[derive(Debug)]
pub struct RunTicket {
    shared: Arc<Shared>,
    /// `None` if its deadline passed before the run could begin.
    number: Option<u64>,
}

impl RunTicket {
    fn new(shared: &Arc<Shared>, number: Option<u64>) -> Self {
        shared.stop.tickets.fetch_add(1, Ordering::AcqRel);
        Self { shared: Arc::clone(shared), number }
    }

    /// Waits for the end of the run.
    pub fn wait(self) -> Result<(), RunError> {
        let number = self.number.ok_or(RunError::DeadlinePassed)?;
        self.shared.wait_for_end(number);
        self.shared.outcome(number)
    }

    /// Whether the run has ended.
    pub fn has_ended(&self) -> bool {
        self.number.is_none_or(|number| self.shared.has_ended(number))
    }
}

impl Drop for RunTicket {
    fn drop(&mut self) {
        self.shared.stop.tickets.fetch_sub(1, Ordering::AcqRel);
    }
}

impl LoadedPlan {
    fn run_bound(&mut self, deadline: Deadline, is_timed: bool) -> Result<(), RunError> {
        if !self.wait_for_all_until(deadline) {
            return Err(RunError::DeadlinePassed);
        }
        let number = self.begin(deadline, is_timed);
        let asks = !is_timed && (deadline != Deadline::NEVER || self.cancel.is_some());
        let shared = &*self.shared;
        // SAFETY: `&mut self`, and all runs before have ended; buffers are bound, and stay claimed
        // until this returns.
        let devices = unsafe {
            DeviceRun::begin(
                shared,
                self.device_lanes.as_ref(),
                number,
                asks.then_some(&self.shared),
            )
        };
        shared.apart.note(self.own_lane);
        shared.started.raise(number);
        shared.published(false);
        run_own_lane(shared, self.own_lane, &mut self.has_own_lane, deadline);
        let has_ended = || shared.has_ended(number);
        if devices.is_some() && !shared.attend(true, deadline, has_ended) {
            // Lanes that wait for devices give up at the deadline, too.
            shared.wake();
        }
        shared.attend(true, Deadline::NEVER, has_ended);
        if let Some(run) = devices {
            // SAFETY: all lanes that are threads have come to their ends.
            unsafe { run.end() };
        }
        self.last_ended = number;
        self.shared.outcome(number)
    }

    fn start_bound(&mut self, deadline: Deadline) -> Result<RunTicket, LoadError> {
        if self.device_lanes.is_some() {
            let ticket = RunTicket::new(&self.shared, Some(self.last_run + 1));
            // What it came to is kept for the ticket.
            let _ = self.run_bound(deadline, false);
            return Ok(ticket);
        }
        // Before the first run that overlaps all must have ended; later there must be a slot.
        let before =
            if self.overlaps { self.last_run.saturating_sub(RUNS_MAX - 1) } else { self.last_run };
        if before > self.last_ended && !self.shared.wait_for_end_until(before, deadline) {
            return Ok(RunTicket::new(&self.shared, None));
        }
        // Runs go on after a stop when all that it stopped have ended.
        if self.shared.stop.is_set() && !self.wait_for_all_until(deadline) {
            return Ok(RunTicket::new(&self.shared, None));
        }
        self.allow_overlap()?;
        let number = self.begin(deadline, false);
        let ticket = RunTicket::new(&self.shared, Some(number));
        self.give_up_own_lane();
        self.shared.started.raise(number);
        self.shared.published(false);
        Ok(ticket)
    }

    /// Leaves the caller's lane to whoever comes.
    pub(super) fn give_up_own_lane(&mut self) {
        let runs = self.shared.crew_of[self.own_lane].is_some();
        if runs && std::mem::take(&mut self.has_own_lane) {
            // SAFETY: it was kept, and has not been given up since.
            let mut held = unsafe { self.shared.seats[self.own_lane].resume() };
            let next = held.run + 1;
            held.set_awaits(Awaits::Run(next));
            self.shared.give_up(held);
        }
    }

    /// Has the workers serve this plan, while memory is bound to it.
    pub(super) fn join_workers(&mut self) {
        if self.served.is_empty() {
            let sources = self.sources.iter();
            let served = sources.map(|(workers, source)| workers.serve(source.clone()));
            self.served.extend(served);
        }
    }

    /// Waits until no worker is in the middle of a turn at this plan.
    pub(super) fn leave_workers(&mut self) {
        self.served.clear();
    }

    /// Everything that comes before a run; returns its number.
    fn begin(&mut self, deadline: Deadline, is_timed: bool) -> u64 {
        let number = self.last_run + 1;
        let shared = &*self.shared;
        if self.last_ended + RUNS_MAX < number {
            shared.wait_for_end(number - RUNS_MAX);
            self.last_ended = number - RUNS_MAX;
        }
        // After that wait: a run that left out bodies is noted before its slot is used again. A
        // stop that comes while runs are under way stops this one, too.
        if self.last_ended == self.last_run && shared.stop.is_set() {
            self.clear_stop();
        }
        let shared = &*self.shared;
        // After that: a cancel before it was seen here, and one after it stops the run itself.
        if self.cancel.as_ref().is_some_and(|cancel| cancel.token.is_cancelled()) {
            shared.stop.lower(number, Why::Cancelled);
        }
        // Reading the clock costs as much as several bodies.
        let began = if is_timed { Instant::now() } else { self.loaded_at };
        let binder = std::thread::current().id();
        // SAFETY: `&mut self`, the run has not begun, and the one whose place it takes has ended.
        unsafe { shared.set_mode(RunMode { number, deadline, is_timed, binder, began }) };
        if let Some(board) = shared.board() {
            board.begin(number);
        }
        self.last_run = number;
        number
    }

    /// Lets runs go on after a stop, when all before have ended.
    #[cold]
    fn clear_stop(&mut self) {
        let under_way = self.last_run.saturating_sub(RUNS_MAX) + 1..=self.last_run;
        let first = under_way.into_iter().find(|&number| self.shared.has_skipped(number));
        // Who left out a body did so in all runs after that.
        self.shared.stop.clear(first.map(|first| (first, self.last_run)));
    }

    /// Waits for the end of every run that was started.
    #[inline]
    pub(super) fn wait_for_all(&mut self) {
        self.wait_for_all_until(Deadline::NEVER);
    }

    /// As [`LoadedPlan::wait_for_all`], until the deadline at most. Returns `false` if it passed
    /// first.
    #[inline]
    pub(super) fn wait_for_all_until(&mut self, deadline: Deadline) -> bool {
        if self.last_ended < self.last_run {
            if !self.shared.wait_for_end_until(self.last_run, deadline) {
                return false;
            }
            self.last_ended = self.last_run;
        }
        true
    }

    /// Makes the next runs begin before the ones before have ended, if they do not yet.
    fn allow_overlap(&mut self) -> Result<(), LoadError> {
        if self.overlaps {
            return Ok(());
        }
        self.wait_for_all();
        if self.shared.board().is_none() {
            self.route_between_runs()?;
        }
        self.overlaps = true;
        Ok(())
    }

    /// When each op ran in the last timed run; zero before there was one. By number of op.
    pub fn times(&mut self) -> Vec<OpTime> {
        self.wait_for_all();
        let lanes = self.shared.lanes.iter();
        lanes
            // SAFETY: `&mut self`: no run is under way, and this is the owner.
            .flat_map(|lane| (0..lane.ops()).map(|at| unsafe { lane.time(at) }))
            .collect()
    }

    /// Returns `true` if idle lanes take ops of busy ones. The plan's [`op_deps`] then decide what
    /// an op comes after, and the order on its lane does not.
    ///
    /// [`op_deps`]: syncline_plan::ExecutionPlan::op_deps
    pub fn steals(&self) -> bool {
        self.shared.board().is_some()
    }

    /// The lane that ran each op in the last timed run: its own in the plan, or one that was idle.
    /// By number of op.
    pub fn ran_on(&mut self) -> Vec<LaneIndex> {
        let ran_on = self.shared.ran_on.iter();
        ran_on.map(|lane| LaneIndex(lane.load(Ordering::Relaxed))).collect()
    }

    /// Adds what the last timed run took to `costs`.
    pub fn observe(&mut self, costs: &mut CostModel) {
        let times = self.times();
        let plan = Arc::clone(&self.plan);
        for (op, time) in plan.ops().iter().zip(times) {
            if let OpKind::Task(task) = op.kind
                && time.end_ns > 0
            {
                let info = plan.task(task);
                let device = &plan.machine().devices()[plan.device_of(task).index()].name;
                let bytes = info.args().map(|arg| arg.view.bytes()).fold(0, u64::saturating_add);
                costs.observe(info.kernel(), device, bytes, time.end_ns - time.start_ns);
            }
        }
    }
}

/// Runs the caller's lane in a run that was begun, as far as it gets. `is_own` says whether the
/// caller has the lane, before and after.
fn run_own_lane(shared: &Shared, lane: usize, is_own: &mut bool, deadline: Deadline) {
    // Where lanes steal, the caller takes any, and leaves it where it finds no more.
    if shared.lanes[lane].steps.is_empty() || shared.board().is_some() {
        return;
    }
    let seat = &shared.seats[lane];
    let mut held = match *is_own {
        // SAFETY: it was kept when the plan was loaded, or below, and not given up since.
        true => unsafe { seat.resume() },
        false => match seat.take() {
            Some(held) => {
                shared.unattended.fetch_sub(1, Ordering::SeqCst);
                held
            }
            None => return,
        },
    };
    shared.advance(&mut Waiter::new(deadline), lane, &mut held);
    *is_own = !held.is_inside;
    match *is_own {
        true => held.keep(),
        false => shared.give_up(held),
    }
}
