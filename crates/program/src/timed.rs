//! Timing: kernels that note when they ran.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use syncline_device::{DeviceError, Kernel};

use crate::run::TaskTiming;

/// A clock with a place for the start and the end of every task.
///
/// Each task writes its own two places once a run, and they are read after the run has been waited
/// for: relaxed ordering is enough.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    origin: Instant,
    times: Vec<[AtomicU64; 2]>,
}

impl Clock {
    /// A clock that starts now, for `tasks` tasks.
    pub(crate) fn start(tasks: usize) -> Self {
        let times = (0..tasks).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect();
        Self(Arc::new(Inner { origin: Instant::now(), times }))
    }

    /// Nanoseconds since the start.
    pub(crate) fn now_ns(&self) -> u64 {
        self.0.origin.elapsed().as_nanos() as u64
    }

    /// When every task last ran, on the lane that `lane_of` gives for it.
    pub(crate) fn timings(&self, lane_of: impl Fn(usize) -> usize) -> Vec<TaskTiming> {
        let timing = |(task, [start, end]): (usize, &[AtomicU64; 2])| TaskTiming {
            lane: lane_of(task),
            start_ns: start.load(Ordering::Relaxed),
            end_ns: end.load(Ordering::Relaxed),
        };
        self.0.times.iter().enumerate().map(timing).collect()
    }

    /// `kernel`, noting its times as those of task `task`.
    ///
    /// # Errors
    /// It has no body on the CPU.
    pub(crate) fn wrap(&self, kernel: &Kernel, task: usize) -> Result<Kernel, DeviceError> {
        let clock = self.clone();
        kernel.around(move |body| {
            let [start, end] = &clock.0.times[task];
            start.store(clock.now_ns(), Ordering::Relaxed);
            let outcome = body();
            end.store(clock.now_ns(), Ordering::Relaxed);
            outcome
        })
    }
}
