//! Capture: what is submitted while it is on goes to a file, from which the complete graph can be had later.
//!
//! Tasks inside tasks are part of their parent and are not written on their own.

use std::io::{self, Write};
use std::sync::Arc;

use syncline_deps::capture::{CaptureOptions, CaptureWriter, TaskLabel};
use syncline_deps::{BufferId, DepInputs, ScopeKind, TaskId};

use super::StreamError;
use super::shared::Shared;
use super::task::TaskSpec;

/// A capture that is on.
pub(crate) struct Capture {
    writer: CaptureWriter<Box<dyn Write + Send>>,
    /// The first task in it: dependencies on earlier ones mean nothing to a reader.
    first: TaskId,
    deps: Vec<TaskId>,
    /// The first error: nothing is written after it, and the stream goes on.
    failure: Option<io::Error>,
}

impl Capture {
    fn write(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.failure.is_none()
            && let Err(error) = write(self)
        {
            self.failure = Some(error);
        }
    }

    /// A buffer has come.
    pub(crate) fn buffer(&mut self, id: BufferId, bytes: u64) {
        self.write(|capture| capture.writer.buffer(id, bytes, None));
    }

    /// A buffer has gone.
    pub(crate) fn release(&mut self, id: BufferId) {
        self.write(|capture| capture.writer.release_buffer(id));
    }

    /// A task was issued.
    pub(crate) fn task(&mut self, task: TaskId, spec: &TaskSpec, manual: bool) {
        self.write(|capture| {
            let Capture { writer, first, deps, .. } = capture;
            deps.clear();
            deps.extend(spec.deps.iter().filter(|dep| **dep >= *first));
            let inputs = DepInputs { args: &spec.args, deps };
            if manual {
                writer.enter_scope(ScopeKind::Manual, None)?;
            }
            writer.submit(task, TaskLabel::named(&spec.name), &inputs)?;
            if manual { writer.leave_scope() } else { Ok(()) }
        });
    }
}

impl Shared {
    /// Begins a capture; one that is on ends without its last records.
    pub(crate) fn start_capture(&self, out: Box<dyn Write + Send>) -> Result<(), StreamError> {
        let mut state = self.lock();
        self.take_back(&mut state);
        let mut writer =
            CaptureWriter::with_options(out, CaptureOptions::default()).map_err(failed)?;
        for entry in state.heap.buffers() {
            writer.buffer(entry.id, entry.bytes, None).map_err(failed)?;
        }
        let first = state.book.submitter.next_task();
        state.capture = Some(Capture { writer, first, deps: Vec::new(), failure: None });
        Ok(())
    }

    /// Ends the capture with the stream's statistics; what it was written to, where one was on.
    pub(crate) fn stop_capture(&self) -> Result<Option<Box<dyn Write + Send>>, StreamError> {
        let stats = self.stats();
        let Some(mut capture) = self.lock().capture.take() else { return Ok(None) };
        if let Some(error) = capture.failure {
            return Err(failed(error));
        }
        capture.writer.stats(&stats.to_json()).map_err(failed)?;
        capture.writer.finish().map(Some).map_err(failed)
    }
}

fn failed(error: io::Error) -> StreamError {
    StreamError::Capture { message: Arc::from(error.to_string()) }
}
