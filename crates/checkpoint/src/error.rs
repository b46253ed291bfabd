//! What can go wrong with checkpoints, with the file concerned.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use syncline_layout::LayoutError;

/// Reasons that a message lists.
const REASONS_MAX: usize = 8;

/// Why a checkpoint could not be read, converted or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file could not be read.
    #[error("{}: cannot be read: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file could not be written; what was written before is kept for a resume.
    #[error("{}: cannot be written: {source}{}", file.display(), hint(source))]
    Write {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is not what its name says.
    #[error("{}: {cause}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The fault, and where it is.
        cause: String,
    },
    /// A directory without a checkpoint in it.
    #[error("{}: no checkpoint: {found}: expected model.safetensors, an index, torch files, .metadata or layout.json in it", folder.display())]
    NoCheckpoint {
        /// The directory.
        folder: PathBuf,
        /// The files found instead.
        found: String,
    },
    /// A format that is known and not read.
    #[error("{}: {format} cannot be read: {way_out}", path.display())]
    Unsupported {
        /// The file or directory.
        path: PathBuf,
        /// What it is.
        format: &'static str,
        /// What to do instead.
        way_out: &'static str,
    },
    /// The layouts do not fit each other, or a rule does not fit a tensor.
    #[error("{0}")]
    Reshard(#[from] Box<LayoutError>),
    /// The destination is already there.
    #[error("{}: already exists: remove it, or choose another destination", folder.display())]
    Exists {
        /// The directory.
        folder: PathBuf,
    },
    /// What an earlier run left is there.
    #[error("{}: an earlier run was interrupted here: continue it with --resume, or remove it", folder.display())]
    Partial {
        /// The directory.
        folder: PathBuf,
    },
    /// What an earlier run left belongs to another conversion.
    #[error("{}: was left by another conversion ({found}, not {expected}): remove it", folder.display())]
    OtherConversion {
        /// The directory.
        folder: PathBuf,
        /// Fingerprint found there.
        found: String,
        /// Fingerprint of this conversion.
        expected: String,
    },
    /// Another process is at work on the same destination.
    #[error("{}: another process is writing it", folder.display())]
    Busy {
        /// The directory.
        folder: PathBuf,
    },
    /// Another PE of the team could not go on.
    #[error("{0}")]
    Team(String),
    /// A target that cannot be understood.
    #[error("{0}")]
    Target(String),
    /// A layout that is not known to be right for the model.
    #[error(
        "not proven right for this model: {}: choose another layout, or write it all the same with --allow-unproven",
        some(reasons)
    )]
    Unproven {
        /// Why, each reason once.
        reasons: Vec<String>,
    },
    /// A `[[map]]` rule that does not fit the checkpoint.
    #[error("map of `{rule}`: {cause}")]
    Map {
        /// What the rule replaces.
        rule: String,
        /// What does not fit.
        cause: String,
    },
    /// A tensor whose elements must not be converted.
    #[error(
        "tensor `{tensor}` of {element} cannot be converted: {cause}: leave the element types as they are"
    )]
    NotConvertible {
        /// The tensor.
        tensor: String,
        /// Its element type, as files name it.
        element: &'static str,
        /// Why.
        cause: String,
    },
    /// A file was changed while it was being read.
    #[error("{}: was changed while it was being read: start again", file.display())]
    Changed {
        /// The file.
        file: PathBuf,
    },
    /// The caller asked for the end.
    #[error("stopped before the end, as asked: what was written is kept for a resume")]
    Stopped,
    /// Two tensors of one rank that would have the same name in its file.
    #[error("rank {rank}: two tensors are called `{name}` there")]
    NameClash {
        /// The rank.
        rank: u32,
        /// The name.
        name: String,
    },
}

/// A fault in the bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Malformed {
    cause: String,
}

impl Malformed {
    pub(crate) fn new(cause: impl Into<String>) -> Self {
        Self { cause: cause.into() }
    }

    /// The error of the file at `path`.
    pub(crate) fn in_file(self, path: &Path) -> CheckpointError {
        CheckpointError::Damaged { file: path.to_owned(), cause: self.cause }
    }
}

impl From<&str> for Malformed {
    fn from(cause: &str) -> Self {
        Self::new(cause)
    }
}

impl From<String> for Malformed {
    fn from(cause: String) -> Self {
        Self { cause }
    }
}

/// Returns [`CheckpointError::Stopped`] if `stop` was set.
pub(crate) fn check_stop(stop: &AtomicBool) -> Result<(), CheckpointError> {
    if stop.load(Ordering::Relaxed) { Err(CheckpointError::Stopped) } else { Ok(()) }
}

/// The first reasons, and how many more there are.
fn some(reasons: &[String]) -> String {
    let listed =
        reasons.iter().take(REASONS_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    match reasons.len().saturating_sub(REASONS_MAX) {
        0 => listed,
        more => format!("{listed}; and {more} more"),
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": make room and continue with --resume"
        }
        _ => "",
    }
}

impl From<LayoutError> for CheckpointError {
    fn from(error: LayoutError) -> Self {
        Self::Reshard(Box::new(error))
    }
}
