//! Long calls: without the interpreter's lock, ended by Ctrl-C, and watched by a progress callback.
//!
//! The work runs on a thread of its own where the calling thread has something else to do: the
//! main thread handles signals, and callbacks are called where the call was made.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBool;

use crate::errors::{SynclineError, contained};

/// How often signals are checked.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// How far the work has come; written by the work, read by the thread that watches.
#[derive(Default)]
pub(crate) struct Meter {
    state: Mutex<State>,
    changed: Condvar,
    /// Asked now and then, where the work itself does not report.
    count: Option<Count>,
}

/// Returns the amount done and the total.
type Count = Box<dyn Fn() -> (u64, u64) + Send + Sync>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    done: u64,
    total: u64,
    is_over: bool,
}

impl Meter {
    /// A meter for work that `count` knows the state of.
    pub(crate) fn counting(count: impl Fn() -> (u64, u64) + Send + Sync + 'static) -> Self {
        Self { count: Some(Box::new(count)), ..Self::default() }
    }

    /// Notes that `done` of `total` bytes are done.
    pub(crate) fn update(&self, done: u64, total: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Threads report out of order.
        state.done = done.max(state.done);
        state.total = total;
        drop(state);
        self.changed.notify_one();
    }

    fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.changed.notify_one();
    }

    /// Waits until the state differs from `seen`, for a while at most, and returns it.
    fn wait(&self, seen: State) -> State {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, SIGNALS_EVERY, |now| *now == seen);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if let Some(count) = &self.count {
            (state.done, state.total) = count();
        }
        *state
    }
}

/// Returns the callable that `progress` asks for: none, a bar, or the callable itself.
pub(crate) fn progress<'py>(
    py: Python<'py>,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(progress) = progress.filter(|given| !given.is_none()) else { return Ok(None) };
    if let Ok(flag) = progress.cast::<PyBool>() {
        let bar = || py.import("syncline._progress")?.getattr("Bar")?.call0();
        return flag.is_true().then(bar).transpose();
    }
    match progress.is_callable() {
        true => Ok(Some(progress)),
        false => Err(SynclineError::new_err("progress is None, True or a callable f(done, total)")),
    }
}

/// Returns `true` on the thread that handles signals.
fn handles_signals(py: Python<'_>) -> PyResult<bool> {
    static MAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let main = MAIN.import(py, "threading", "main_thread")?.call0()?;
    let ident = CURRENT.import(py, "threading", "get_ident")?.call0()?;
    main.getattr("ident")?.eq(ident)
}

/// Runs `work` without the interpreter's lock.
///
/// Where the calling thread handles signals, or `progress` is given, `work` has a thread of its
/// own. If a signal handler or a callback raises, `stop` is called, which makes the work end soon;
/// the exception is returned when the work has ended.
pub(crate) fn call<T: Send>(
    py: Python<'_>,
    stop: &(dyn Fn() + Sync),
    progress: Option<&Bound<'_, PyAny>>,
    meter: &Meter,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    if progress.is_none() && !handles_signals(py)? {
        return py.detach(|| contained(work));
    }
    let callback = progress.map(|progress| progress.clone().unbind());
    let mut raised = None;
    let done = py.detach(|| {
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let done = contained(work);
                meter.end();
                done
            });
            let mut seen = State::default();
            while !seen.is_over {
                let now = meter.wait(seen);
                let is_new = (now.done, now.total) != (seen.done, seen.total);
                seen = now;
                if raised.is_some() {
                    continue;
                }
                let watched = Python::try_attach(|py| {
                    py.check_signals()?;
                    if let Some(callback) = callback.as_ref().filter(|_| is_new) {
                        callback.call1(py, (now.done, now.total))?;
                    }
                    Ok(())
                });
                // Without an interpreter there is nothing to watch for.
                if let Some(Err(error)) = watched {
                    raised = Some(error);
                    stop();
                }
            }
            match worker.join() {
                Ok(done) => done,
                Err(_) => unreachable!("a panic of the work is an error"),
            }
        })
    });
    match raised {
        Some(error) => Err(error),
        None => done,
    }
}
