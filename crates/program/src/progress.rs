//! Progress: how many tasks of a run are done, for whoever watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use syncline_device::{Backend, Kernel, KernelArgs};

/// A count of the tasks that have run on the CPU, over all repeats. Clones count together.
///
/// Tasks on other devices are not seen one by one: they are counted when their run has ended.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
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

    /// `kernel`, counting each of its runs on the CPU.
    pub(crate) fn counted(&self, kernel: &Kernel) -> Kernel {
        if kernel.cpu_function().is_none() {
            return kernel.clone();
        }
        let (count, inner) = (self.0.clone(), kernel.clone());
        let builder = Kernel::builder(kernel.name()).cpu(move |args: &mut KernelArgs<'_>| {
            let outcome = inner.cpu_function().map_or(Ok(()), |body| body(args));
            count.fetch_add(1, Ordering::Relaxed);
            outcome
        });
        let sources = Backend::ALL.into_iter().filter_map(|of| Some((of, kernel.source(of)?)));
        sources.fold(builder, |builder, (of, source)| builder.source(of, source.clone())).build()
    }
}
