//! Scopes: groups of tasks that are awaited, cancelled or given a deadline together.

use std::sync::Arc;

use syncline_deps::ScopeKind;
use syncline_device::{CancelToken, Deadline};

use syncline_sync::lock;
use syncline_sync::shim::{AtomicU64, Mutex, Ordering};

use super::circle::Goal;
use super::error::{Cause, Failure};
use super::sleep::Want;
use super::wait::Wait;
use super::{Stream, StreamError, Task, TaskHandle};

/// A group of tasks of a [`Stream`].
///
/// Dropping a scope leaves its tasks alone: they run to their end. [`Scope::finish`] waits for
/// them.
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

/// What ends a scope before its tasks have ended.
///
/// ```
/// use std::time::Duration;
/// use syncline_device::CancelToken;
/// use syncline_runtime::stream::{ScopeOptions, Stream, StreamOptions};
///
/// let (stream, token) = (Stream::new(StreamOptions::default())?, CancelToken::new());
/// let options = ScopeOptions::default().with_deadline(Duration::from_secs(5)).with_cancel(&token);
/// let scope = stream.scope_with("request", options);
/// token.cancel();
/// assert!(scope.finish().is_err());
/// # Ok::<(), syncline_runtime::stream::StreamError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScopeOptions {
    /// Tasks that have not begun by then fail.
    pub deadline: Deadline,
    /// Cancels the scope; see [`Scope::cancel`].
    pub cancel: CancelToken,
}

impl Default for ScopeOptions {
    /// No deadline, and a token of its own.
    fn default() -> Self {
        Self { deadline: Deadline::NEVER, cancel: CancelToken::new() }
    }
}

impl ScopeOptions {
    /// Has tasks fail that have not begun by `deadline`.
    #[must_use]
    pub fn with_deadline(self, deadline: impl Into<Deadline>) -> Self {
        Self { deadline: deadline.into(), ..self }
    }

    /// Has the scope cancelled with `token`.
    #[must_use]
    pub fn with_cancel(self, token: &CancelToken) -> Self {
        Self { cancel: token.child(), ..self }
    }
}

/// What a scope's tasks know of it.
#[derive(Debug)]
pub(crate) struct ScopeState {
    pub(crate) name: Arc<str>,
    pub(crate) kind: ScopeKind,
    pub(crate) deadline: Deadline,
    pub(crate) cancel: CancelToken,
    unfinished: AtomicU64,
    failure: Mutex<Option<(syncline_tensor::TaskId, Arc<Failure>)>>,
}

impl ScopeState {
    pub(crate) fn task_entered(&self) {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
    }

    /// One task has ended; whether it was the last one.
    pub(crate) fn task_ended(
        &self,
        failure: Option<(syncline_tensor::TaskId, &Arc<Failure>)>,
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
        if self.deadline.has_passed() {
            return Some(Cause::DeadlinePassed(self.name.clone()));
        }
        self.cancel.is_cancelled().then(|| Cause::Cancelled(self.name.clone()))
    }

    /// Refuses one more task of a scope that has been cancelled, or whose deadline has passed.
    pub(crate) fn refuse(&self) -> Result<(), StreamError> {
        self.reason_to_skip().map_or(Ok(()), |cause| Err(self.refusal(&cause)))
    }

    /// The error that goes with `cause`.
    pub(crate) fn refusal(&self, cause: &Cause) -> StreamError {
        let scope = self.name.clone();
        match cause {
            Cause::DeadlinePassed(_) => {
                let unfinished = self.unfinished.load(Ordering::SeqCst);
                StreamError::ScopeDeadline { scope, unfinished }
            }
            _ => StreamError::ScopeCancelled { scope },
        }
    }
}

impl<'s> Scope<'s> {
    pub(crate) fn new(
        stream: &'s Stream,
        name: &str,
        kind: ScopeKind,
        options: ScopeOptions,
    ) -> Self {
        let ScopeOptions { deadline, cancel } = options;
        let unfinished = AtomicU64::new(0);
        let (name, failure) = (name.into(), Mutex::new(None));
        let state = ScopeState { name, kind, deadline, cancel, unfinished, failure };
        Self { stream, state: Arc::new(state) }
    }

    /// Submits a task that belongs to this scope.
    ///
    /// # Errors
    /// As [`Stream::submit`]; also where the scope has been cancelled or its deadline has passed.
    pub fn submit(&self, task: Task) -> Result<TaskHandle, StreamError> {
        self.state.refuse()?;
        self.stream.shared().submit(task.spec, Some(&self.state))
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

    /// Keeps those of its tasks that have not begun from running, and tasks that they submitted:
    /// they, and what depends on them, fail with [`Cause::Cancelled`]. Tasks that are running go on
    /// to their end; they can submit no more tasks of their own.
    pub fn cancel(&self) {
        self.state.cancel.cancel();
    }

    /// The token that cancels the scope, for bodies and other threads.
    pub fn cancel_token(&self) -> &CancelToken {
        &self.state.cancel
    }

    /// Waits until all its tasks have ended, and returns the first failure among them.
    ///
    /// # Errors
    /// Also when the scope is cancelled, or at its deadline: it does not wait any longer then. What
    /// has not begun never will, and what is running goes on in the background.
    pub fn finish(self) -> Result<(), StreamError> {
        let shared = self.stream.shared();
        let state = &*self.state;
        state.cancel.watch(shared);
        let name = || format!("scope `{}`", state.name);
        let wait = Wait {
            want: Want::Quiet,
            goal: Goal::Scope(self.state.clone()),
            deadline: state.deadline,
            what: "finishing a scope",
            name: &name,
        };
        let is_over = || self.unfinished() == 0 || state.cancel.is_cancelled();
        let waited = shared.wait_until(&wait, |_, _| Ok(is_over()))?;
        if !waited {
            state.cancel.cancel();
        }
        let failure = lock(&state.failure).clone();
        let own = |cause: &Cause| match cause {
            Cause::Cancelled(scope) | Cause::DeadlinePassed(scope) => *scope == state.name,
            _ => false,
        };
        match failure {
            Some((task, failure)) if !own(&failure.cause) => {
                Err(StreamError::TaskFailed { task, failure })
            }
            // A deadline that passed when all had ended changes nothing.
            None if waited && self.unfinished() == 0 && !state.cancel.is_cancelled() => Ok(()),
            Some((_, failure)) => Err(state.refusal(&failure.cause)),
            None if waited => Err(state.refusal(&Cause::Cancelled(state.name.clone()))),
            None => Err(state.refusal(&Cause::DeadlinePassed(state.name.clone()))),
        }
    }
}
