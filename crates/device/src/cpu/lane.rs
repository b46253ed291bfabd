//! Lanes of a CPU device: one worker thread each.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use syncline_sync::lock;

use super::queue::Queue;
use super::run;
use crate::{Backend, DeviceError, DeviceSpec, Lane, LaneInfo, Point, Timeline, Work};

/// One worker thread and its queue.
pub(super) struct CpuLane {
    queue: Arc<Queue>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl CpuLane {
    /// Starts a worker, on processor `pin` if one is given.
    pub(super) fn start(info: LaneInfo, pin: Option<usize>) -> Result<Self, DeviceError> {
        let device = info.device;
        let name = info.name.to_string();
        let queue = Arc::new(Queue::new(info));
        let taken = queue.clone();
        let worker = thread::Builder::new().name(name).spawn(move || {
            pin.inspect(|&processor| pin_to(processor));
            run::work(&taken);
        });
        let worker = worker.map_err(|error| DeviceError::Backend {
            device,
            message: format!("no thread for a lane: {error}").into(),
        })?;
        Ok(Self { queue, worker: Mutex::new(Some(worker)) })
    }

    /// Waits until the worker has ended, unless it is the worker who asks.
    pub(super) fn join(&self) {
        let worker = lock(&self.worker).take();
        if let Some(worker) = worker
            && worker.thread().id() != thread::current().id()
        {
            // The worker catches panics of kernels; one of its own was reported by the panic hook.
            let _ = worker.join();
        }
    }
}

// SAFETY: one worker takes items out of one queue and runs each to its end; memory of CPU devices
// is the host's.
unsafe impl Lane for CpuLane {
    fn info(&self) -> &LaneInfo {
        &self.queue.info
    }

    fn timeline(&self) -> Timeline {
        self.queue.last().timeline().clone()
    }

    fn last(&self) -> Point {
        self.queue.last()
    }

    fn can_access(&self, device: DeviceSpec) -> bool {
        device.backend == Backend::Cpu
    }

    unsafe fn enqueue(&self, work: &mut Work) -> Result<Point, DeviceError> {
        self.queue.push(work)
    }

    fn recover(&self) {
        self.queue.recover();
    }

    fn close(&self) {
        self.queue.close();
    }
}

impl Drop for CpuLane {
    fn drop(&mut self) {
        self.queue.close();
        self.join();
    }
}

impl fmt::Debug for CpuLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuLane({:?})", self.queue.last())
    }
}

#[cfg(target_os = "linux")]
fn pin_to(processor: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    set.set(processor);
    // Where the system refuses (a container that changed its mind), the lane runs wherever it may.
    let _ = sched_setaffinity(None, &set);
}

#[cfg(not(target_os = "linux"))]
fn pin_to(_processor: usize) {}
