//! The world: this process's part of an MPI job.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use syncline_sync::{ignore_poison, lock};
use syncline_transport::{Failure, Phase, Wait};

use crate::call::{self, Comm, MpiError, RemoteMemory, Request, Turn};
use crate::control::{to_bytes, to_words};
use crate::join::JoinError;

/// MPI can be started once in the life of a process.
static STARTED: AtomicBool = AtomicBool::new(false);

/// How long the end of a job waits for processes that do not come.
const SETTLE: Duration = Duration::from_secs(2);

/// This process's part of an MPI job, as `mpirun` or another launcher started it.
///
/// Dropping the world and every endpoint made from it ends MPI, where all processes do so. Where
/// one does not come, this process ends without it, and the launcher ends the job.
#[derive(Clone)]
pub struct World {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World({} of {}, {})", self.rank(), self.size(), self.library())
    }
}

/// What all groups of this process share.
pub(crate) struct Shared {
    turn: Mutex<()>,
    pub rank: usize,
    pub size: usize,
    /// The lowest rank on the host of each rank.
    pub hosts: Vec<usize>,
    library: String,
    /// Whether this host has more PEs than cores.
    is_crowded: bool,
    joins: AtomicU64,
    /// Memory for others to put into. Freeing it takes everyone, so it stays for the next group.
    pub inbox: Mutex<Option<Arc<RemoteMemory>>>,
}

impl World {
    /// Starts MPI in this process; every process of the job must.
    pub fn start() -> Result<Self, JoinError> {
        if STARTED.swap(true, Ordering::AcqRel) {
            return Err(JoinError::Started);
        }
        let has_threads = call::init()?;
        let turn = Mutex::new(());
        let (rank, size, library, host) = {
            let turn = lock(&turn);
            let world = Comm::world();
            world.return_errors(&turn)?;
            let (rank, size) = world.rank_and_size(&turn)?;
            (rank, size, call::library(&turn), world.split_by_host(&turn)?)
        };
        let mut shared = Shared {
            turn,
            rank,
            size,
            hosts: Vec::new(),
            library,
            is_crowded: false,
            joins: AtomicU64::new(0),
            inbox: Mutex::new(None),
        };
        if !has_threads {
            return Err(JoinError::Threads { library: shared.library.clone() });
        }
        let wait = Wait::timeout(Duration::from_secs(60)).until(Phase::Join, 0);
        // Within a host ranks are in the order of the world: the first that it hears of is the
        // lowest.
        let (_, on_host) = host.rank_and_size(&shared.turn())?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        shared.is_crowded = on_host > cores;
        let leader = shared.gather_words(host, on_host, &[rank as u64], &wait)?[0][0];
        let leaders = shared.gather_words(Comm::world(), size, &[leader], &wait)?;
        shared.hosts = leaders.iter().map(|words| words[0] as usize).collect();
        Ok(Self { shared: Arc::new(shared) })
    }

    /// This process.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// Processes of the job.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// Hosts that they run on.
    pub fn hosts(&self) -> usize {
        let leads = |(rank, leader): (usize, &usize)| rank == *leader;
        self.shared.hosts.iter().enumerate().filter(|host| leads(*host)).count()
    }

    /// Name and version of the MPI library.
    pub fn library(&self) -> &str {
        &self.shared.library
    }

    /// What every process has to say, by rank; all must call it.
    pub fn gather(&self, text: &str, wait: &Wait<'_>) -> Result<Vec<String>, Failure> {
        let lengths =
            self.shared.gather_words(Comm::world(), self.size(), &[text.len() as u64], wait)?;
        let longest = lengths.iter().map(|words| words[0]).max().unwrap_or(0) as usize;
        let mut mine = text.as_bytes().to_vec();
        mine.resize(longest.max(1), 0);
        let all = self.shared.gather(Comm::world(), self.size(), mine, wait)?;
        let each = all.iter().zip(&lengths);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(each.map(|(bytes, length)| text(&bytes[..length[0] as usize])).collect())
    }

    /// Ends every process of the job with this status: what is left to do after a failure, when
    /// others may not be able to end MPI together with this process.
    pub fn abort(&self, status: i32) -> ! {
        call::abort(status);
        std::process::exit(status)
    }
}

