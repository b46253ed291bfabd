//! How commands end: outcomes, failures and exit statuses.

use std::io;

use syncline::checkpoint::CheckpointError;
use syncline::deps::OracleError;
use syncline::layout::LayoutError;
use syncline::report::ReportError;
use syncline::trace::{ReplayError, TraceError};

use crate::output::say;

/// How a command ended that could do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All is well.
    Success,
    /// A check found something, and has printed it.
    Found,
}

/// Why a command could not do its work, in one line that names the file and the place in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{file}: cannot be read: {source}")]
    Read { file: String, source: io::Error },
    #[error("{file}: cannot be written: {source}")]
    Write { file: String, source: io::Error },
    #[error("{file}: {source}")]
    Trace { file: String, source: Box<TraceError> },
    #[error("{file}: {source}")]
    Replay { file: String, source: Box<ReplayError> },
    #[error("{file}: {source}")]
    Oracle { file: String, source: OracleError },
    #[error("{file}: {source}")]
    Report { file: String, source: ReportError },
    #[error("{file}: {source}")]
    Layout { file: String, source: Box<LayoutError> },
    #[error("{0}")]
    Reshard(Box<LayoutError>),
    #[error("{0}")]
    Checkpoint(Box<CheckpointError>),
    #[error("{0}")]
    Usage(String),
    #[error("standard output: {0}")]
    Output(io::Error),
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(Box::new(error))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Prints a result and returns its exit status.
pub(crate) fn exit_code(result: Result<Outcome, Failure>) -> u8 {
    match result {
        Ok(Outcome::Success) => 0,
        Ok(Outcome::Found) => 1,
        Err(Failure::Output(error) | Failure::Write { source: error, .. })
            if error.kind() == io::ErrorKind::BrokenPipe =>
        {
            0
        }
        Err(failure) => {
            say(&failure.to_string());
            2
        }
    }
}
