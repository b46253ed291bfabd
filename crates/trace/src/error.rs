//! What can be wrong with a trace, and where.

use std::fmt;

use syncline_files::FormError;
use syncline_tensor::{BufferId, UnknownAccess, UnknownDtype, ViewError};

/// Where in a file something is: an element of one of its lists, down to a member of an argument.
///
/// Plain numbers, so that places cost nothing until one is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The list, such as `tasks`, and the position in it.
    pub entry: Option<(&'static str, usize)>,
    /// The id of that element.
    pub id: Option<u64>,
    /// The position of the argument.
    pub arg: Option<u32>,
    /// The member.
    pub member: Option<&'static str>,
    /// The position in that member.
    pub element: Option<u32>,
}

impl Place {
    /// The file as a whole.
    pub const ROOT: Self = Self { entry: None, id: None, arg: None, member: None, element: None };

    /// Element `index` of the list `list`.
    pub const fn entry(list: &'static str, index: usize) -> Self {
        Self { entry: Some((list, index)), ..Self::ROOT }
    }

    /// The task at `index`, whose id is `id`.
    pub const fn task(index: usize, id: u64) -> Self {
        Self { id: Some(id), ..Self::entry("tasks", index) }
    }

    /// Argument `index` of this task.
    #[must_use]
    pub const fn arg(self, index: usize) -> Self {
        Self { arg: Some(index as u32), ..self }
    }

    /// Member `name` of this element or argument.
    #[must_use]
    pub const fn member(self, name: &'static str) -> Self {
        Self { member: Some(name), ..self }
    }

    /// Element `index` of this member.
    #[must_use]
    pub const fn element(self, index: usize) -> Self {
        Self { element: Some(index as u32), ..self }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((list, index)) = self.entry {
            write!(f, "{list}[{index}]")?;
        }
        if let Some(id) = self.id {
            write!(f, " (id {id})")?;
        }
        if let Some(arg) = self.arg {
            write!(f, ".args[{arg}]")?;
        }
        match (self.member, self.entry) {
            (Some(member), Some(_)) => write!(f, ".{member}")?,
            (Some(member), None) => f.write_str(member)?,
            (None, Some(_)) => (),
            (None, None) => f.write_str("the file as a whole")?,
        }
        self.element.map_or(Ok(()), |element| write!(f, "[{element}]"))
    }
}

/// Why bytes are not a trace, or not one that means something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum TraceError {
    #[error(transparent)]
    Form(#[from] FormError),
    #[error("{place}: {message}")]
    Member { place: Place, message: String },
    #[error("{place}: expected {expected}, found {found}")]
    Shape { place: Place, expected: &'static str, found: String },
    #[error("{place}: {source}")]
    Access { place: Place, source: UnknownAccess },
    #[error("{place}: {source}")]
    Dtype { place: Place, source: UnknownDtype },
    #[error("{place}: the member `{member}` is missing")]
    Missing { place: Place, member: &'static str },
    #[error("format: expected \"{expected}\", found {found}")]
    Format { expected: &'static str, found: String },
    #[error("version: this program reads version {supported}, the file has version {found}")]
    Version { found: String, supported: u64 },
    #[error("{place}: buffer {buffer} is declared twice")]
    DuplicateBuffer { place: Place, buffer: BufferId },
    #[error("{place}: no buffer {buffer} is declared")]
    UnknownBuffer { place: Place, buffer: BufferId },
    #[error("{place}: buffer {buffer} was released before this task")]
    ReleasedBuffer { place: Place, buffer: BufferId },
    #[error("{place}: ids must increase, but the task before has id {previous}")]
    IdOrder { place: Place, previous: u64 },
    #[error("{place}: no earlier task has id {dep}; a dependency is on a task submitted before")]
    UnknownDep { place: Place, dep: u64 },
    #[error("{place}: {source}")]
    View { place: Place, source: ViewError },
    #[error("{place}: the view ends at byte {end}, buffer {buffer} has {bytes} bytes")]
    OutsideBuffer { place: Place, buffer: BufferId, end: u64, bytes: u64 },
    #[error(
        "{place}: a write through a view with a zero stride, whose elements share bytes; only reads may broadcast"
    )]
    BroadcastWrite { place: Place },
    #[error("{place}: {at} tasks had been submitted, it says; expected from {first} to {last}")]
    Moment { place: Place, at: u64, first: u64, last: u64 },
    #[error("{place}: {what}")]
    Scope { place: Place, what: String },
    #[error("tasks: the edges are of a trace with {tasks} tasks, this trace has {trace}")]
    OtherTrace { tasks: u64, trace: u64 },
    #[error("{place}: the trace has no task with id {task}")]
    UnknownTask { place: Place, task: u64 },
    #[error("not a capture: the file does not begin with the mark of one")]
    NotACapture,
    #[error("a capture of format version {found}; this program reads version {supported}")]
    CaptureVersion { found: u16, supported: u16 },
    #[error(
        "byte {offset}: record {record} is of kind {kind}, which a newer program wrote and must not be skipped"
    )]
    UnknownRecord { offset: usize, record: u64, kind: u8 },
    #[error(
        "byte {offset}: record {record} is corrupted ({what}); the {tasks} tasks before it are intact"
    )]
    Corrupt { offset: usize, record: u64, tasks: usize, what: String },
}
