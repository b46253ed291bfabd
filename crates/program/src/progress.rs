//! Progress: how many tasks of a run are done, for display.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use syncline_device::{DeviceError, Kernel};

/// A count of the tasks that have run on the CPU, over all repeats. Clones count together.
///
/// Tasks on other devices are not seen one by one: they are counted when their run has ended.
#[derive(Clone, Debug, Default)]
pub struct RunProgress(Arc<AtomicU64>);

impl RunProgress {
    /// Nothing done yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tasks done so far.
    pub fn done(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Everything up to `tasks` is done, whether or not it was seen.
    pub(crate) fn reach(&self, tasks: u64) {
        self.0.fetch_max(tasks, Ordering::Relaxed);
    }

    /// The CPU implementation of `kernel`, counting each of its runs.
    ///
    /// # Errors
    /// It has none.
    pub(crate) fn counted(&self, kernel: &Kernel) -> Result<Kernel, DeviceError> {
        let count = self.0.clone();
        kernel.around(move |body| {
            let outcome = body();
            count.fetch_add(1, Ordering::Relaxed);
            outcome
        })
    }
}
