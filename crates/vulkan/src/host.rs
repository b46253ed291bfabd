//! What a lane does on the host: copies from and to its memory, and functions of the user's.
//!
//! Each lane that needs it has one thread for it, started at the first such step, so that a function that takes long
//! holds up its own lane alone.

use std::cell::Cell;
use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use syncline_device::blocked::{LANES, run_above};
use syncline_device::{DeviceError, DeviceSpec, guarded};

use crate::gpu::lock;
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
    running: Mutex<Option<(Sender<Box<Batch>>, JoinHandle<()>)>>,
}

impl HostThread {
    pub(crate) fn new(name: &Arc<str>) -> Self {
        Self { name: name.clone(), running: Mutex::default() }
    }

    /// Has the current step of `batch` done.
    pub(crate) fn send(
        &self,
        device: DeviceSpec,
        batch: Box<Batch>,
    ) -> Result<(), (Box<Batch>, DeviceError)> {
        let mut running = lock(&self.running);
        if running.is_none() {
            let (sender, receiver) = channel::<Box<Batch>>();
            let body = move || receiver.iter().for_each(run);
            match spawn(device, format!("{} host", self.name), body) {
                Ok(thread) => *running = Some((sender, thread)),
                Err(cause) => return Err((batch, cause)),
            }
        }
        let (sender, _) = running.as_ref().expect("started above");
        sender.send(batch).map_err(|unsent| {
            let message = "the thread of the lane has ended".into();
            (unsent.0, DeviceError::Backend { device, message })
        })
    }

    /// Lets the thread end when it has nothing left to do; if it `waits`, waits for that.
    pub(crate) fn end(&self, waits: bool) {
        let Some((sender, thread)) = lock(&self.running).take() else { return };
        drop(sender);
        if waits {
            // It catches panics of the user's functions; one of its own was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// Does the current step of `batch`, and hands it back to its lane.
fn run(mut batch: Box<Batch>) {
    let result = match batch.take_step() {
        Some(Step::Host(base, jobs)) => {
            for job in jobs.iter() {
                let began = Instant::now();
                // SAFETY: the batch's leases keep the memory, and whoever submitted it has ordered it with all
                // conflicting work.
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
