//! What can be wrong with a submission.

use syncline_tensor::{Access, BufferId, TaskId};

/// Why a buffer, a scope or a task was refused. Whatever was refused has left nothing behind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum SubmitError {
    #[error("a task with {args} arguments: at most {max} are supported")]
    TooManyArgs { args: usize, max: usize },
    #[error(
        "argument {arg} is in buffer {buffer}, which was never declared or has been released: declare it first"
    )]
    UnknownBuffer { arg: usize, buffer: BufferId },
    #[error(
        "argument {arg} ends at byte {end} of buffer {buffer}, which has {bytes} bytes: shrink the view or declare a larger buffer"
    )]
    OutsideBuffer { arg: usize, buffer: BufferId, end: u64, bytes: u64 },
    #[error(
        "argument {arg} (`{access}`) writes buffer {buffer} through a zero stride in dimension {dim}: only reads may broadcast"
    )]
    BroadcastWrite { arg: usize, access: Access, buffer: BufferId, dim: usize },
    #[error(
        "explicit dependency {position} is on task {dep}, which was never issued: the next task to be issued is {next}"
    )]
    DepNeverIssued { position: usize, dep: TaskId, next: TaskId },
    #[error(
        "a scope is left that was never entered: {left} scopes were left and {entered} entered"
    )]
    UnbalancedScope { entered: u64, left: u64 },
    #[error("buffer {buffer} is declared already, with {bytes} bytes: release it first")]
    BufferExists { buffer: BufferId, bytes: u64 },
    #[error("buffer {buffer} is released, but was never declared or has been released before")]
    NoSuchBuffer { buffer: BufferId },
}
