//! The stream itself, and the handles of its tasks.

use std::ptr::NonNull;
use std::sync::Arc;

use syncline_deps::ScopeKind;
use syncline_device::cpu::{Served, Workers};
use syncline_device::{Buffer, Deadline, Device, Element};
use syncline_tensor::TaskId;

use super::shared::Shared;
use super::worker::StreamSource;
use super::{
    HostRead, HostWrite, Scope, ScopeOptions, StreamError, StreamOptions, StreamStats, Task,
};

/// Runs tasks while they are submitted; see the [module](super).
///
/// Several threads may submit; what they submit is ordered as it comes.
///
/// Dropping a stream keeps what has not begun from running, waits for what is running, and leaves
/// no thread of its own behind; [`Stream::wait_all`] first, to have everything done. (Dropped by
/// one of its own tasks, it does not wait: what is left ends by itself.)
#[derive(Debug)]
pub struct Stream {
    shared: Arc<Shared>,
    served: Option<Served>,
    /// Dropped when they no longer serve this.
    _workers: Arc<Workers>,
}

/// A task that was submitted.
#[derive(Clone, Debug)]
pub struct TaskHandle {
    stream_id: u64,
    id: TaskId,
    outputs: Vec<Buffer>,
}

impl TaskHandle {
    #[inline]
    pub(crate) fn new(stream_id: u64, id: TaskId, outputs: Vec<Buffer>) -> Self {
        Self { stream_id, id, outputs }
    }

    /// Identity.
    #[inline]
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// The buffers that the runtime allocated, in the order of the task's `output`s.
    pub fn outputs(&self) -> &[Buffer] {
        &self.outputs
    }

    /// The output number `position`.
    ///
    /// # Panics
    /// Where the task has fewer outputs, as for a slice.
    pub fn output(&self, position: usize) -> &Buffer {
        &self.outputs[position]
    }

    /// The same task, without holding on to its outputs: their memory goes when no task uses them.
    #[must_use]
    pub fn without_outputs(mut self) -> Self {
        self.outputs = Vec::new();
        self
    }

    #[inline]
    pub(crate) fn stream_id(&self) -> u64 {
        self.stream_id
    }
}

impl Stream {
    /// A stream with `options.workers` threads of its own.
    ///
    /// # Errors
    /// Where an option is out of range, or a thread cannot be started.
    pub fn new(options: StreamOptions) -> Result<Self, StreamError> {
        options.check()?;
        let workers = Workers::start("stream", options.workers)
            .map_err(|error| StreamError::NoThread { message: error.to_string().into() })?;
        Self::served_by(&workers, options)
    }

    /// A stream whose tasks the workers of `device` run, at most `options.workers` of them at a
    /// time, beside whatever else they serve. It adds no thread.
    ///
    /// ```
    /// use syncline_device::cpu::CpuDevice;
    /// use syncline_runtime::stream::{Stream, StreamOptions, Task};
    ///
    /// let device = CpuDevice::open_default()?;
    /// let streams = [(); 20].map(|()| Stream::on(&*device, StreamOptions::default()));
    /// for stream in streams {
    ///     let stream = stream?;
    ///     stream.submit(Task::new("nothing").body(|_| ()))?;
    ///     stream.wait_all()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Where an option is out of range, or the device has no workers: only CPU devices have.
    pub fn on(device: &dyn Device, options: StreamOptions) -> Result<Self, StreamError> {
        options.check()?;
        let workers = device.workers().ok_or_else(|| StreamError::NoThread {
            message: format!("{} has no workers; streams run on CPU devices", device.spec()).into(),
        })?;
        Self::served_by(workers, options)
    }

