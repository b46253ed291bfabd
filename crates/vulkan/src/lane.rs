//! Lanes: in-order streams of batches, of which several may share a queue.
//!
//! A batch is handed to the queue as soon as nothing that it waits for needs the host: `README.md` says why that never
//! blocks a queue, and what happens to those that must wait.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use syncline_device::{
    Backend, CommandTime, DeviceError, DeviceSpec, Lane, LaneInfo, Lease, Point, PointStatus,
    Timeline, TimelineOwner, Watch, Work,
};

use crate::bridge::{Bridge, Call, Waker};
use crate::gpu::lock;
use crate::host::HostThread;
use crate::kit::Kit;
use crate::queue::SemaphoreValue;
use crate::record::CommandPool;
use crate::semaphore::Semaphore;
use crate::step::{self, Step};
use crate::times;

/// A handle of a lane. The lane closes with it.
pub(crate) struct VulkanLane(pub(crate) Arc<Core>);

/// The lane itself, which batches in flight hold.
pub(crate) struct Core {
    pub(crate) info: LaneInfo,
    kit: Arc<Kit>,
    /// Which of the device's queues it uses.
    queue: usize,
    commands: Arc<CommandPool>,
    call: Arc<Call>,
    pub(crate) host: HostThread,
    state: Mutex<State>,
    /// Whether it is noted when commands run.
    notes_times: AtomicBool,
    times: Mutex<Vec<CommandTime>>,
    me: Weak<Core>,
}

struct State {
    owner: Arc<TimelineOwner>,
    semaphore: Arc<Semaphore>,
    value_last: u64,
    /// Not handed over yet, in order.
    pending: VecDeque<Box<Batch>>,
    /// On what the first pending batch waits for.
    watches: Vec<Watch>,
    /// Batches handed over and not ended.
    flying: u32,
    /// The batch handed over last ends on the host, or goes on there: nothing may follow yet.
    fenced: bool,
    failed: Option<DeviceError>,
    closing: bool,
}

/// A batch on its way.
pub(crate) struct Batch {
    lane: Arc<Core>,
    owner: Arc<TimelineOwner>,
    semaphore: Arc<Semaphore>,
    value: u64,
    /// Held until the end: the device may be waiting on their semaphores.
    waits: Vec<Point>,
    steps: VecDeque<Step>,
    /// The step under way: what it uses must not go before it ends.
    current: Option<Step>,
    /// Whether it was handed over with `State::fenced`.
    fenced: bool,
    /// Whether it is noted when its commands run.
    timed: bool,
    signals: Vec<Point>,
    task: Option<Arc<str>>,
    leases: Vec<Lease>,
}

/// What stands between a batch and the queue.
enum Readiness {
    /// Nothing but values that are in a queue already.
    Ready(Vec<SemaphoreValue>),
    /// Points that only the host can see.
    Waits(Vec<Point>),
    Failed(DeviceError),
}

impl VulkanLane {
    pub(crate) fn open(
        info: LaneInfo,
        kit: &Arc<Kit>,
        queue: usize,
        bridge: &Arc<Bridge>,
    ) -> Result<Self, DeviceError> {
        let gpu = &kit.gpu;
        let commands = CommandPool::new(gpu, gpu.queues[queue].family)?;
        let (owner, semaphore) = timeline(&info, kit, queue)?;
        let state = State {
            owner,
            semaphore,
            value_last: 0,
            pending: VecDeque::new(),
            watches: Vec::new(),
            flying: 0,
            fenced: false,
            failed: None,
            closing: false,
        };
        Ok(Self(Arc::new_cyclic(|me| Core {
            host: HostThread::new(&info.name),
            info,
            kit: kit.clone(),
            queue,
            commands,
            call: Call::new(me.clone(), bridge),
            state: Mutex::new(state),
            notes_times: AtomicBool::new(false),
            times: Mutex::default(),
            me: me.clone(),
        })))
    }
}

/// A fresh timeline over a fresh semaphore.
fn timeline(
    info: &LaneInfo,
    kit: &Kit,
    queue: usize,
) -> Result<(Arc<TimelineOwner>, Arc<Semaphore>), DeviceError> {
    let semaphore = Semaphore::new(&kit.gpu, queue)?;
    let owner = Timeline::owned(&info.name, 0, Some(semaphore.clone()));
    Ok((Arc::new(owner), semaphore))
}

impl Lane for VulkanLane {
    fn info(&self) -> &LaneInfo {
        &self.0.info
    }

