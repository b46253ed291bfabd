//! What a lane does on the host: copies from and to its memory, and functions of the user's.
//!
//! Each lane that needs it has one thread for it, started at the first such step, so that a
//! function that takes long holds up its own lane alone.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use syncline_device::blocked::{LANES, run_above};
use syncline_device::{DeviceError, DeviceSpec, guarded};
use syncline_sync::{ignore_poison, lock};

use crate::lane::Batch;
use crate::step::Step;

thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a thread of a device: one that must not wait for others of its kind to end.
pub(crate) fn is_own_thread() -> bool {
    IS_OURS.get()
}

/// Starts a thread of a device.
pub(crate) fn spawn(
    device: DeviceSpec,
    name: String,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, DeviceError> {
    let body = move || {
        IS_OURS.set(true);
        body();
    };
    thread::Builder::new().name(name).spawn(body).map_err(|error| DeviceError::Backend {
        device,
        message: format!("no thread: {error}").into(),
    })
}

/// The thread of one lane, if it has needed one.
pub(crate) struct HostThread {
    name: Arc<str>,
    running: Mutex<Option<JoinHandle<()>>>,
    inbox: Arc<Inbox>,
}

/// Batches for the thread, in order. Keeps its memory, unlike a channel.
#[derive(Default)]
struct Inbox {
    state: Mutex<InboxState>,
    changed: Condvar,
}

#[derive(Default)]
struct InboxState {
    batches: VecDeque<Box<Batch>>,
    closed: bool,
}

impl Inbox {
    fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_one();
    }

    /// The next batch; `None` when there will be none.
    fn next(&self) -> Option<Box<Batch>> {
        let mut state = lock(&self.state);
        loop {
            if let Some(batch) = state.batches.pop_front() {
                return Some(batch);
            }
            if state.closed {
                return None;
            }
            state = ignore_poison(self.changed.wait(state));
        }
    }
}

impl HostThread {
    pub(crate) fn new(name: &Arc<str>) -> Self {
        Self { name: name.clone(), running: Mutex::default(), inbox: Arc::default() }
    }

    /// Has the current step of `batch` done.
    pub(crate) fn send(
        &self,
        device: DeviceSpec,
        batch: Box<Batch>,
    ) -> Result<(), (Box<Batch>, DeviceError)> {
        let mut running = lock(&self.running);
        if running.is_none() {
            // A lane that was ended may be given work while its device goes: that fails, in order.
            lock(&self.inbox.state).closed = false;
            let inbox = self.inbox.clone();
            let body = move || std::iter::from_fn(|| inbox.next()).for_each(run);
            match spawn(device, format!("{} host", self.name), body) {
                Ok(thread) => *running = Some(thread),
                Err(cause) => return Err((batch, cause)),
            }
        }
        if running.as_ref().is_some_and(JoinHandle::is_finished) {
            let message = "the thread of the lane has ended".into();
            return Err((batch, DeviceError::Backend { device, message }));
        }
        lock(&self.inbox.state).batches.push_back(batch);
        self.inbox.changed.notify_one();
        Ok(())
    }

    /// Makes room for `batches` batches.
    pub(crate) fn reserve(&self, batches: usize) {
        let mut state = lock(&self.inbox.state);
        let missing = batches.saturating_sub(state.batches.len());
        state.batches.reserve(missing);
    }

    /// Lets the thread end when it has nothing left to do; if it `waits`, waits for that.
    pub(crate) fn end(&self, waits: bool) {
        self.inbox.close();
        let Some(thread) = lock(&self.running).take() else { return };
        if waits {
            // It catches panics of the user's functions; one of its own was reported by the panic
            // hook.
            let _ = thread.join();
        }
    }
}

impl Drop for HostThread {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

/// Does the current step of `batch`, and hands it back to its lane.
fn run(mut batch: Box<Batch>) {
    let result = match batch.take_step() {
        Some(Step::Host(base, jobs)) => {
            for job in jobs.iter() {
                let began = Instant::now();
                // SAFETY: the batch's leases keep the memory, and its submitter has ordered
                // it with all conflicting work.
                unsafe { job.run() };
                batch.note_time(base + job.number, began);
            }
            Ok(())
        }
        Some(Step::Call(number, function)) => {
            let (name, began) = (function.name().clone(), Instant::now());
            let _lane = run_above(batch.lane_id().map(|lane| (LANES, lane)));
            // What a failed call leaves half done is the user's.
            let result = guarded(|| function.call()).unwrap_or_else(|message| {
                let task = batch.task().cloned();
                Err(DeviceError::KernelPanicked { kernel: name, task, message })
            });
            batch.note_time(number, began);
            result
        }
        Some(Step::Device(_)) | None => unreachable!("sent for a step of the host"),
    };
    batch.host_done(result);
}

impl fmt::Debug for HostThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostThread({})", self.name)
    }
}