impl Shared {
    /// The pauses of somebody who waits.
    pub(crate) fn pause(&self) -> Pause {
        Pause { looks: 0, is_crowded: self.is_crowded }
    }

    /// The right to call MPI; whoever has it, has it alone.
    pub(crate) fn turn(&self) -> Turn<'_> {
        lock(&self.turn)
    }

    /// A number that no earlier join had.
    pub(crate) fn next_join(&self) -> u64 {
        self.joins.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn local(&self, error: &MpiError) -> Failure {
        Failure::Local { rank: self.rank, message: error.to_string() }
    }

    /// Waits until `request` has completed; on `Err` it has not, and what it uses must stay.
    pub(crate) fn complete(&self, request: &mut Request, wait: &Wait<'_>) -> Result<(), Failure> {
        let mut pause = self.pause();
        loop {
            let done = request.is_done(&self.turn()).map_err(|error| self.local(&error))?;
            if done {
                return Ok(());
            }
            if let Some(failure) = wait.expired(self.rank) {
                return Err(failure);
            }
            pause.next();
        }
    }

    /// Waits until all processes of `comm` are here.
    pub(crate) fn barrier(&self, comm: Comm, wait: &Wait<'_>) -> Result<(), Failure> {
        let request = comm.barrier(&self.turn());
        self.complete(&mut request.map_err(|error| self.local(&error))?, wait)
    }

    /// Everyone's bytes, by rank; all pass as many.
    pub(crate) fn gather(
        &self,
        comm: Comm,
        size: usize,
        mine: Vec<u8>,
        wait: &Wait<'_>,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let mut all = vec![0; mine.len() * size];
        // SAFETY: both stay until the request has completed, or for ever.
        let request = unsafe { comm.gather_all(&mine, &mut all, &self.turn()) };
        let mut request = request.map_err(|error| self.local(&error))?;
        if let Err(failure) = self.complete(&mut request, wait) {
            std::mem::forget((mine, all));
            return Err(failure);
        }
        Ok(all.chunks(mine.len()).map(<[u8]>::to_vec).collect())
    }

    /// Everyone's words, by rank; all pass as many.
    pub(crate) fn gather_words(
        &self,
        comm: Comm,
        size: usize,
        mine: &[u64],
        wait: &Wait<'_>,
    ) -> Result<Vec<Vec<u64>>, Failure> {
        let all = self.gather(comm, size, to_bytes(mine), wait)?;
        Ok(all.iter().map(|bytes| to_words(bytes)).collect())
    }

    /// A communicator of its own for a group.
    pub(crate) fn duplicate(&self, wait: &Wait<'_>) -> Result<Comm, Failure> {
        let mut made = Box::new(Comm::null());
        // SAFETY: the place stays until the request has completed, or for ever.
        let request = unsafe { Comm::world().duplicate(&mut made, &self.turn()) };
        let mut request = request.map_err(|error| self.local(&error))?;
        if let Err(failure) = self.complete(&mut request, wait) {
            std::mem::forget(made);
            return Err(failure);
        }
        let comm = Comm::from_raw(*made);
        comm.return_errors(&self.turn()).map_err(|error| self.local(&error))?;
        Ok(comm)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Ending MPI waits for everyone without a deadline: only where everyone is seen to come.
        if self.barrier(Comm::world(), &Wait::timeout(SETTLE)).is_err() {
            return;
        }
        let inbox = ignore_poison(self.inbox.get_mut()).take();
        let turn = self.turn();
        if let Some(memory) = inbox.and_then(Arc::into_inner) {
            // A refusal leaves it to the end of MPI.
            let _ = memory.free(&turn);
        }
        let _ = call::finalize(&turn);
    }
}

/// Waiting where nothing can wake a thread: MPI has no such thing, so whoever waits looks again and
/// again, ever less often.
pub(crate) struct Pause {
    looks: u32,
    is_crowded: bool,
}

impl Pause {
    pub(crate) fn next(&mut self) {
        self.looks += 1;
        match self.looks {
            // A message under way arrives within that, where every PE has a core.
            0..=32 if !self.is_crowded => std::hint::spin_loop(),
            33..=256 if !self.is_crowded => std::thread::yield_now(),
            // The peer that is waited for may need this core; yielding would hand it to another
            // that only looks.
            0..=1_024 => std::thread::sleep(Duration::from_micros(20)),
            _ => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}
