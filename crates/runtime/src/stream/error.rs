//! What a stream refuses, and how a task's failure reaches those who wait.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use syncline_deps::SubmitError;
use syncline_device::DeviceError;
use syncline_tensor::{BufferId, TaskId};

/// Why something was refused, or what became of a task.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum StreamError {
    #[error("{failure}{}", poisoned(.task, .failure))]
    TaskFailed { task: TaskId, failure: Arc<Failure> },
    #[error("task {task} ended before the last {kept} failures that are remembered: ask earlier")]
    OutcomeForgotten { task: TaskId, kept: usize },
    #[error(
        "{failures} tasks have failed since the last `wait_all`, the first was {first}: call `wait_all`"
    )]
    TooManyFailures { failures: usize, first: Arc<Failure> },
    #[error(transparent)]
    Submit(#[from] SubmitError),
    #[error("task `{task}`: {source}")]
    Device { task: Cow<'static, str>, source: DeviceError },
    #[error("buffer {buffer}: {source}")]
    Buffer { buffer: BufferId, source: DeviceError },
    #[error("{setting} = {value}: expected {min} to {max}")]
    BadOption { setting: &'static str, value: usize, min: usize, max: usize },
    #[error(
        "task `{task}` needs {need} {resource}, and `{setting}` is {size}: raise `{setting}` to at least {need}"
    )]
    NeverFits {
        task: Cow<'static, str>,
        resource: &'static str,
        setting: &'static str,
        size: u64,
        need: u64,
    },
    #[error(
        "task `{task}` needs {need} more {resource}, but all {in_use} of `{setting}` = {size} are held by {holder}: {way_out}, or raise `{setting}`"
    )]
    Exhausted {
        task: Cow<'static, str>,
        resource: &'static str,
        setting: &'static str,
        size: u64,
        in_use: u64,
        need: u64,
        holder: &'static str,
        way_out: &'static str,
    },
    #[error(
        "{what} waits for {waits_for}, which waits for a host guard of this thread: drop the guard first"
    )]
    WaitsForOwnGuard { what: &'static str, waits_for: String },
    #[error(
        "{what} waits for {waits_for}, which waits for what another thread holds, and that thread has ended or waits in its turn for what this one holds: drop a guard or map first, or do not wait inside tasks in both directions"
    )]
    WaitsInCircle { what: &'static str, waits_for: String },
    #[error("{what} from inside a task: {way_out}")]
    InsideTask { what: &'static str, way_out: &'static str },
    #[error(
        "the {what} belongs to another stream (`Stream::adopt` makes a buffer at home in this one)"
    )]
    WrongStream { what: &'static str },
    #[error("task `{task}` has no blocks: at least 1 is needed")]
    NoBlocks { task: Cow<'static, str> },
    #[error(
        "task `{task}` has {bodies} bodies to run once each, and {blocks} blocks: only a kernel takes a number of blocks"
    )]
    BlocksOfBodies { task: Cow<'static, str>, bodies: usize, blocks: u32 },
    #[error(
        "parts {first} and {second} of task `{task}` touch the same bytes of {buffer}, and one writes: they run at the same time"
    )]
    PartsOverlap { task: Cow<'static, str>, first: usize, second: usize, buffer: BufferId },
    #[error(
        "task `{task}`, submitted from inside task `{parent}`, touches bytes of {buffer} that are no argument of its parent: add them there"
    )]
    NotCovered { task: Cow<'static, str>, parent: Cow<'static, str>, buffer: BufferId },
    #[error("scope `{scope}`: {unfinished} tasks were not finished by its deadline")]
    ScopeDeadline { scope: Arc<str>, unfinished: u64 },
    #[error("waited {waited:?} for {what}")]
    TimedOut { what: String, waited: Duration },
    #[error("scope `{scope}` was cancelled")]
    ScopeCancelled { scope: Arc<str> },
    #[error("a buffer of {bytes} bytes cannot be had from the system")]
    OutOfMemory { bytes: u64 },
    #[error(
        "buffer {buffer} has {bytes} bytes at a multiple of {align}, which are no whole elements of {element} bytes"
    )]
    BadElement { buffer: BufferId, bytes: u64, element: usize, align: usize },
    #[error("a worker thread cannot be started: {message}")]
    NoThread { message: Arc<str> },
    #[error("capture: {message}")]
    Capture { message: Arc<str> },
}

impl StreamError {
    /// The failure that this error goes back to, where it is one of a task.
    pub fn failure(&self) -> Option<&Arc<Failure>> {
        match self {
            StreamError::TaskFailed { failure, .. } => Some(failure),
            _ => None,
        }
    }
}

fn poisoned(task: &TaskId, failure: &Failure) -> String {
    match *task == failure.task {
        true => String::new(),
        false => format!(" (task {task} depends on it)"),
    }
}

/// A task that failed by itself, the origin of all failures that follow from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task {task} `{name}` {cause}")]
pub struct Failure {
    /// The task.
    pub task: TaskId,
    /// What it is called.
    pub name: Cow<'static, str>,
    /// What happened.
    pub cause: Cause,
}

/// What happened to a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// Its body panicked.
    #[error("panicked: {0}")]
    Panicked(Arc<str>),
    /// Its body returned an error.
    #[error("failed: {0}")]
    Failed(Arc<str>),
    /// Its scope was cancelled before it began.
    #[error("was cancelled with scope `{0}`")]
    Cancelled(Arc<str>),
    /// Its scope's deadline passed before it began.
    #[error("had not begun by the deadline of scope `{0}`")]
    DeadlinePassed(Arc<str>),
    /// The stream was dropped before it began.
    #[error("had not begun when the stream was dropped")]
    Dropped,
}

impl Cause {
    /// Whether the task did not run because somebody wanted it so.
    pub fn is_cancellation(&self) -> bool {
        !matches!(self, Cause::Panicked(_) | Cause::Failed(_))
    }
}
