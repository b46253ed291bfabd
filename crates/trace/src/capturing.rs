//! A submitter that can be watched: everything submitted through it may go to a capture as well.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use syncline_deps::{DepInputs, Edge, ScopeKind, SubmitError, SubmitOptions, Submitter};
use syncline_tensor::{BufferId, TaskId};

use crate::TraceLane;
use crate::capture::{CaptureOptions, CaptureWriter, TaskLabel};

/// A [`Submitter`] whose submissions are recorded while a capture is on.
///
/// While it is off, the cost is one branch a call. A capture that is switched on in the middle
/// begins with the buffers and scopes that are there. When the capture cannot be written any
/// further, submission goes on without it, and [`Capturing::stop`] returns the error.
///
/// ```
/// use syncline_trace::capture::{CaptureReader, TaskLabel};
/// use syncline_deps::{DepInputs, SubmitOptions};
/// use syncline_tensor::{Arg, Dtype, View};
/// use syncline_trace::Capturing;
///
/// let mut submitter = Capturing::<Vec<u8>>::new(SubmitOptions::default());
/// let x = submitter.create_buffer(64, Some("x"));
/// let args = [Arg::inout(x, View::contiguous(Dtype::F32, &[16])?)];
/// let inputs = DepInputs { args: &args, deps: &[] };
/// submitter.submit(TaskLabel::named("before"), inputs, |_| ())?;
/// submitter.start(Vec::new(), Default::default())?;
/// submitter.submit(TaskLabel::named("after"), inputs, |_| ())?;
/// let bytes = submitter.stop()?.expect("a capture was on");
///
/// let trace = CaptureReader::read(&bytes)?.trace;
/// assert_eq!(trace.buffers[0].name.as_deref(), Some("x"));
/// assert_eq!(trace.tasks.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Capturing<W: Write> {
    submitter: Submitter,
    writer: Option<CaptureWriter<W>>,
    failure: Option<io::Error>,
    buffers: BTreeMap<BufferId, (u64, Option<Arc<str>>)>,
    scopes: Vec<(ScopeKind, Option<Arc<str>>)>,
}

impl<W: Write> Capturing<W> {
    /// A submitter without buffers that captures nothing yet.
    pub fn new(options: SubmitOptions) -> Self {
        Self {
            submitter: Submitter::new(options),
            writer: None,
            failure: None,
            buffers: BTreeMap::new(),
            scopes: Vec::new(),
        }
    }

    /// Switches the capture on; one that was on is dropped without its end.
    pub fn start(&mut self, out: W, options: CaptureOptions) -> io::Result<()> {
        self.writer = None;
        self.failure = None;
        let mut writer = CaptureWriter::with_options(out, options)?;
        for (&buffer, (bytes, name)) in &self.buffers {
            writer.buffer(buffer, *bytes, name.as_deref())?;
        }
        for (kind, name) in &self.scopes {
            writer.enter_scope(*kind, name.as_deref())?;
        }
        self.writer = Some(writer);
        Ok(())
    }

    /// Switches the capture off and completes it; `None` where none was on.
    pub fn stop(&mut self) -> io::Result<Option<W>> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        self.writer.take().map(CaptureWriter::finish).transpose()
    }

    /// Whether submissions are being recorded.
    pub fn is_capturing(&self) -> bool {
        self.writer.is_some()
    }

    /// Writes everything captured so far; before a long pause.
    pub fn flush(&mut self) {
        self.capture(CaptureWriter::flush);
    }

    /// As [`Submitter::create_buffer`].
    pub fn create_buffer(&mut self, bytes: u64, name: Option<&str>) -> BufferId {
        let buffer = self.submitter.create_buffer(bytes);
        self.know_buffer(buffer, bytes, name);
        buffer
    }

    /// As [`Submitter::declare_buffer`].
    pub fn declare_buffer(
        &mut self,
        buffer: BufferId,
        bytes: u64,
        name: Option<&str>,
    ) -> Result<(), SubmitError> {
        self.submitter.declare_buffer(buffer, bytes)?;
        self.know_buffer(buffer, bytes, name);
        Ok(())
    }

    /// As [`Submitter::release_buffer`].
    pub fn release_buffer(&mut self, buffer: BufferId) -> Result<(), SubmitError> {
        self.submitter.release_buffer(buffer)?;
        self.buffers.remove(&buffer);
        self.capture(|writer| writer.release_buffer(buffer));
        Ok(())
    }

    /// As [`Submitter::enter_scope`].
    pub fn enter_scope(&mut self, kind: ScopeKind, name: Option<&str>) {
        self.submitter.enter_scope(kind);
        self.scopes.push((kind, name.map(Arc::from)));
        self.capture(|writer| writer.enter_scope(kind, name));
    }

    /// As [`Submitter::leave_scope`].
    pub fn leave_scope(&mut self) -> Result<ScopeKind, SubmitError> {
        let kind = self.submitter.leave_scope()?;
        self.scopes.pop();
        self.capture(CaptureWriter::leave_scope);
        Ok(kind)
    }

    /// As [`Submitter::submit`]; a task that is refused is not recorded.
    #[inline]
    pub fn submit(
        &mut self,
        label: TaskLabel<'_>,
        inputs: DepInputs<'_>,
        emit: impl FnMut(Edge),
    ) -> Result<TaskId, SubmitError> {
        let task = self.submitter.submit(inputs, emit)?;
        self.capture(|writer| writer.submit(task, label, &inputs));
        Ok(task)
    }

    /// As [`Submitter::retire`].
    pub fn retire(&mut self, task: TaskId) -> bool {
        let was_live = self.submitter.retire(task);
        self.capture(|writer| writer.retire(task));
        was_live
    }

    /// Records when and where a task ran.
    pub fn timing(&mut self, task: TaskId, start_ns: u64, end_ns: u64, lane: &TraceLane) {
        self.capture(|writer| writer.timing(task, Some(start_ns), Some(end_ns), Some(lane)));
    }

    /// The submitter itself, to inspect.
    pub fn submitter(&self) -> &Submitter {
        &self.submitter
    }

    fn know_buffer(&mut self, buffer: BufferId, bytes: u64, name: Option<&str>) {
        self.buffers.insert(buffer, (bytes, name.map(Arc::from)));
        self.capture(|writer| writer.buffer(buffer, bytes, name));
    }

    #[inline]
    fn capture(&mut self, write: impl FnOnce(&mut CaptureWriter<W>) -> io::Result<()>) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = write(writer)
        {
            self.writer = None;
            self.failure = Some(error);
        }
    }
}