    fn served_by(workers: &Arc<Workers>, options: StreamOptions) -> Result<Self, StreamError> {
        let options = StreamOptions { workers: options.workers.min(workers.count()), ..options };
        let shared = Arc::new(Shared::new(options, workers.handle()));
        shared.counters.set_workers(options.workers);
        let served = Some(workers.serve(Arc::new(StreamSource(shared.clone()))));
        Ok(Self { shared, served, _workers: workers.clone() })
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The options it was made with.
    pub fn options(&self) -> &StreamOptions {
        &self.shared.options
    }

    /// A buffer of `bytes` zeroes, at home in this stream.
    ///
    /// # Errors
    /// Where the system has no memory.
    pub fn buffer(&self, bytes: u64) -> Result<Buffer, StreamError> {
        let buffer = Buffer::zeroed(bytes).map_err(|_| StreamError::OutOfMemory { bytes })?;
        self.adopt(&buffer)?;
        Ok(buffer)
    }

    /// Makes this stream the home of `buffer`, whose memory its tasks use in place: nothing is
    /// copied. Tasks and guards do so by themselves with a buffer that has no home.
    ///
    /// A buffer is at home in one stream at a time, until that is dropped. Plans, transfers, lanes
    /// of devices and the host take it all the same: they wait until no task of the stream uses it,
    /// and the stream's next task that does waits for them.
    ///
    /// ```
    /// use syncline_device::Buffer;
    /// use syncline_runtime::stream::{Stream, StreamOptions, Task};
    /// use syncline_tensor::{Dtype, View};
    ///
    /// let numbers = Buffer::from(vec![1u32, 2, 3, 4]);
    /// let stream = Stream::new(StreamOptions::default())?;
    /// let view = View::contiguous(Dtype::U32, &[4])?;
    /// stream.submit(Task::new("double").inout(&numbers, view).body(|args| {
    ///     args.slice_mut::<u32>(0).map(|all| all.iter_mut().for_each(|one| *one *= 2))
    /// }))?;
    /// // Waits for the task, as a transfer or a plan would.
    /// assert_eq!(numbers.read::<u32>(0, 4)?, [2, 4, 6, 8]);
    ///
    /// let other = Stream::new(StreamOptions::default())?;
    /// other.adopt(&numbers)?;
    /// assert_eq!(other.read(&numbers)?.as_slice::<u32>()?, [2, 4, 6, 8]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Where the wait would never end, or a task failed that should have written the buffer; for
    /// an output of another stream, whose memory that stream owns; and for memory of devices other
    /// than CPUs.
    pub fn adopt(&self, buffer: &Buffer) -> Result<(), StreamError> {
        self.shared.adopt(buffer, Deadline::NEVER).map(drop)
    }

    /// A buffer over `bytes` bytes of the caller's from `base` on, which tasks use in place.
    ///
    /// ```
    /// use syncline_runtime::stream::{Stream, StreamOptions, Task};
    /// use syncline_tensor::{Dtype, View};
    ///
    /// let mut numbers = [1u32, 2, 3, 4];
    /// let base = std::ptr::NonNull::from(&mut numbers).cast();
    /// let stream = Stream::new(StreamOptions::default())?;
    /// // SAFETY: the numbers are touched by tasks only, until the stream has been dropped.
    /// let lent = unsafe { stream.lend(base, 16)? };
    /// let view = View::contiguous(Dtype::U32, &[4])?;
    /// stream.submit(Task::new("double").inout(&lent, view).body(|args| {
    ///     args.slice_mut::<u32>(0).map(|all| all.iter_mut().for_each(|one| *one *= 2))
    /// }))?;
    /// stream.wait_all()?;
    /// drop((lent, stream));
    /// assert_eq!(numbers, [2, 4, 6, 8]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Where the size is no size of memory.
    ///
    /// # Safety
    /// As for [`Buffer::lend`]: the bytes are allocated and initialised until every handle of the
    /// buffer has been dropped and every task that uses it has ended. Until then tasks alone touch
    /// what tasks write, and nothing else writes what tasks read; buffers over the same bytes are
    /// not used at once.
    pub unsafe fn lend(&self, base: NonNull<u8>, bytes: u64) -> Result<Buffer, StreamError> {
        // SAFETY: the caller's promise.
        let buffer = unsafe { Buffer::lend(base, bytes) };
        let buffer = buffer.map_err(|_| StreamError::OutOfMemory { bytes })?;
        self.adopt(&buffer)?;
        Ok(buffer)
    }

    /// A buffer with a copy of `elements`.
    ///
    /// # Errors
    /// Where the system has no memory.
    pub fn buffer_of<T: Element>(&self, elements: &[T]) -> Result<Buffer, StreamError> {
        let bytes = size_of_val(elements) as u64;
        let out_of_memory = |_| StreamError::OutOfMemory { bytes };
        let buffer = Buffer::zeroed(bytes).map_err(out_of_memory)?;
        buffer.write(0, elements).map_err(out_of_memory)?;
        self.adopt(&buffer)?;
        Ok(buffer)
    }

    /// Submits a task: it runs as soon as everything that it depends on has ended.
    ///
    /// Where the ring, the heap, the edge pool or the tensor map is full, the calling thread runs
    /// ready tasks, then sleeps, until there is room.
    ///
    /// # Errors
    /// Where something is wrong with the task, and where it could never run; nothing is left behind
    /// then.
    #[inline]
    pub fn submit(&self, task: Task) -> Result<TaskHandle, StreamError> {
        self.shared.submit(task.spec, None)
    }

    /// A scope whose tasks are awaited or cancelled together.
    pub fn scope(&self, name: &str) -> Scope<'_> {
        self.scope_with(name, ScopeOptions::default())
    }

