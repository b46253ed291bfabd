//! Lanes: in-order streams of batches, of which several may share a queue.
//!
//! A batch is handed to the queue as soon as nothing that it waits for needs the host: `README.md`
//! says why that never blocks a queue, and what happens to batches that must wait.

mod batch;

use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use ash::vk;
pub(crate) use batch::Batch;
use batch::{Room, vacate};
use syncline_backend::{Bridge, BridgeWaker, Woken};
use syncline_device::{
    Backend, CommandTime, DeviceError, DeviceSpec, Lane, LaneCore, LaneInfo, Point, PointStatus,
    Timeline, TimelineOwner, Work, fail_signals,
};

use crate::host::HostThread;
use crate::kit::Kit;
use crate::queue::SemaphoreValue;
use crate::record::CommandPool;
use crate::semaphore::Semaphore;
use crate::step::{self, Step};
use syncline_sync::lock;

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
    bridge: Arc<Bridge>,
    pub(crate) host: HostThread,
    state: Mutex<State>,
    /// Whether it is noted when commands run.
    notes_times: AtomicBool,
    times: Mutex<Vec<CommandTime>>,
    me: Weak<Core>,
}

struct State {
    /// Its pending batches have not been handed over.
    core: LaneCore<Box<Batch>>,
    semaphore: Arc<Semaphore>,
    /// Memory for batches to come.
    rooms: Vec<Room>,
    /// Batches that there is room for in the queue.
    reserved: usize,
    /// Kept empty, for the memory that they have: what a submission names.
    commands: Vec<vk::CommandBuffer>,
    device_waits: Vec<SemaphoreValue>,
    /// Batches handed over and not ended.
    flying: u32,
    /// The batch handed over last ends on the host, or goes on there: nothing may follow yet.
    fenced: bool,
    /// Why the first pending batch will never be handed over: the driver refused it.
    doomed: Option<DeviceError>,
}

/// What stands between a batch and the queue.
enum Readiness {
    /// Nothing but values that are in a queue already.
    Ready,
    /// Points that only the host can see, of which the bridge was told.
    Blocked,
    Failed(DeviceError),
}

/// How the bridge and other lanes reach a lane. It does not keep the lane: the last handle of one
/// must not be dropped by a thread that signals.
pub(crate) struct Call {
    lane: Weak<Core>,
    waker: BridgeWaker,
}

impl Call {
    /// Has the bridge advance the lane soon.
    pub(crate) fn request(self: &Arc<Self>) {
        self.waker.wake(self.clone());
    }
}

impl Woken for Call {
    fn wake(self: Arc<Self>) {
        self.lane.upgrade().inspect(|lane| lane.pump());
    }
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
        let (owner, semaphore) = timeline(&info.name, kit, queue)?;
        let state = State {
            core: LaneCore::new(&info.name, owner),
            semaphore,
            rooms: Vec::new(),
            reserved: 0,
            commands: Vec::new(),
            device_waits: Vec::new(),
            flying: 0,
            fenced: false,
            doomed: None,
        };
        Ok(Self(Arc::new_cyclic(|me| Core {
            host: HostThread::new(&info.name),
            info,
            kit: kit.clone(),
            queue,
            commands,
            call: Arc::new(Call { lane: me.clone(), waker: bridge.waker() }),
            bridge: bridge.clone(),
            state: Mutex::new(state),
            notes_times: AtomicBool::new(false),
            times: Mutex::default(),
            me: me.clone(),
        })))
    }
}

/// A fresh timeline over a fresh semaphore.
fn timeline(
    name: &Arc<str>,
    kit: &Kit,
    queue: usize,
) -> Result<(TimelineOwner, Arc<Semaphore>), DeviceError> {
    let semaphore = Semaphore::new(&kit.gpu, queue)?;
    let owner = Timeline::owned(name, 0, Some(semaphore.clone()));
    Ok((owner, semaphore))
}

