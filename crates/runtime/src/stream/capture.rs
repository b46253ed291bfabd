//! Capture: what is submitted while it is on goes to a file, from which the complete graph can be
//! had later.
//!
//! Records are encoded under the submit lock, into memory. They are written when that lock has been
//! given back, by the thread that encoded the last of them: see [`Outlet`]. A writer is user code.
//!
//! Tasks inside tasks are part of their parent and are not written on their own.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use syncline_deps::{DepInputs, ScopeKind};
use syncline_device::{drop_guarded, guarded};
use syncline_tensor::{BufferId, TaskId};
use syncline_trace::capture::{CaptureOptions, CaptureWriter, TaskLabel};

use syncline_sync::shim::thread::{self, ThreadId};
use syncline_sync::shim::{AtomicBool, Condvar, Mutex, Ordering};
use syncline_sync::{ignore_poison, lock};

use super::StreamError;
use super::holds;
use super::shared::Shared;
use super::task::TaskSpec;

/// Encoded bytes that wait for a writer, at most; beyond, submissions wait for it.
const PENDING_MAX: usize = 4 << 20;
/// How long they wait for a writer that does not return. The capture ends then, and the stream goes
/// on.
const PATIENCE: Duration = Duration::from_secs(10);

/// A capture that is on.
pub(crate) struct Capture {
    writer: CaptureWriter<Inlet>,
    outlet: Arc<Outlet>,
    /// The first task in it: dependencies on earlier ones mean nothing to a reader.
    first: TaskId,
    deps: Vec<TaskId>,
    /// The first error: nothing is encoded after it, and the stream goes on.
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

    /// Encodes that a buffer has come.
    pub(crate) fn buffer(&mut self, id: BufferId, bytes: u64) {
        self.write(|capture| capture.writer.buffer(id, bytes, None));
    }

    /// Encodes that a buffer has gone.
    pub(crate) fn release(&mut self, id: BufferId) {
        self.write(|capture| capture.writer.release_buffer(id));
    }

    /// Encodes that a task was issued.
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

    /// Returns the outlet if it has bytes to write, for the caller to write them without the submit
    /// lock.
    #[cold]
    pub(crate) fn due(&self) -> Option<Arc<Outlet>> {
        self.outlet.due.load(Ordering::Relaxed).then(|| self.outlet.clone())
    }

    /// Writes the end, and waits until all is written.
    fn finish(self, stats: &str) -> io::Result<()> {
        let Self { mut writer, outlet, failure, .. } = self;
        failure.map_or(Ok(()), Err)?;
        writer.stats(stats)?;
        writer.finish()?;
        outlet.close()
    }
}

/// Encoded bytes on their way to the user's writer.
///
/// The writer belongs to one thread at a time, which calls it under no lock: other threads leave
/// their bytes behind, in order, and so does the writer itself if it calls back into the stream.
pub(crate) struct Outlet {
    state: Mutex<OutletState>,
    /// A write has ended.
    written: Condvar,
    /// Whether bytes are pending, to be looked at without the lock.
    due: AtomicBool,
    patience: Duration,
}

struct OutletState {
    /// `None` while a thread writes, and after a failure.
    out: Option<Box<dyn Write + Send>>,
    /// The thread that writes.
    writer: Option<ThreadId>,
    pending: Vec<u8>,
    failure: Option<(io::ErrorKind, Arc<str>)>,
}

impl OutletState {
    fn fail(&mut self, kind: io::ErrorKind, text: impl Into<Arc<str>>) {
        self.failure.get_or_insert_with(|| (kind, text.into()));
        self.pending = Vec::new();
    }

    fn result(&self) -> io::Result<()> {
        let error = |(kind, text): &(io::ErrorKind, Arc<str>)| io::Error::new(*kind, &**text);
        self.failure.as_ref().map_or(Ok(()), |failure| Err(error(failure)))
    }
}

impl Outlet {
    fn new(out: Box<dyn Write + Send>, patience: Duration) -> Arc<Self> {
        let (out, pending) = (Some(out), Vec::new());
        let state = OutletState { out, writer: None, pending, failure: None };
        Arc::new(Self {
            state: Mutex::new(state),
            written: Condvar::new(),
            due: AtomicBool::new(false),
            patience,
        })
    }

    /// Writes what is pending, unless another thread does. Returns without an error: a failure is
    /// kept.
    pub(crate) fn drain(&self) {
        let mut state = lock(&self.state);
        while state.pending.len() > PENDING_MAX && state.writer.is_some() {
            let (kind, text) = match state.writer == Some(thread::current().id()) {
                true => (io::ErrorKind::Deadlock, "the writer submits more than it writes"),
                false => {
                    let waited = self.written.wait_timeout(state, self.patience);
                    let (next, late) = ignore_poison(waited);
                    state = next;
                    if !late.timed_out() {
                        continue;
                    }
                    (io::ErrorKind::TimedOut, "the writer does not return")
                }
            };
            state.fail(kind, text);
        }
        while !state.pending.is_empty()
            && let Some(mut out) = state.out.take()
        {
            state.writer = Some(thread::current().id());
            let bytes = std::mem::take(&mut state.pending);
            drop(state);
            // The writer is not the task that has submitted something.
            let above = holds::run_above([]);
            let written = guarded(|| out.write_all(&bytes).and_then(|()| out.flush()));
            drop(above);
            state = lock(&self.state);
            state.writer = None;
            match written {
                Ok(Ok(())) if state.failure.is_none() => state.out = Some(out),
                failed => {
                    match failed {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => state.fail(error.kind(), error.to_string()),
                        Err(text) => {
                            state.fail(io::ErrorKind::Other, format!("the writer panicked: {text}"))
                        }
                    }
                    drop(state);
                    drop_guarded(out);
                    state = lock(&self.state);
                }
            }
            self.written.notify_all();
        }
        // Who finds bytes pending behind a thread that writes leaves them to that thread.
        self.due.store(false, Ordering::Relaxed);
    }

