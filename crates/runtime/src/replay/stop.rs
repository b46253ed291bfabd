//! Stopping runs: from which one on, and why.

use syncline_plan::OpIndex;

use syncline_sync::lock;
use syncline_sync::shim::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};

use super::error::RunError;

/// Why a run stops early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Failed,
    Cancelled,
    Deadline,
}

/// The first run that is to stop: it and all after it leave out the bodies that have not begun.
#[derive(Debug)]
pub struct Stop {
    /// Number of the run times four, and the reason; [`Stop::NONE`] if all runs go on.
    word: AtomicU64,
    failures: Mutex<Failures>,
    /// Whether runs of the past have failed that somebody may still ask for.
    has_past: AtomicBool,
    /// How many tickets there are.
    pub tickets: AtomicU32,
}

#[derive(Debug, Default)]
struct Failures {
    /// The failure of the lowest run since the last [`Stop::clear`].
    current: Option<(u64, RunError)>,
    past: Vec<Past>,
}

/// Runs that ended early, from `first` to `last`.
#[derive(Debug)]
struct Past {
    first: u64,
    last: u64,
    error: RunError,
}

impl Stop {
    const NONE: u64 = u64::MAX;

    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(Self::NONE),
            failures: Mutex::new(Failures::default()),
            has_past: AtomicBool::new(false),
            tickets: AtomicU32::new(0),
        }
    }

    /// What [`Stop::is_below`] takes for run `number`.
    #[inline]
    pub fn limit(number: u64) -> u64 {
        (number + 1) << 2
    }

    /// Whether the run that `limit` was made for is to stop.
    #[inline(always)]
    pub fn is_below(&self, limit: u64) -> bool {
        // Relaxed: a lane that waited has acquired what the other lane had seen; one that did not
        // wait may run on.
        self.word.load(Ordering::Relaxed) < limit
    }

    /// Whether any run is to stop.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.word.load(Ordering::Acquire) != Self::NONE
    }

    /// Stops `run` and all after it, unless they are stopped already: the first reason counts.
    #[cold]
    pub fn lower(&self, run: u64, why: Why) -> bool {
        let wanted = run << 2 | why as u64;
        let lowered = self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |known| {
            (run < known >> 2).then_some(wanted)
        });
        lowered.is_ok()
    }

    /// Stops `run` and all after it because of `error`.
    #[cold]
    pub fn fail(&self, run: u64, error: RunError) {
        // Whoever sees the stop and asks for the reason waits for this lock.
        let mut failures = lock(&self.failures);
        if self.lower(run, Why::Failed) {
            failures.current = Some((run, error));
        }
    }

    /// As [`Stop::fail`]; also where somebody has stopped `run` as failed and left it to others to
    /// say why.
    #[cold]
    pub fn explain(&self, run: u64, error: RunError) {
        let mut failures = lock(&self.failures);
        let failed = run << 2 | Why::Failed as u64;
        let is_open = self.word.load(Ordering::SeqCst) == failed && failures.current.is_none();
        if self.lower(run, Why::Failed) || is_open {
            failures.current = Some((run, error));
        }
    }

    /// What `run`, which has ended, came to; `has_skipped` says whether it left out a body, or one
    /// did not end.
    #[inline]
    pub fn outcome(&self, run: u64, has_skipped: impl Fn() -> bool) -> Result<(), RunError> {
        if !self.is_set() && !self.has_past.load(Ordering::Acquire) {
            return Ok(());
        }
        // A stop that came after the last body began has stopped nothing. Under the lock, since the
        // owner may be letting runs go on again, and then what is current becomes past.
        let failures = lock(&self.failures);
        let past = failures.past.iter().find(|past| (past.first..=past.last).contains(&run));
        match past {
            Some(past) => Err(past.error.clone()),
            None if self.is_below(Self::limit(run)) && has_skipped() => {
                Err(self.reason(&failures, run))
            }
            None => Ok(()),
        }
    }

    fn reason(&self, failures: &Failures, run: u64) -> RunError {
        if let Some((first, error)) = &failures.current
            && *first <= run
        {
            return error.clone();
        }
        match self.word.load(Ordering::Acquire) & 3 {
            why if why == Why::Deadline as u64 => RunError::DeadlinePassed,
            _ => RunError::Cancelled,
        }
    }

    /// Lets runs go on again, when none is under way. `stopped` are the ones that left out bodies.
    #[cold]
    pub fn clear(&self, stopped: Option<(u64, u64)>) {
        let mut failures = lock(&self.failures);
        if self.tickets.load(Ordering::Acquire) == 0 {
            failures.past.clear();
        } else if let Some((first, last)) = stopped {
            let error = self.reason(&failures, first);
            failures.past.push(Past { first, last, error });
        }
        failures.current = None;
        self.has_past.store(!failures.past.is_empty(), Ordering::Release);
        self.word.store(Self::NONE, Ordering::SeqCst);
    }
}

/// How a body failed.
pub enum Failure {
    Error(String),
    Panic(String),
}

/// What an op is called in errors.
#[derive(Debug)]
pub struct Names(pub std::sync::Arc<syncline_plan::ExecutionPlan>);

impl Names {
    pub fn error(&self, op: OpIndex, failure: Failure) -> RunError {
        let (task, index) = match self.0.ops()[op.index()].kind {
            syncline_plan::OpKind::Task(task) => (self.0.task(task).name().to_owned(), task),
            syncline_plan::OpKind::Copy(copy) => {
                (format!("copy {copy}"), syncline_plan::TaskIndex(u32::MAX))
            }
        };
        match failure {
            Failure::Panic(cause) => RunError::Panicked { task, index, cause },
            Failure::Error(cause) => RunError::Failed { task, index, cause },
        }
    }
}
