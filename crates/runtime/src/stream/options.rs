//! What a stream may use.

use super::StreamError;

/// The bounds of a [`Stream`](super::Stream): its memory stays within them however long it runs.
///
/// ```
/// use syncline_runtime::stream::StreamOptions;
///
/// let options = StreamOptions { ring_tasks: 64, workers: 2, ..StreamOptions::default() };
/// assert!(options.heap_bytes > 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Tasks that have been submitted and are not finished, at most.
    pub ring_tasks: usize,
    /// Bytes of outputs that the runtime has allocated and not reclaimed, at most. Buffers that
    /// the caller makes ([`Stream::buffer`](super::Stream::buffer)) do not count.
    pub heap_bytes: u64,
    /// Edges between unfinished tasks. The next submission waits while there are as many; one
    /// task's own edges may exceed it, by at most `ring_tasks`.
    pub edge_pool: usize,
    /// Accesses of unfinished tasks, which dependency discovery has to remember, at most.
    pub map_entries: usize,
    /// Threads that run tasks. A thread that waits for the stream helps them, unless `help` is off.
    pub workers: usize,
    /// Whether a thread that waits for room or for a result runs ready tasks meanwhile. Switch it
    /// off where a task waits for something that the submitting thread does later.
    pub help: bool,
}

impl Default for StreamOptions {
    /// 4,096 tasks, 256 MiB of outputs, and one worker less than there are processors: the
    /// submitting thread is the one that is missing.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            ring_tasks: 4096,
            heap_bytes: 256 << 20,
            edge_pool: 1 << 16,
            map_entries: 1 << 18,
            workers: processors.saturating_sub(1).max(1),
            help: true,
        }
    }
}

impl StreamOptions {
    /// The largest ring: slot numbers have to leave room for a flag in 32 bits.
    const RING_TASKS_MAX: usize = 1 << 24;
    const WORKERS_MAX: usize = 4096;

    pub(crate) fn check(&self) -> Result<(), StreamError> {
        let check = |setting, value: usize, max: usize| match value {
            0 => Err(StreamError::BadOption { setting, value, min: 1, max }),
            value if value > max => Err(StreamError::BadOption { setting, value, min: 1, max }),
            _ => Ok(()),
        };
        check("ring_tasks", self.ring_tasks, Self::RING_TASKS_MAX)?;
        check("edge_pool", self.edge_pool, Self::RING_TASKS_MAX)?;
        check("map_entries", self.map_entries, usize::MAX)?;
        check("workers", self.workers, Self::WORKERS_MAX)
    }
}