    fn timeline(&self) -> Timeline {
        lock(&self.0.state).owner.timeline().clone()
    }

    fn last(&self) -> Point {
        self.0.last()
    }

    fn can_access(&self, device: DeviceSpec) -> bool {
        device.backend == Backend::Cpu || device == self.0.info.device
    }

    unsafe fn enqueue(&self, work: Work) -> Result<Point, DeviceError> {
        self.0.enqueue(work)
    }

    fn recover(&self) {
        self.0.recover();
    }

    fn close(&self) {
        self.0.close();
    }

    fn note_times(&self, on: bool) -> bool {
        let on = on && self.0.kit.gpu.candidate.limits.tick_ns > 0.0;
        self.0.notes_times.store(on, Ordering::Relaxed);
        on
    }

    fn take_times(&self) -> Vec<CommandTime> {
        std::mem::take(&mut lock(&self.0.times))
    }
}

impl Drop for VulkanLane {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl fmt::Debug for VulkanLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VulkanLane({:?})", self.last())
    }
}

impl Core {
    pub(crate) fn last(&self) -> Point {
        let state = lock(&self.state);
        state.owner.timeline().point(state.value_last)
    }

    fn enqueue(&self, work: Work) -> Result<Point, DeviceError> {
        let Work { mut waits, commands, signals, task, leases } = work;
        // Before commands are compiled, and again after: a lane may fail meanwhile.
        drop(self.lock_open(task.as_ref())?);
        let timed = self.notes_times.load(Ordering::Relaxed);
        let steps = step::prepare(&self.kit, &self.commands, self.info.id(), commands, timed)?;
        let mut state = self.lock_open(task.as_ref())?;
        self.drop_own_waits(&state, &mut waits)?;
        state.value_last += 1;
        let value = state.value_last;
        let point = state.owner.timeline().point(value);
        let lane = self.me.upgrade().expect("a lane that is in use is alive");
        let batch = Batch {
            lane,
            owner: state.owner.clone(),
            semaphore: state.semaphore.clone(),
            value,
            waits,
            steps,
            current: None,
            fenced: false,
            timed,
            signals,
            task,
            leases,
        };
        state.pending.push_back(Box::new(batch));
        self.hand_over(state);
        Ok(point)
    }