// SAFETY: steps are submitted in order, each after its waits and the one before; `can_access`
// checks the device.
unsafe impl Lane for VulkanLane {
    fn info(&self) -> &LaneInfo {
        &self.0.info
    }

    fn timeline(&self) -> Timeline {
        self.0.last().timeline().clone()
    }

    fn last(&self) -> Point {
        self.0.last()
    }

    fn can_access(&self, device: DeviceSpec) -> bool {
        device.backend == Backend::Cpu || device == self.0.info.device
    }

    unsafe fn enqueue(&self, work: &mut Work) -> Result<Point, DeviceError> {
        self.0.enqueue(work)
    }

    fn recover(&self) {
        self.0.recover();
    }

    fn close(&self) {
        self.0.close();
    }

    fn reserve(&self, batches: usize, waits: usize, buffers: usize) {
        self.0.reserve(batches, waits, buffers);
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
        lock(&self.state).core.last()
    }

    /// Makes room for `batches` batches, and for two more: the reaper and the host thread may be
    /// about to give one back when a thread that waited for it submits the next.
    fn reserve(&self, batches: usize, waits: usize, buffers: usize) {
        let batches = batches + 2;
        self.info.spares.reserve(batches, waits, buffers);
        self.host.reserve(batches);
        let mut state = lock(&self.state);
        let more = batches.saturating_sub(state.reserved);
        state.reserved += more;
        self.kit.gpu.queues[self.queue].reserve(more, waits);
        let (pending, rooms) = (state.core.pending.len(), state.rooms.len());
        state.core.pending.reserve(batches.saturating_sub(pending));
        state.rooms.reserve_exact(batches.saturating_sub(rooms));
        state.device_waits.reserve(waits);
        while state.rooms.len() < batches {
            state.rooms.push(Box::new_uninit());
        }
    }

    fn enqueue(&self, work: &mut Work) -> Result<Point, DeviceError> {
        // Before commands are compiled, and again after: a lane may fail meanwhile.
        lock(&self.state).core.check_open(work.task.as_ref())?;
        let timed = self.notes_times.load(Ordering::Relaxed);
        let (id, commands) = (self.info.id(), &mut work.commands);
        let steps = step::prepare(&self.kit, &self.commands, id, commands, timed)?;
        let mut state = lock(&self.state);
        let point = match state.core.admit(&mut work.waits, work.task.as_ref()) {
            Ok(point) => point,
            Err(cause) => {
                steps.give_back(&mut work.commands);
                return Err(cause);
            }
        };
        let lane = self.me.upgrade().expect("a lane that is in use is alive");
        let batch = Batch {
            lane,
            owner: state.core.owner().clone(),
            semaphore: state.semaphore.clone(),
            value: point.value(),
            waits: std::mem::take(&mut work.waits),
            watched: false,
            steps,
            current: None,
            fenced: false,
            timed,
            signals: std::mem::take(&mut work.signals),
            task: work.task.take(),
            leases: std::mem::take(&mut work.leases),
        };
        let batch = match state.rooms.pop() {
            Some(room) => Box::write(room, batch),
            None => Box::new(batch),
        };
        state.core.pending.push_back(batch);
        // The caller holds locks, and who learns of a failure is user code: the bridge tells.
        if self.hand_over(&mut state).is_break() {
            drop(state);
            self.call.request();
        }
        Ok(point)
    }

    /// Checks again whether pending batches can be handed over. Called under no lock.
    pub(crate) fn pump(&self) {
        self.pump_locked(lock(&self.state));
    }

    fn pump_locked(&self, mut state: MutexGuard<'_, State>) {
        let ControlFlow::Break(cause) = self.hand_over(&mut state) else { return };
        state.doomed = None;
        let batch = state.core.pending.pop_front().expect("the one that fails");
        state.flying += 1;
        drop(state);
        self.fail(batch, cause);
    }