    /// Waits until everything is written, and drops the writer.
    fn close(&self) -> io::Result<()> {
        self.drain();
        let mut state = lock(&self.state);
        while state.writer.is_some() {
            if state.writer == Some(thread::current().id()) {
                state.fail(io::ErrorKind::Deadlock, "the writer ends the capture that it writes");
                break;
            }
            let waited = self.written.wait_timeout(state, self.patience);
            let (next, late) = ignore_poison(waited);
            state = next;
            if late.timed_out() && state.writer.is_some() {
                state.fail(io::ErrorKind::TimedOut, "the writer does not return");
                break;
            }
        }
        let (out, result) = (state.out.take(), state.result());
        drop(state);
        drop_guarded(out);
        result
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        // What a capture that was not ended has left behind.
        self.drain();
        drop_guarded(lock(&self.state).out.take());
    }
}

/// The encoder's end of an [`Outlet`]: takes bytes at once, and under any lock.
struct Inlet(Arc<Outlet>);

impl Write for Inlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = lock(&self.0.state);
        state.result()?;
        state.pending.extend_from_slice(bytes);
        self.0.due.store(true, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    /// Begins a capture; one that is on ends without its last records.
    pub(crate) fn start_capture(&self, out: Box<dyn Write + Send>) -> Result<(), StreamError> {
        let outlet = Outlet::new(out, PATIENCE);
        let inlet = Inlet(outlet.clone());
        let writer = CaptureWriter::with_options(inlet, CaptureOptions::default());
        let writer = writer.map_err(failed)?;
        outlet.drain();
        lock(&outlet.state).result().map_err(failed)?;
        let mut state = self.lock();
        self.reclaim(&mut state);
        let first = state.table.submitter.next_task();
        let mut capture = Capture { writer, outlet, first, deps: Vec::new(), failure: None };
        state.heap.buffers().for_each(|entry| capture.buffer(entry.id, entry.bytes));
        let before = state.capture.replace(capture);
        drop(state);
        drop(before);
        Ok(())
    }

    /// Ends the capture with the stream's statistics. Returns `true` if one was on.
    pub(crate) fn stop_capture(&self) -> Result<bool, StreamError> {
        let stats = self.stats();
        let capture = self.lock().capture.take();
        let Some(capture) = capture else { return Ok(false) };
        capture.finish(&stats.to_json()).map(|()| true).map_err(failed)
    }
}

fn failed(error: io::Error) -> StreamError {
    StreamError::Capture { message: Arc::from(error.to_string()) }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Says that it was called, and waits for leave to go on.
    struct Gate(std::sync::mpsc::Sender<usize>, std::sync::mpsc::Receiver<()>);

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(bytes.len());
            let _ = self.1.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_writer_that_does_not_return_holds_nobody_up_for_ever() {
        let ((called, calls), (leave, gate)) = (channel(), channel());
        let outlet = Outlet::new(Box::new(Gate(called, gate)), Duration::from_millis(20));
        let mut inlet = Inlet(outlet.clone());
        inlet.write_all(&[1]).expect("room");
        thread::scope(|threads| {
            threads.spawn(|| outlet.drain());
            assert_eq!(calls.recv(), Ok(1));
            // Another thread leaves its bytes behind, and waits only where there are many.
            inlet.write_all(&[2; 7]).expect("room");
            outlet.drain();
            inlet.write_all(&vec![3; PENDING_MAX]).expect("room");
            outlet.drain();
            let refused = inlet.write_all(&[4]).expect_err("the capture has failed");
            assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
            assert_eq!(outlet.close().map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
            drop(leave);
        });
        assert!(lock(&outlet.state).out.is_none(), "the writer was dropped");
    }

    #[test]
    fn what_another_thread_leaves_behind_is_written_in_order() {
        let ((called, calls), (leave, gate)) = (channel(), channel());
        let outlet = Outlet::new(Box::new(Gate(called, gate)), PATIENCE);
        let mut inlet = Inlet(outlet.clone());
        inlet.write_all(&[1]).expect("room");
        thread::scope(|threads| {
            threads.spawn(|| outlet.drain());
            assert_eq!(calls.recv(), Ok(1));
            (2..5).for_each(|bytes| inlet.write_all(&vec![0; bytes]).expect("room"));
            outlet.drain();
            assert!(calls.try_recv().is_err(), "one thread writes at a time");
            (0..2).for_each(|_| leave.send(()).expect("it waits"));
            assert_eq!(calls.recv(), Ok(2 + 3 + 4));
            outlet.close().expect("nothing failed");
        });
    }
}