    /// The state of a lane that takes work.
    fn lock_open(&self, task: Option<&Arc<str>>) -> Result<MutexGuard<'_, State>, DeviceError> {
        let state = lock(&self.state);
        if state.closing {
            return Err(self.closed());
        }
        if let Some(cause) = &state.failed {
            return Err(cause.inherited(&self.info.name, task));
        }
        Ok(state)
    }

    fn closed(&self) -> DeviceError {
        DeviceError::Closed { lane: self.info.name.clone() }
    }

    /// Batches of one lane run in order: waits for earlier ones say nothing, one for a later one could never end.
    fn drop_own_waits(&self, state: &State, waits: &mut Vec<Point>) -> Result<(), DeviceError> {
        let own = state.owner.timeline().id();
        let latest =
            waits.iter().filter(|wait| wait.timeline().id() == own).map(Point::value).max();
        if let Some(value) = latest.filter(|&value| value > state.value_last) {
            let (lane, current) = (self.info.name.clone(), state.value_last);
            return Err(DeviceError::WaitsForItself { lane, current, value });
        }
        waits.retain(|wait| wait.timeline().id() != own);
        Ok(())
    }

    /// Looks again whether pending batches can be handed over.
    pub(crate) fn pump(&self) {
        self.hand_over(lock(&self.state));
    }

    /// Hands over pending batches, as many as can be.
    fn hand_over(&self, mut state: MutexGuard<'_, State>) {
        loop {
            if state.fenced {
                return;
            }
            let Some(front) = state.pending.front() else { return };
            let readiness = match state.closing {
                true => Readiness::Failed(self.closed()),
                false => self.readiness(front),
            };
            let cause = match readiness {
                Readiness::Waits(points) => match self.watch(&mut state, points) {
                    true => continue,
                    false => return,
                },
                // What is in flight ends first: a lane fails in the order of its batches.
                Readiness::Failed(_) if state.flying > 0 => return,
                Readiness::Failed(cause) => cause,
                Readiness::Ready(waits) => {
                    state.watches.clear();
                    let batch = state.pending.pop_front().expect("it was the first");
                    state.flying += 1;
                    match self.start_step(&mut state, batch, &waits) {
                        Ok(()) => continue,
                        Err((batch, cause)) => {
                            drop(state);
                            return self.fail(batch, cause);
                        }
                    }
                }
            };
            let batch = state.pending.pop_front().expect("it was the first");
            state.flying += 1;
            drop(state);
            return self.fail(batch, cause);
        }
    }

    fn readiness(&self, batch: &Batch) -> Readiness {
        let mut device_waits = Vec::new();
        let mut host_waits = Vec::new();
        for point in &batch.waits {
            let status = point.status();
            if let PointStatus::Failed(cause) = status {
                return Readiness::Failed(cause.inherited(&self.info.name, batch.task.as_ref()));
            }
            match self.semaphore_of(point) {
                Some(semaphore) if semaphore.submitted() >= point.value() => {
                    // What is in the same queue comes before; for another one the device waits, also where the value
                    // was reached long ago: the wait makes that queue's writes visible in this one.
                    if semaphore.queue != self.queue {
                        device_waits.push((semaphore.raw, point.value()));
                    }
                }
                _ if status == PointStatus::Pending => host_waits.push(point.clone()),
                _ => {}
            }
        }
        match host_waits.is_empty() {
            true => Readiness::Ready(device_waits),
            false => Readiness::Waits(host_waits),
        }
    }

    /// The semaphore behind `point`, if it belongs to this device.
    fn semaphore_of<'p>(&self, point: &'p Point) -> Option<&'p Semaphore> {
        let semaphore = point.timeline().native()?.downcast_ref::<Semaphore>()?;
        Arc::ptr_eq(&semaphore.gpu, &self.kit.gpu).then_some(semaphore)
    }

    /// Sees to it that the bridge looks at this lane when one of `points` changes; `true` if one has already.
    fn watch(&self, state: &mut State, points: Vec<Point>) -> bool {
        // Those of an earlier look that are awaited still are kept.
        let same = state.watches.len() == points.len()
            && state.watches.iter().zip(&points).all(|(watch, point)| watch.point() == point);
        if !same {
            let waker = Arc::new(Waker(self.call.clone()));
            state.watches = points.iter().map(|point| point.watch(waker.clone())).collect();
        }
        let changed =
            state.watches.iter().map(Watch::look).any(|status| status != PointStatus::Pending);
        // Work of this device need not complete: once it is in a queue, the device can do the waiting.
        let in_queue = |point: &Point| match self.semaphore_of(point) {
            Some(semaphore) => semaphore.call_when_submitted(point.value(), &self.call),
            None => false,
        };
        points.iter().any(in_queue) || changed
    }

    /// Begins the next step of `batch`, or its end where there is none.
    fn start_step(
        &self,
        state: &mut State,
        mut batch: Box<Batch>,
        waits: &[SemaphoreValue],
    ) -> Result<(), (Box<Batch>, DeviceError)> {
        batch.current = batch.steps.pop_front();
        let commands: Vec<_> = match &batch.current {
            Some(Step::Host(..) | Step::Call(..)) => {
                (state.fenced, batch.fenced) = (true, true);
                return self.host.send(self.info.device, batch);
            }
            Some(Step::Device(recorded)) => {
                recorded.iter().map(|(_, recorded)| recorded.raw).collect()
            }
            None => Vec::new(),
        };
        let is_last = batch.steps.is_empty();
        let signal = is_last.then_some((batch.semaphore.raw, batch.value));
        // A signal of a timeline of the host's can fail, and with it the batch: what comes behind must not run then. Nor
        // may the next run of a recording write its times where those of this one have not been read.
        let fenced = !is_last || !batch.signals.is_empty() || batch.timed;
        let (value, semaphore) = (batch.value, batch.semaphore.clone());
        batch.fenced |= fenced;
        let queue = &self.kit.gpu.queues[self.queue];
        // SAFETY: the batch holds the commands, the semaphores and, by its leases, the buffers; it is the passenger. By
        // `readiness`, all that it waits for is in a queue.
        let submitted =
            unsafe { queue.submit(&self.kit.gpu, &commands, waits, signal, Some(batch)) };
        match submitted {
            Ok(()) => {
                state.fenced |= fenced;
                if is_last && !fenced {
                    semaphore.note_submitted(value);
                }
                Ok(())
            }
            Err(refused) => Err((refused.passenger.expect("a batch was given"), refused.cause)),
        }
    }

    /// Ends a batch that has completed: leases, then signals, then the lane's own timeline.
    fn complete(&self, mut batch: Box<Batch>, by_host: bool) {
        batch.leases.clear();
        let result = batch
            .signals
            .iter()
            .try_for_each(|point| point.timeline().signal(point.value()))
            .and_then(|()| match by_host {
                true => batch.semaphore.signal(batch.value),
                false => Ok(()),
            });
        if let Err(cause) = result {
            return self.fail(batch, cause);
        }
        if batch.fenced {
            batch.semaphore.note_submitted(batch.value);
        }
        batch.owner.signal(batch.value).expect("values of one lane grow, and only it can fail");
        let mut state = lock(&self.state);
        state.flying -= 1;
        if batch.fenced {
            state.fenced = false;
        }
        if !state.pending.is_empty() && (batch.fenced || state.flying == 0) {
            self.hand_over(state);
        }
    }

    /// Goes on with a batch whose step has ended.
    fn go_on(&self, mut batch: Box<Batch>) {
        batch.current = None;
        let mut state = lock(&self.state);
        let result = match state.closing {
            true => Err((batch, self.closed())),
            false => self.start_step(&mut state, batch, &[]),
        };
        drop(state);
        if let Err((batch, cause)) = result {
            self.fail(batch, cause);
        }
    }

    /// Fails the lane by a batch that was handed over, and gives up what is behind it.
    fn fail(&self, mut batch: Box<Batch>, cause: DeviceError) {
        let behind = {
            let mut state = lock(&self.state);
            state.flying -= 1;
            if batch.fenced {
                state.fenced = false;
            }
            // A batch of a timeline that was given up before, by a device that is lost, fails nothing new.
            let is_current = Arc::ptr_eq(&state.owner, &batch.owner);
            if is_current {
                state.failed.get_or_insert_with(|| cause.clone());
                state.watches.clear();
                std::mem::take(&mut state.pending)
            } else {
                VecDeque::new()
            }
        };
        // The state first: who learns of the failure from the timeline may recover the lane at once. The timeline before
        // the leases: who waits for a buffer must find the failure when it gets there.
        batch.owner.fail(cause.clone());
        batch.leases.clear();
        batch.fail_signals(&cause);
        for mut batch in behind {
            batch.leases.clear();
            let cause = cause.inherited(&self.info.name, batch.task.as_ref());
            batch.fail_signals(&cause);
        }
        self.pump();
    }

    fn recover(&self) {
        let mut state = lock(&self.state);
        if state.failed.is_none() {
            return;
        }
        match timeline(&self.info, &self.kit, self.queue) {
            Ok((owner, semaphore)) => {
                state.failed = None;
                (state.owner, state.semaphore, state.value_last) = (owner, semaphore, 0);
            }
            // Still failed, and for this reason.
            Err(cause) => state.failed = Some(cause),
        }
    }

    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        if !std::mem::replace(&mut state.closing, true) {
            self.hand_over(state);
        }
    }
}