    /// A scope with a deadline, or one that is cancelled with a token.
    pub fn scope_with(&self, name: &str, options: ScopeOptions) -> Scope<'_> {
        Scope::new(self, name, ScopeKind::Auto, options)
    }

    /// A scope in which nothing is looked up: its tasks wait for their explicit dependencies only.
    /// Tasks outside it that come later wait for those of its tasks that they conflict with.
    ///
    /// # Safety
    /// The explicit dependencies of the tasks submitted to this scope must order each of them after
    /// every earlier task or host access, inside or outside the scope, that writes bytes which it
    /// touches, or touches bytes which it writes.
    pub unsafe fn manual_scope(&self, name: &str) -> Scope<'_> {
        Scope::new(self, name, ScopeKind::Manual, ScopeOptions::default())
    }

    /// Waits until a task has ended.
    ///
    /// # Errors
    /// Where it failed, or something that it depends on did.
    pub fn wait(&self, task: &TaskHandle) -> Result<(), StreamError> {
        self.wait_task(task, Deadline::NEVER)
    }

    /// As [`Stream::wait`], but gives up at a deadline, or after a `Duration`; the task goes on.
    ///
    /// The calling thread may run ready tasks meanwhile. It begins none after the deadline, so that
    /// it is late by the end of one body at most.
    ///
    /// # Errors
    /// Also where the time is up.
    pub fn wait_within(
        &self,
        task: &TaskHandle,
        deadline: impl Into<Deadline>,
    ) -> Result<(), StreamError> {
        self.wait_task(task, deadline.into())
    }

    fn wait_task(&self, task: &TaskHandle, deadline: Deadline) -> Result<(), StreamError> {
        if task.stream_id != self.shared.stream_id || task.id.ring() != 0 {
            return Err(StreamError::WrongStream { what: "task" });
        }
        self.shared.wait_task(task.id, deadline)
    }

    /// Waits until everything submitted before has ended.
    ///
    /// # Errors
    /// The oldest failure since the last call, where there is one. It is forgotten then: what is
    /// submitted later no longer inherits it.
    pub fn wait_all(&self) -> Result<(), StreamError> {
        self.shared.wait_all(Deadline::NEVER)
    }

    /// As [`Stream::wait_all`], but gives up as [`Stream::wait_within`] does.
    ///
    /// # Errors
    /// Also where the time is up.
    pub fn wait_all_within(&self, deadline: impl Into<Deadline>) -> Result<(), StreamError> {
        self.shared.wait_all(deadline.into())
    }

    /// Opens a buffer for reading, as soon as everything submitted before that writes it has ended.
    ///
    /// # Errors
    /// Where one of the tasks that wrote it failed.
    pub fn read(&self, buffer: &Buffer) -> Result<HostRead<'_>, StreamError> {
        self.shared.read(buffer, Deadline::NEVER)
    }

    /// As [`Stream::read`], but gives up as [`Stream::wait_within`] does.
    ///
    /// # Errors
    /// Also where the time is up.
    pub fn read_within(
        &self,
        buffer: &Buffer,
        deadline: impl Into<Deadline>,
    ) -> Result<HostRead<'_>, StreamError> {
        self.shared.read(buffer, deadline.into())
    }

    /// Opens a buffer for writing, as soon as everything submitted before that touches it has
    /// ended.
    ///
    /// # Errors
    /// Where one of the tasks that touched it failed.
    pub fn write(&self, buffer: &Buffer) -> Result<HostWrite<'_>, StreamError> {
        self.shared.write(buffer, Deadline::NEVER)
    }

    /// As [`Stream::write`], but gives up as [`Stream::wait_within`] does.
    ///
    /// # Errors
    /// Also where the time is up.
    pub fn write_within(
        &self,
        buffer: &Buffer,
        deadline: impl Into<Deadline>,
    ) -> Result<HostWrite<'_>, StreamError> {
        self.shared.write(buffer, deadline.into())
    }

    /// Waits until a buffer could be read.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn wait_readable(&self, buffer: &Buffer) -> Result<(), StreamError> {
        self.read(buffer).map(drop)
    }

    /// Waits until a buffer could be written.
    ///
    /// # Errors
    /// As [`Stream::write`].
    pub fn wait_writable(&self, buffer: &Buffer) -> Result<(), StreamError> {
        self.write(buffer).map(drop)
    }

    /// Writes everything submitted from now on to `out`, as a capture that `syncline_trace::replay`
    /// and the tools read. A capture that was on ends as if the process had been killed.
    ///
    /// Submitting threads call the writer, one at a time and under no lock. Submissions wait for a
    /// writer that is 4 MiB behind. If it does not return for 10 seconds, the capture fails and the
    /// stream goes on.
    ///
    /// # Errors
    /// Where the first bytes cannot be written. Later errors are returned by
    /// [`Stream::stop_capture`]; the stream goes on meanwhile. A writer that panics is such an
    /// error.
    #[cfg(feature = "capture")]
    pub fn start_capture(
        &self,
        out: impl std::io::Write + Send + 'static,
    ) -> Result<(), StreamError> {
        self.shared.start_capture(Box::new(out))
    }

    /// Ends the capture and closes what it was written to; whether one was on.
    ///
    /// # Errors
    /// Where something could not be written.
    #[cfg(feature = "capture")]
    pub fn stop_capture(&self) -> Result<bool, StreamError> {
        self.shared.stop_capture()
    }

    /// What it has done and holds.
    pub fn stats(&self) -> StreamStats {
        self.shared.stats()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.cancel.cancel();
        self.shared.end_forgotten_guards();
        // Scopes and guards borrow the stream, so none is left. The wait is refused where a task
        // waits for something else that this thread holds: that ends by itself, later.
        let inside = super::holds::is_inside(self.shared.stream_id)
            || self.shared.wait_quiet(Deadline::NEVER).is_err();
        if !inside {
            self.shared.empty_home();
        }
        self.shared.stop();
        let served = self.served.take().expect("dropped once");
        match inside {
            true => served.leave(),
            false => drop(served),
        }
    }
}
