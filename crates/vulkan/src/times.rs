//! When commands ran, from the device's clock to the host's.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash::{ext, vk};
use syncline_device::{CommandTime, DeviceError};

use crate::gpu::Gpu;

/// Entries that a lane keeps until they are taken; later ones are dropped.
pub(crate) const TIMES_MAX: usize = 1 << 20;

/// Two moments for each of some commands, written by the device as it runs them.
pub(crate) struct Stamps {
    pub(crate) raw: vk::QueryPool,
    /// The commands, by number.
    commands: Vec<u32>,
    gpu: Arc<Gpu>,
}

impl Stamps {
    /// Room for `commands`; `None` for none of them, or on a device without a clock.
    pub(crate) fn new(gpu: &Arc<Gpu>, commands: Vec<u32>) -> Result<Option<Self>, DeviceError> {
        if commands.is_empty() || gpu.candidate.limits.tick_ns == 0.0 {
            return Ok(None);
        }
        let info = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(2 * commands.len() as u32);
        // SAFETY: a new object of the device, whose queues have a clock.
        let raw = unsafe { gpu.raw.create_query_pool(&info, None) }
            .map_err(|error| gpu.error("vkCreateQueryPool", error))?;
        Ok(Some(Self { raw, commands, gpu: gpu.clone() }))
    }

    /// Queries in all.
    pub(crate) fn count(&self) -> u32 {
        2 * self.commands.len() as u32
    }

    /// Appends when the commands ran, numbered from `base` on, in the batch of `value`. The
    /// submission has completed.
    pub(crate) fn read(&self, value: u64, base: u32, times: &mut Vec<CommandTime>) {
        let mut ticks = vec![0u64; self.count() as usize];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: the pool has as many queries, all written by the submission.
        let read = unsafe { self.gpu.raw.get_query_pool_results(self.raw, 0, &mut ticks, flags) };
        if read.is_err() {
            return;
        }
        let clock = Clock::look(&self.gpu, ticks.last().copied().unwrap_or(0));
        for (pair, command) in ticks.chunks_exact(2).zip(&self.commands) {
            let (began, ended) = (clock.host(pair[0]), clock.host(pair[1]));
            note(times, CommandTime { value, command: base + command, began, ended });
        }
    }
}

/// Appends `time`; a command that came to several pieces ends with the last of them.
pub(crate) fn note(times: &mut Vec<CommandTime>, time: CommandTime) {
    if let Some(last) = times.last_mut()
        && (last.value, last.command) == (time.value, time.command)
    {
        last.ended = time.ended;
    } else if times.len() < TIMES_MAX {
        times.push(time);
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        // SAFETY: the commands that write the queries are gone.
        unsafe { self.gpu.raw.destroy_query_pool(self.raw, None) };
    }
}

impl fmt::Debug for Stamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stamps({} commands)", self.commands.len())
    }
}

/// One moment on both clocks.
struct Clock {
    host: Instant,
    ticks: u64,
    tick_ns: f64,
}

impl Clock {
    /// Both clocks at this moment. A driver that does not tell its clock has reached `last` a
    /// moment ago: then times are late by as long as it took us to learn of it.
    fn look(gpu: &Gpu, last: u64) -> Self {
        let tick_ns = gpu.candidate.limits.tick_ns.into();
        let told = gpu.clock.as_ref().and_then(|clock| {
            let info =
                vk::CalibratedTimestampInfoKHR::default().time_domain(vk::TimeDomainKHR::DEVICE);
            // SAFETY: the extension was enabled, and the device's own clock is a domain of every
            // such device.
            unsafe { clock.get_calibrated_timestamps(&[info]) }.ok()
        });
        let ticks = told.and_then(|(ticks, _)| ticks.first().copied()).unwrap_or(last);
        Self { host: Instant::now(), ticks, tick_ns }
    }

    fn host(&self, ticks: u64) -> Instant {
        let ns = (self.ticks.saturating_sub(ticks)) as f64 * self.tick_ns;
        self.host.checked_sub(Duration::from_nanos(ns as u64)).unwrap_or(self.host)
    }
}

/// The functions that tell the device's clock.
pub(crate) type ClockFunctions = ext::calibrated_timestamps::Device;