    /// Hands over pending batches, as many as can be. Breaks off with the cause where the first one
    /// fails, in its turn.
    fn hand_over(&self, state: &mut State) -> ControlFlow<DeviceError> {
        loop {
            if state.fenced {
                return ControlFlow::Continue(());
            }
            let (fate, closing, flying) =
                (state.doomed.clone(), state.core.is_closing(), state.flying > 0);
            let Some(front) = state.core.pending.front() else {
                return ControlFlow::Continue(());
            };
            // The host cannot wait in a queue: what it does comes when all before it has ended.
            if flying && front.begins_on_host() {
                return ControlFlow::Continue(());
            }
            let mut waits = std::mem::take(&mut state.device_waits);
            let front = state.core.pending.front_mut().expect("it is the first");
            let readiness = match (fate, closing) {
                (Some(cause), _) => Readiness::Failed(cause),
                (None, true) => Readiness::Failed(state.core.closed()),
                (None, false) => self.readiness(front, &mut waits),
            };
            if !matches!(readiness, Readiness::Ready) {
                waits.clear();
                state.device_waits = std::mem::take(&mut waits);
            }
            match readiness {
                Readiness::Blocked => return ControlFlow::Continue(()),
                // Batches in flight end first: a lane fails in the order of its batches.
                Readiness::Failed(_) if state.flying > 0 => return ControlFlow::Continue(()),
                Readiness::Failed(cause) => return ControlFlow::Break(cause),
                Readiness::Ready => {
                    let batch = state.core.pending.pop_front().expect("it was the first");
                    state.flying += 1;
                    let started = self.start_step(state, batch, &waits);
                    waits.clear();
                    state.device_waits = waits;
                    if let Err((batch, cause)) = started {
                        // It fails in its turn: batches before it may be running.
                        state.flying -= 1;
                        state.core.pending.push_front(batch);
                        state.doomed = Some(cause);
                    }
                }
            }
        }
    }

    /// Checks what `batch` waits for, and tells the bridge of what it has to see to.
    fn readiness(&self, batch: &mut Batch, device_waits: &mut Vec<SemaphoreValue>) -> Readiness {
        let (by_host, mut blocked) = (batch.begins_on_host(), false);
        for wait in &batch.waits {
            let status = wait.status();
            if let PointStatus::Failed(cause) = status {
                return Readiness::Failed(cause.inherited(&self.info.name, batch.task.as_ref()));
            }
            let semaphore = self.semaphore_of(wait).filter(|_| !by_host);
            match semaphore.filter(|of| of.is_submitted(wait.value(), &self.call)) {
                // Work in the same queue comes before; for another one the device waits, also
                // where the value was reached long ago: the wait makes that queue's writes visible
                // in this one.
                Some(semaphore) if semaphore.queue == self.queue => {}
                Some(semaphore) => device_waits.push((semaphore.raw, wait.value())),
                None if status == PointStatus::Pending => {
                    blocked = true;
                    // At the first check all that are pending are watched; later ones find no
                    // others.
                    if !batch.watched {
                        self.bridge.when(wait, self.call.clone());
                    }
                }
                None => {}
            }
        }
        batch.watched = true;
        match blocked {
            true => Readiness::Blocked,
            false => Readiness::Ready,
        }
    }

