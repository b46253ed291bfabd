//! The threads of a loaded plan: one for each lane that the caller does not run itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};

use super::error::LoadError;
use super::run::run_lane;
use super::shared::Shared;

/// Threads that end when this is dropped.
#[derive(Debug)]
pub struct Threads {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// A thread for every lane that has something to do, except `own`.
    pub fn start(shared: &Arc<Shared>, own: usize) -> Result<Self, LoadError> {
        let mut threads = Self { shared: Arc::clone(shared), handles: Vec::new() };
        for (lane, work) in shared.lanes.iter().enumerate() {
            if lane == own || work.steps.is_empty() {
                continue;
            }
            let shared = Arc::clone(shared);
            let thread = Builder::new().name(format!("syncline-lane-{lane}"));
            let handle = thread
                .spawn(move || serve(&shared, lane))
                .map_err(|error| LoadError::NoThread { lane, message: error.to_string() })?;
            threads.handles.push(handle);
        }
        Ok(threads)
    }

    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Release);
        self.shared.started.publish(u64::MAX);
        for handle in self.handles.drain(..) {
            // Bodies' panics are caught in `run_lane`; there is nothing else to report.
            let _ = handle.join();
        }
    }
}

/// Runs `lane` once for every run, until the plan is dropped.
fn serve(shared: &Shared, lane: usize) {
    for number in 1.. {
        shared.started.wait(number, shared.patience);
        if shared.is_closing.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: run `number` has begun, and does not end before this lane has.
        let mode = unsafe { shared.mode() };
        debug_assert_eq!(mode.number, number, "runs do not overlap");
        run_lane(shared, lane, mode);
    }
}
