//! Timeline semaphores, which stand behind the timelines of lanes.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::gpu::Gpu;
use crate::lane::Call;
use ash::vk;
use syncline_device::DeviceError;
use syncline_sync::lock;

/// The timeline semaphore of a lane, which stands behind its timeline.
pub(crate) struct Semaphore {
    pub(crate) raw: vk::Semaphore,
    /// Lanes that wait for a value that is in no queue yet.
    callers: Mutex<Vec<Arc<Call>>>,
    /// Which of the device's queues signals it.
    pub(crate) queue: usize,
    /// The largest value whose signal is in a queue, or was set: waiting for it on the device ends
    /// without the host.
    submitted: AtomicU64,
    pub(crate) gpu: Arc<Gpu>,
}

impl Semaphore {
    pub(crate) fn new(gpu: &Arc<Gpu>, queue: usize) -> Result<Arc<Self>, DeviceError> {
        let raw = gpu.create_semaphore()?;
        // Room for the lanes of a device: who is noted here must not have to allocate.
        let (submitted, callers) = (AtomicU64::new(0), Mutex::new(Vec::with_capacity(16)));
        Ok(Arc::new(Self { raw, callers, queue, submitted, gpu: gpu.clone() }))
    }

    fn submitted(&self) -> u64 {
        // Pairs with the store below: who sees the value finds the signal in its queue.
        self.submitted.load(Ordering::Acquire)
    }

    /// Whether the signal of `value` is in a queue; if not, `call` is made at the next submission.
    pub(crate) fn is_submitted(&self, value: u64, call: &Arc<Call>) -> bool {
        if self.submitted() >= value {
            return true;
        }
        let mut callers = lock(&self.callers);
        if !callers.iter().any(|other| Arc::ptr_eq(other, call)) {
            callers.push(call.clone());
        }
        drop(callers);
        // After the entry: a submission that did not find it had stored its value before, and the
        // lock passed it on.
        self.submitted() >= value
    }

    /// Notes that the signal of `value` is on its way. Called under the lane's lock, with growing
    /// values.
    pub(crate) fn note_submitted(&self, value: u64) {
        self.submitted.store(value, Ordering::Release);
        for call in lock(&self.callers).drain(..) {
            call.request();
        }
    }

    /// Sets the value from the host; nothing that signals it is in a queue.
    pub(crate) fn signal(&self, value: u64) -> Result<(), DeviceError> {
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.raw).value(value);
        // SAFETY: a timeline semaphore of ours, to a value above all before.
        unsafe { self.gpu.raw.signal_semaphore(&info) }
            .map_err(|error| self.gpu.error("vkSignalSemaphore", error))
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        // SAFETY: batches in flight hold the semaphores that they wait for and signal.
        unsafe { self.gpu.raw.destroy_semaphore(self.raw, None) };
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Semaphore({} submitted)", self.submitted())
    }
}