impl Batch {
    /// The device is done with what was submitted, or lost.
    pub(crate) fn landed(self: Box<Self>, result: Result<(), DeviceError>) {
        let lane = self.lane.clone();
        if let (true, Ok(()), Some(Step::Device(recorded))) = (self.timed, &result, &self.current) {
            let mut times = lock(&lane.times);
            for (base, recorded) in recorded {
                if let Some(stamps) = &recorded.stamps {
                    stamps.read(self.value, *base, &mut times);
                }
            }
        }
        match result {
            Err(cause) => lane.fail(self, cause),
            Ok(()) if self.steps.is_empty() => lane.complete(self, false),
            Ok(()) => lane.go_on(self),
        }
    }

    /// The host is done with its step.
    pub(crate) fn host_done(self: Box<Self>, result: Result<(), DeviceError>) {
        let lane = self.lane.clone();
        match result {
            Err(cause) => lane.fail(self, cause),
            Ok(()) if self.steps.is_empty() => lane.complete(self, true),
            Ok(()) => lane.go_on(self),
        }
    }

    pub(crate) fn take_step(&mut self) -> Option<Step> {
        self.current.take()
    }

    /// Notes when a command ran that the host did, if that is wanted.
    pub(crate) fn note_time(&self, command: u32, began: Instant) {
        if self.timed {
            let time = CommandTime { value: self.value, command, began, ended: Instant::now() };
            times::note(&mut lock(&self.lane.times), time);
        }
    }

    pub(crate) fn task(&self) -> Option<&Arc<str>> {
        self.task.as_ref()
    }

    fn fail_signals(&self, cause: &DeviceError) {
        for point in &self.signals {
            // Checked at submission: no lane owns these.
            let _ = point.timeline().fail(cause.clone());
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Core({})", self.info.name)
    }
}
