//! Scopes: groups of tasks that are awaited, cancelled or given a deadline together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_deps::ScopeKind;

use super::error::{Cause, Failure};
use super::sleep::Want;
use super::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use super::{Stream, StreamError, Task, TaskHandle};

/// A group of tasks of a [`Stream`].
///
/// Dropping a scope leaves its tasks alone: they run to their end. [`Scope::finish`] waits for them.
///
/// ```
/// use syncline_runtime::stream::{Stream, StreamOptions, Task};
///
/// let stream = Stream::new(StreamOptions::default())?;
/// let scope = stream.scope("decode");
/// for _ in 0..8 {
///     scope.submit(Task::new("step").body(|_| ()))?;
/// }
/// scope.finish()?;
/// # Ok::<(), syncline_runtime::stream::StreamError>(())
/// ```
#[derive(Debug)]
pub struct Scope<'s> {
    stream: &'s Stream,
    state: Arc<ScopeState>,
}

/// What a scope's tasks know of it.
#[derive(Debug)]
pub(crate) struct ScopeState {
    pub(crate) name: Arc<str>,
    pub(crate) kind: ScopeKind,
    deadline: Option<Instant>,
    cancelled: AtomicBool,
    unfinished: AtomicU64,
    failure: Mutex<Option<(syncline_deps::TaskId, Arc<Failure>)>>,
}

impl ScopeState {
    fn new(name: &str, kind: ScopeKind, deadline: Option<Instant>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            kind,
            deadline,
            cancelled: AtomicBool::new(false),
            unfinished: AtomicU64::new(0),
            failure: Mutex::new(None),
        })
    }

    pub(crate) fn task_entered(&self) {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
    }

    /// One task has ended; whether it was the last one.
    pub(crate) fn task_ended(
        &self,
        failure: Option<(syncline_deps::TaskId, &Arc<Failure>)>,
    ) -> bool {
        if let Some((task, failure)) = failure {
            let mut first = lock(&self.failure);
            first.get_or_insert_with(|| (task, failure.clone()));
        }
        // SeqCst: the scope's waiter announces itself and then looks; see `sleep.rs`.
        self.unfinished.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Why a task of this scope should not begin.
    pub(crate) fn reason_to_skip(&self) -> Option<Cause> {
        if self.cancelled.load(Ordering::Acquire) {
            return Some(match self.deadline {
                Some(deadline) if deadline <= Instant::now() => {
                    Cause::DeadlinePassed(self.name.clone())
                }
                _ => Cause::Cancelled(self.name.clone()),
            });
        }
        let late = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
        late.then(|| Cause::DeadlinePassed(self.name.clone()))
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}

impl<'s> Scope<'s> {
    pub(crate) fn new(
        stream: &'s Stream,
        name: &str,
        kind: ScopeKind,
        deadline: Option<Duration>,
    ) -> Self {
        let deadline = deadline.and_then(|within| Instant::now().checked_add(within));
        Self { stream, state: ScopeState::new(name, kind, deadline) }
    }

    /// Submits a task that belongs to this scope.
    ///
    /// # Errors
    /// As [`Stream::submit`]; also where the scope has been cancelled or its deadline has passed.
    pub fn submit(&self, task: Task) -> Result<TaskHandle, StreamError> {
        match self.state.reason_to_skip() {
            None => self.stream.shared().submit(task.spec, Some(&self.state)),
            Some(Cause::DeadlinePassed(_)) => Err(self.deadline_error()),
            Some(_) => Err(StreamError::ScopeCancelled { scope: self.state.name.clone() }),
        }
    }

    /// Whether dependencies are discovered in it.
    pub fn kind(&self) -> ScopeKind {
        self.state.kind
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Its tasks that have not ended.
    pub fn unfinished(&self) -> u64 {
        self.state.unfinished.load(Ordering::SeqCst)
    }

    /// Keeps those of its tasks that have not begun from running: they, and what depends on them, fail with
    /// [`Cause::Cancelled`]. Tasks that are running go on to their end.
    pub fn cancel(&self) {
        self.state.cancelled.store(true, Ordering::Release);
    }

    /// Waits until all its tasks have ended, and returns the first failure among them.
    ///
    /// # Errors
    /// Also where the scope was cancelled, or at its deadline: then what has not begun never will, and what is running
    /// goes on in the background.
    pub fn finish(self) -> Result<(), StreamError> {
        let shared = self.stream.shared();
        shared.refuse_inside_task("a scope is awaited")?;
        let quiet = || self.unfinished() == 0;
        let deadline = self.state.deadline;
        let name = self.state.name.clone();
        let waited = shared.wait_until(Want::Quiet, deadline, |state, _| {
            if quiet() {
                return Ok(true);
            }
            if shared.holds_up_scope(state, &self.state) {
                let (what, waits_for) = ("finishing a scope", format!("scope `{name}`"));
                return Err(StreamError::WaitsForOwnGuard { what, waits_for });
            }
            Ok(false)
        })?;
        if !waited {
            self.cancel();
            return Err(self.deadline_error());
        }
        let failure = lock(&self.state.failure).clone();
        match failure {
            Some((_, failure)) if failure.cause == Cause::DeadlinePassed(name.clone()) => {
                Err(self.deadline_error())
            }
            Some((task, failure)) if failure.cause != Cause::Cancelled(name.clone()) => {
                Err(StreamError::TaskFailed { task, failure })
            }
            _ if self.state.is_cancelled() => Err(StreamError::ScopeCancelled { scope: name }),
            _ => Ok(()),
        }
    }

    fn deadline_error(&self) -> StreamError {
        let unfinished = self.unfinished();
        StreamError::ScopeDeadline { scope: self.state.name.clone(), unfinished }
    }
}
