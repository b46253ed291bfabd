//! Joining: a group of all processes of the world, with the way that suits them.

use syncline_transport::{Endpoint, Failure, Phase, Shape, Wait, shm};

use crate::call::MpiError;
use crate::endpoint::{Group, MpiEndpoint, Node};
use crate::inbox::Inbox;
use crate::probe::Probe;
use crate::world::World;

/// How data reaches PEs of other hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// By puts or by messages, whichever a measurement finds better; on one host through its
    /// memory.
    #[default]
    Auto,
    /// One-sided puts, each completed for its pair alone.
    Put,
    /// Messages that the receiver takes.
    Messages,
}

/// The parameters of a group: the same on every PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Slots of each PE; two overlap packing with unpacking.
    pub depth: usize,
    /// Bytes of each slot.
    pub slot_bytes: usize,
    /// How data reaches PEs of other hosts.
    pub way: Way,
    /// Whether PEs of one host write each other's destinations directly.
    pub share_memory: bool,
}

impl Default for Options {
    /// Two large slots: between hosts every message has a price of its own.
    fn default() -> Self {
        Self { depth: 2, slot_bytes: 1 << 20, way: Way::Auto, share_memory: true }
    }
}

/// A group that cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// MPI cannot be started twice.
    #[error("MPI was started before in this process: keep the world, and join again from it")]
    Started,
    /// The library allows one thread only.
    #[error("{library} was built without threads, and this transport needs MPI_THREAD_SERIALIZED")]
    Threads {
        /// The library.
        library: String,
    },
    /// Parameters that make no group.
    #[error("no group of {0}: at least 1 slot and 64 bytes, and less than 2 GiB in a slot")]
    Shape(Shape),
    /// Puts were asked for, and there are none.
    #[error("the MPI library has no memory for puts on some PE: use messages, or let it choose")]
    NoPuts,
    /// MPI said no.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// The group failed before it was complete.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl World {
    /// Joins the group of all processes, and returns when all have joined; each calls it as often
    /// as the others.
    pub fn join(&self, options: &Options, wait: &Wait<'_>) -> Result<MpiEndpoint, JoinError> {
        let world = &self.shared;
        let wait = &wait.until(Phase::Join, 0);
        let (rank, size) = (world.rank, world.size);
        let Options { depth, slot_bytes, way, share_memory } = *options;
        let shape = Shape { size, depth, slot_bytes };
        let is_sensible = depth >= 1 && (64..i32::MAX as usize - 4096).contains(&slot_bytes);
        let comm = world.duplicate(wait)?;
        let gather = |words: &[u64]| world.gather_words(comm, size, words, wait);
        let name = u64::from(std::process::id()) << 32 | world.next_join();
        let mine = [depth as u64, slot_bytes as u64, way as u64, share_memory.into(), name];
        let all = gather(&mine)?;
        // Compared with the first PE's by all alike: so all return the same.
        if let Some(other) = all.iter().position(|words| words[..4] != all[0][..4]) {
            return Err(mismatch(size, other, &all[0], &all[other]).into());
        }
        if !is_sensible {
            return Err(JoinError::Shape(shape));
        }
        let node = match share_memory && (size == 1 || self.hosts() < size) {
            true => self.join_host(all[0][4], options, wait),
            false => None,
        };
        let joined = gather(&[node.is_some().into()])?;
        let host = world.hosts[rank];
        let shares = |peer: usize| world.hosts[peer] == host && joined[peer][0] == 1;
        let on_host = |peer: &usize| world.hosts[*peer] == host;
        let is_shared = (0..size).filter(on_host).all(shares);
        let node = node.filter(|_| is_shared);
        let is_one_host = joined.iter().all(|words| words[0] == 1) && self.hosts() == 1;
        let node = match node {
            Some(endpoint) if is_one_host && way == Way::Auto => {
                return Ok(MpiEndpoint::on_one_host(world.clone(), endpoint));
            }
            node => node.map(|endpoint| Node::new(endpoint, &world.hosts, rank)),
        };
        let one_word = |word| Ok(gather(&[word])?.iter().map(|words| words[0]).collect());
        let inbox = match way == Way::Messages || size == 1 {
            true => None,
            false => Inbox::open(world, comm, shape, one_word)?,
        };
        if way == Way::Put && size > 1 && inbox.is_none() {
            return Err(JoinError::NoPuts);
        }
        let probe = match &inbox {
            Some(inbox) if way == Way::Auto => {
                Some(Probe::measure(world, comm, shape, inbox, wait)?)
            }
            _ => None,
        };
        let puts = way == Way::Put || probe.is_some_and(|probe| probe.prefers_put());
        let inbox = inbox.filter(|_| puts);
        world.barrier(comm, wait)?;
        Ok(MpiEndpoint::over(Group::new(world.clone(), comm, shape, node, inbox), probe))
    }

    /// The group of this host's PEs, who share memory.
    fn join_host(&self, name: u64, options: &Options, wait: &Wait<'_>) -> Option<Endpoint> {
        let hosts = &self.shared.hosts;
        let host = hosts[self.rank()];
        let on_host: Vec<usize> = (0..hosts.len()).filter(|rank| hosts[*rank] == host).collect();
        let place = on_host.iter().position(|rank| *rank == self.rank())?;
        let options = shm::Options {
            depth: options.depth,
            slot_bytes: options.slot_bytes,
            ..Default::default()
        };
        // Where there is no memory to share, there are still messages.
        shm::join(&format!("mpi-{name:x}-{host}"), place, on_host.len(), &options, wait).ok()
    }
}

fn mismatch(size: usize, rank: usize, expected: &[u64], got: &[u64]) -> Failure {
    let shape =
        |words: &[u64]| Shape { size, depth: words[0] as usize, slot_bytes: words[1] as usize };
    if expected[..2] == got[..2] {
        let message = "joined with another way than PE 0: every PE must pass the same".to_owned();
        return Failure::Local { rank, message };
    }
    Failure::GroupMismatch { rank, expected: shape(expected), got: shape(got) }
}
