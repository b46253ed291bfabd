//! The transport between processes of one host.
//!
//! Processes that know nothing of each other but a name join a group through one file in
//! `/dev/shm`, readable by their user alone. The file's name is gone as soon as the last PE has
//! joined, and the memory when the last process has ended, however it ended.
//!
//! ```no_run
//! use std::time::Duration;
//! use syncline_transport::{shm, Wait};
//!
//! let wait = Wait::timeout(Duration::from_secs(10));
//! let endpoint = shm::join("weights", 0, 4, &shm::Options::default(), &wait)?;
//! # Ok::<(), shm::JoinError>(())
//! ```

mod alive;
mod segment;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::board::{ABSENT, Board, JOINED, LEFT};
use super::endpoint::Backing;
use super::failure::Shape;
use super::local::{self, GroupError};
use super::{Endpoint, Failure, Wait, Window, WindowId};
use alive::Processes;
use segment::Segment;

/// Where and how large: the same on every PE of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Slots of each PE; two overlap packing with unpacking.
    pub depth: usize,
    /// Bytes of each slot.
    pub slot_bytes: usize,
    /// A directory on a memory file system.
    pub directory: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        let local::Options { depth, slot_bytes } = local::Options::default();
        Self { depth, slot_bytes, directory: PathBuf::from("/dev/shm") }
    }
}

/// A group that cannot be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The name cannot be a file's.
    #[error("`{0}` is no group name: 1 to 200 letters, digits, `.`, `_` and `-`")]
    Name(String),
    /// The rank is not one of the group's.
    #[error("PE {rank} in a group of {size}: ranks go from 0 to size - 1")]
    Rank {
        /// The rank asked for.
        rank: usize,
        /// The group's size.
        size: usize,
    },
    /// Somebody else has this rank.
    #[error("PE {rank} of group `{name}` is taken: give every process its own rank")]
    RankTaken {
        /// The group.
        name: String,
        /// The rank asked for.
        rank: usize,
    },
    /// Parameters that make no group.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The memory file system is full.
    #[error(
        "{} has no room for {bytes} bytes: free some, mount it larger, or lower depth or slot_bytes",
        directory.display()
    )]
    NoSpace {
        /// Where.
        directory: PathBuf,
        /// What was needed.
        bytes: usize,
    },
    /// The file is not one of ours.
    #[error("{} is not a group of this user's: {problem}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The system said no.
    #[error("cannot {what} {}: {cause}", path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        cause: Errno,
    },
    /// The group failed before it was complete; every PE that had joined returns this.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Joins the group `name` as PE `rank` of `size`, and returns when all PEs have joined.
///
/// Whoever comes first makes the group; what groups whose processes were all killed have left
/// behind is cleared away.
pub fn join(
    name: &str,
    rank: usize,
    size: usize,
    options: &Options,
    wait: &Wait<'_>,
) -> Result<Endpoint, JoinError> {
    let (shape, layout) = local::layout(
        size,
        &local::Options { depth: options.depth, slot_bytes: options.slot_bytes },
    )?;
    if rank >= size {
        return Err(JoinError::Rank { rank, size });
    }
    let segment = Segment::open_or_create(name, rank, options, layout, wait)?;
    if segment.shape != shape {
        return Err(refuse(segment, rank, shape).into());
    }
    let board = segment.board.clone();
    let member = board.member(rank);
    let mine =
        member.pid.compare_exchange(0, std::process::id(), Ordering::AcqRel, Ordering::Acquire);
    if mine.is_err() {
        return Err(JoinError::RankTaken { name: name.to_owned(), rank });
    }
    if member.state.load(Ordering::Acquire) != ABSENT
        && let Some(failure) = board.verdict().1
    {
        // It came before with other parameters, which failed the group for good.
        return Err(failure.into());
    }
    let alive = Processes::new(size);
    member.namespace.store(alive.namespace, Ordering::Relaxed);
    // Release: whoever sees this PE joined sees its process number.
    member.state.store(JOINED, Ordering::Release);
    let backing = Shared { alive, segment: Arc::new(segment) };
    let endpoint = Endpoint::new(rank, board, Box::new(backing));
    endpoint.join(wait)?;
    Ok(endpoint)
}

/// Removes what groups whose processes were all killed before they were complete have left in
/// `directory`.
///
/// Whoever makes a group does this too; for a launcher, which knows when all of its processes have
/// ended.
pub fn sweep(directory: &Path) {
    segment::sweep(directory);
}

/// How long a stranger waits for one that came before it to say why.
const STRANGER_PATIENCE: Duration = Duration::from_secs(1);

/// Fails a group that this PE cannot be part of.
fn refuse(segment: Segment, rank: usize, got: Shape) -> Failure {
    let failure = Failure::GroupMismatch { rank, expected: segment.shape, got };
    let stranger = segment.board.stranger();
    // There is one record for strangers, and the first of them has it.
    let first = &segment.board.member(stranger).state;
    let is_first =
        first.compare_exchange(ABSENT, JOINED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let until = Instant::now() + STRANGER_PATIENCE;
    while !is_first && segment.board.verdict().1.is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The first one does; another only where that was killed before it could.
    segment.board.fail(stranger, &failure);
    if rank < segment.shape.size {
        // It has come, and is gone: nobody needs to wait for it.
        let absent = &segment.board.member(rank).state;
        let _ = absent.compare_exchange(ABSENT, LEFT, Ordering::AcqRel, Ordering::Relaxed);
        segment.board.wake_all();
    }
    segment.board.verdict().1.unwrap_or(failure)
}

struct Shared {
    alive: Processes,
    segment: Arc<Segment>,
}

impl Backing for Shared {
    fn has_died(&self, board: &Board, rank: usize) -> bool {
        let member = board.member(rank);
        let namespace = member.namespace.load(Ordering::Relaxed);
        self.alive.has_died(rank, member.pid.load(Ordering::Relaxed), namespace)
    }

    fn allocate(&self, _: &Board, _: usize, bytes: usize) -> Result<Window, String> {
        Segment::allocate(&self.segment, bytes)
    }

    fn open(&self, peer: usize, id: WindowId) -> Result<Window, String> {
        self.segment.open(peer, id)
    }

    fn settled(&self) {
        self.segment.unlink();
    }
}