    /// The semaphore behind `point`, if it belongs to this device.
    fn semaphore_of<'p>(&self, point: &'p Point) -> Option<&'p Semaphore> {
        let semaphore = point.timeline().native()?.downcast_ref::<Semaphore>()?;
        Arc::ptr_eq(&semaphore.gpu, &self.kit.gpu).then_some(semaphore)
    }

    /// Begins the next step of `batch`, or its end where there is none.
    fn start_step(
        &self,
        state: &mut State,
        mut batch: Box<Batch>,
        waits: &[SemaphoreValue],
    ) -> Result<(), (Box<Batch>, DeviceError)> {
        batch.current = batch.steps.pop_front();
        if matches!(batch.current, Some(Step::Host(..) | Step::Call(..))) {
            (state.fenced, batch.fenced) = (true, true);
            return self.host.send(self.info.device, batch);
        }
        let mut commands = std::mem::take(&mut state.commands);
        commands.clear();
        if let Some(Step::Device(recorded)) = &batch.current {
            commands.extend(recorded.iter().map(|(_, recorded)| recorded.raw));
        }
        let is_last = batch.steps.is_empty();
        let signal = is_last.then_some((batch.semaphore.raw, batch.value));
        // A signal of a timeline of the host's can fail, and with it the batch: what comes behind
        // must not run then. Nor may the next run of a recording write its times where those of
        // this one have not been read.
        let fenced = !is_last || !batch.signals.is_empty() || batch.timed;
        let (value, semaphore) = (batch.value, batch.semaphore.clone());
        batch.fenced |= fenced;
        let queue = &self.kit.gpu.queues[self.queue];
        // SAFETY: the batch holds the commands, the semaphores and, by its leases, the buffers; it
        // is the passenger. By `readiness`, all that it waits for is in a queue.
        let submitted =
            unsafe { queue.submit(&self.kit.gpu, &commands, waits, signal, Some(batch)) };
        state.commands = commands;
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
        // Before it is known that the batch has completed: who learns of it may submit the next.
        self.info.spares.give_points(std::mem::take(&mut batch.waits));
        self.info.spares.give_leases(std::mem::take(&mut batch.leases));
        if let Err(cause) = batch.owner.signal(batch.value) {
            return self.fail(batch, cause);
        }
        let fenced = batch.fenced;
        let room = vacate(batch);
        let mut state = lock(&self.state);
        if state.rooms.len() < state.rooms.capacity() {
            state.rooms.push(room);
        }
        state.flying -= 1;
        if fenced {
            state.fenced = false;
        }
        if !state.core.pending.is_empty() && (fenced || state.flying == 0) {
            self.pump_locked(state);
        }
    }

    /// Goes on with a batch whose step has ended.
    fn go_on(&self, mut batch: Box<Batch>) {
        batch.current = None;
        let mut state = lock(&self.state);
        let result = match state.core.is_closing() {
            true => Err((batch, state.core.closed())),
            false => self.start_step(&mut state, batch, &[]),
        };
        drop(state);
        if let Err((batch, cause)) = result {
            self.fail(batch, cause);
        }
    }

    /// Fails the lane by a batch that was handed over, and gives up the batches behind it.
    fn fail(&self, mut batch: Box<Batch>, cause: DeviceError) {
        let behind = {
            let mut state = lock(&self.state);
            state.flying -= 1;
            if batch.fenced {
                state.fenced = false;
            }
            // A batch of a timeline that was given up before, by a device that is lost, fails
            // nothing new.
            match state.core.is_current(&batch.owner) {
                true => state.core.poison(&cause),
                false => VecDeque::new(),
            }
        };
        // The state first: who learns of the failure from the timeline may recover the lane at
        // once. The timeline before the leases: who waits for a buffer must find the failure when
        // it gets there.
        batch.owner.fail(cause.clone());
        batch.leases.clear();
        fail_signals(&batch.signals, &cause);
        for mut batch in behind {
            batch.leases.clear();
            let cause = cause.inherited(&self.info.name, batch.task.as_ref());
            fail_signals(&batch.signals, &cause);
        }
        self.pump();
    }

    fn recover(&self) {
        let mut state = lock(&self.state);
        let State { core, semaphore, .. } = &mut *state;
        core.recover(|name| {
            let (owner, fresh) = timeline(name, &self.kit, self.queue)?;
            *semaphore = fresh;
            Ok(owner)
        });
    }

    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        if state.core.close() {
            self.pump_locked(state);
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let reserved = lock(&self.state).reserved;
        self.kit.gpu.queues[self.queue].give_up(reserved);
        // Points that were awaited by batches that have failed may never be decided.
        self.bridge.forget(self.call.clone());
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Core({})", self.info.name)
    }
}
