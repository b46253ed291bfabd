//! Hardware queues: who may submit, and who learns that something has completed.
//!
//! Several lanes share a queue. Each submission gets a ticket, a value of the queue's own timeline
//! semaphore, so that one thread learns of all completions by waiting for one semaphore:
//! `README.md`, "The reaper".

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex};

use syncline_sync::{ignore_poison, lock};

use ash::vk;
use syncline_device::DeviceError;

use crate::gpu::Gpu;
use crate::lane::Batch;

/// One queue of the device.
pub(crate) struct Queue {
    raw: vk::Queue,
    pub(crate) family: u32,
    /// Counts submissions.
    tickets: vk::Semaphore,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    last: u64,
    flying: VecDeque<Flight>,
    closing: bool,
    reaper_sleeps: bool,
    /// How many submissions of all lanes there is room for.
    reserved: usize,
    /// Kept empty, for the memory that it has.
    waits: Waits,
}

/// What a submission waits for, as the driver takes it.
#[derive(Default)]
struct Waits {
    semaphores: Vec<vk::Semaphore>,
    values: Vec<u64>,
    stages: Vec<vk::PipelineStageFlags>,
}

impl Waits {
    fn fill(&mut self, waits: &[SemaphoreValue]) {
        self.semaphores.clear();
        self.semaphores.extend(waits.iter().map(|(semaphore, _)| *semaphore));
        self.values.clear();
        self.values.extend(waits.iter().map(|(_, value)| *value));
        self.stages.clear();
        self.stages.resize(waits.len(), vk::PipelineStageFlags::ALL_COMMANDS);
    }
}

/// Something submitted that has not been seen to complete.
struct Flight {
    ticket: u64,
    passenger: Option<Box<Batch>>,
}

/// A submission that the driver did not take.
pub(crate) struct Refused {
    pub(crate) cause: DeviceError,
    pub(crate) passenger: Option<Box<Batch>>,
}

/// A semaphore and the value to wait for, or to set.
pub(crate) type SemaphoreValue = (vk::Semaphore, u64);

impl Queue {
    pub(crate) fn new(raw: vk::Queue, family: u32, tickets: vk::Semaphore) -> Self {
        Self { raw, family, tickets, state: Mutex::default(), changed: Condvar::new() }
    }

    pub(crate) fn semaphore(&self) -> vk::Semaphore {
        self.tickets
    }

    /// Hands `commands` to the device, after `waits`, and sets `signal` when they have completed.
    /// Then the queue's reaper hands `passenger` back to its lane.
    ///
    /// # Errors
    /// The driver's, with the passenger.
    ///
    /// # Safety
    /// The command buffers are recorded for this queue's family and stay valid, with all that they
    /// use, until they have completed; so do the semaphores. A passenger that holds them sees to
    /// that. Everything waited for has been submitted before.
    pub(crate) unsafe fn submit(
        &self,
        gpu: &Gpu,
        commands: &[vk::CommandBuffer],
        waits: &[SemaphoreValue],
        signal: Option<SemaphoreValue>,
        passenger: Option<Box<Batch>>,
    ) -> Result<(), Refused> {
        let mut state = lock(&self.state);
        if let Some(cause) = gpu.lost() {
            return Err(Refused { cause: cause.clone(), passenger });
        }
        let ticket = state.last + 1;
        // The ticket last: drivers signal in this order, and who has seen the ticket may destroy
        // the other semaphore.
        let first = usize::from(signal.is_none());
        let (semaphore, value) = signal.unwrap_or_default();
        let (semaphores, values) = ([semaphore, self.tickets], [value, ticket]);
        state.waits.fill(waits);
        let mut timelines = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&state.waits.values)
            .signal_semaphore_values(&values[first..]);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&state.waits.semaphores)
            .wait_dst_stage_mask(&state.waits.stages)
            .command_buffers(commands)
            .signal_semaphores(&semaphores[first..])
            .push_next(&mut timelines);
        // SAFETY: the caller's promise; the lock makes this the only use of the queue.
        if let Err(error) = unsafe { gpu.raw.queue_submit(self.raw, &[info], vk::Fence::null()) } {
            return Err(Refused { cause: gpu.error("vkQueueSubmit", error), passenger });
        }
        state.last = ticket;
        state.flying.push_back(Flight { ticket, passenger });
        if std::mem::take(&mut state.reaper_sleeps) {
            drop(state);
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Makes room for `batches` more submissions at a time, with at most `waits` waits each.
    pub(crate) fn reserve(&self, batches: usize, waits: usize) {
        let mut state = lock(&self.state);
        state.reserved += batches;
        let missing = state.reserved.saturating_sub(state.flying.len());
        state.flying.reserve(missing);
        state.waits.semaphores.reserve(waits);
        state.waits.values.reserve(waits);
        state.waits.stages.reserve(waits);
    }

    /// No longer keeps room for `batches` submissions.
    pub(crate) fn give_up(&self, batches: usize) {
        lock(&self.state).reserved -= batches;
    }

    /// Lets the reaper end once everything has landed.
    pub(crate) fn close(&self) {
        lock(&self.state).closing = true;
        self.changed.notify_all();
    }

    /// Sees to what was submitted until the queue closes: the body of its one thread.
    pub(crate) fn reap(&self, gpu: &Gpu) {
        while let Some(ticket) = self.next_ticket() {
            let result = self.wait_for(gpu, ticket);
            // Whatever else has completed meanwhile lands without another wait.
            let reached = match result {
                // SAFETY: the semaphore lives as long as the device.
                Ok(()) => unsafe { gpu.raw.get_semaphore_counter_value(self.tickets) }
                    .map_or(ticket, |value| value.max(ticket)),
                Err(_) => u64::MAX,
            };
            while let Some(flight) = self.take_landed(reached) {
                if let Some(batch) = flight.passenger {
                    batch.landed(result.clone());
                }
            }
        }
    }

    /// The ticket of the oldest submission, once there is one; `None` when there will be none.
    fn next_ticket(&self) -> Option<u64> {
        let mut state = lock(&self.state);
        loop {
            if let Some(flight) = state.flying.front() {
                return Some(flight.ticket);
            }
            if state.closing {
                return None;
            }
            state.reaper_sleeps = true;
            state = ignore_poison(self.changed.wait(state));
        }
    }

    fn take_landed(&self, reached: u64) -> Option<Flight> {
        let mut state = lock(&self.state);
        match state.flying.front() {
            Some(flight) if flight.ticket <= reached => state.flying.pop_front(),
            _ => None,
        }
    }

    fn wait_for(&self, gpu: &Gpu, ticket: u64) -> Result<(), DeviceError> {
        if let Some(cause) = gpu.lost() {
            return Err(cause.clone());
        }
        // Whatever the driver says: what cannot be waited for is never known to have completed.
        gpu.wait(self.tickets, ticket)
            .map_err(|error| gpu.lose(&format!("the device was lost: {error}; open it anew")))
    }
}

impl Gpu {
    /// Sleeps until `semaphore` has reached `value`.
    pub(crate) fn wait(&self, semaphore: vk::Semaphore, value: u64) -> Result<(), DeviceError> {
        let (semaphores, values) = ([semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is a timeline that the waiting thread keeps alive.
        unsafe { self.raw.wait_semaphores(&info, u64::MAX) }
            .map_err(|error| self.error("vkWaitSemaphores", error))
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue(family {}, {} submitted)", self.family, lock(&self.state).last)
    }
}
