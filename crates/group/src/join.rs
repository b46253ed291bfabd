//! Joining the group that an address names.

use std::time::Duration;

use syncline_device::CancelToken;
use syncline_transport::tcp::{self, MeetingPlace, Token};
use syncline_transport::{Transport, Wait, shm};

use super::{AddressError, GroupAddress, Launched, LaunchedError};

/// What a process says when it joins a group; `None` leaves the choice to the transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// This process. MPI and `torchrun` know it.
    pub rank: Option<usize>,
    /// How many form the group. MPI and `torchrun` know it.
    pub size: Option<usize>,
    /// Slots of each PE.
    pub depth: Option<usize>,
    /// Bytes of each slot.
    pub slot_bytes: Option<usize>,
    /// What only members of a group over TCP know; it is never sent.
    pub token: Token,
    /// How long to wait for the others.
    pub timeout: Duration,
}

impl Default for GroupOptions {
    fn default() -> Self {
        let timeout = Duration::from_secs(60);
        let (token, slots) = (Token::default(), None);
        Self { rank: None, size: None, depth: slots, slot_bytes: slots, token, timeout }
    }
}

/// A group that cannot be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinGroupError {
    /// The address cannot be read.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No address was given, and the environment has none.
    #[error(transparent)]
    Launched(#[from] LaunchedError),
    /// The rank or the size is missing.
    #[error("the group {address} needs a rank and a size: give both")]
    NoRank {
        /// The group.
        address: GroupAddress,
    },
    /// The rank or the size is not what the launcher says.
    #[error("{what} {given} was given, and {launcher} says {said}: leave it out")]
    Contradiction {
        /// Rank or size.
        what: &'static str,
        /// What the caller says.
        given: usize,
        /// Who says otherwise.
        launcher: &'static str,
        /// What that says.
        said: usize,
    },
    /// Shared memory cannot be joined.
    #[error(transparent)]
    Shm(#[from] shm::JoinError),
    /// A group over TCP cannot be joined.
    #[error(transparent)]
    Tcp(#[from] tcp::JoinError),
    /// MPI is not built in.
    #[error(transparent)]
    NoMpi(#[from] syncline_mpi::Unavailable),
    /// MPI cannot be joined.
    #[cfg(feature = "mpi")]
    #[error(transparent)]
    Mpi(#[from] syncline_mpi::JoinError),
}

/// Joins the group at `address`, and returns when it is complete; without an address, the group of
/// the processes that `torchrun` has started.
///
/// MPI can be joined once in the life of a process.
pub fn join_group(
    address: Option<&str>,
    options: &GroupOptions,
) -> Result<Box<dyn Transport>, JoinGroupError> {
    join_group_until(address, options, &CancelToken::new())
}

/// As [`join_group`], but also gives up when `cancel` is cancelled.
pub fn join_group_until(
    address: Option<&str>,
    options: &GroupOptions,
    cancel: &CancelToken,
) -> Result<Box<dyn Transport>, JoinGroupError> {
    let wait = Wait::timeout(options.timeout).cancelled_by(cancel);
    let Some(text) = address else {
        let Launched { address, rank, size } = Launched::from_env()?;
        agree("torchrun", options, rank, size)?;
        return join_as(&address, rank, size, options, &wait);
    };
    let address: GroupAddress = text.parse()?;
    if address == GroupAddress::Mpi {
        return join_mpi(options, &wait);
    }
    match (options.rank, options.size) {
        (Some(rank), Some(size)) => join_as(&address, rank, size, options, &wait),
        _ => Err(JoinGroupError::NoRank { address }),
    }
}

/// Refuses a rank or a size that a launcher knows otherwise.
fn agree(
    launcher: &'static str,
    options: &GroupOptions,
    rank: usize,
    size: usize,
) -> Result<(), JoinGroupError> {
    for (what, given, said) in [("rank", options.rank, rank), ("size", options.size, size)] {
        if let Some(given) = given.filter(|given| *given != said) {
            return Err(JoinGroupError::Contradiction { what, given, launcher, said });
        }
    }
    Ok(())
}

fn join_as(
    address: &GroupAddress,
    rank: usize,
    size: usize,
    options: &GroupOptions,
    wait: &Wait<'_>,
) -> Result<Box<dyn Transport>, JoinGroupError> {
    match address {
        GroupAddress::Shm { name } => {
            let mut shared = shm::Options::default();
            shared.depth = options.depth.unwrap_or(shared.depth);
            shared.slot_bytes = options.slot_bytes.unwrap_or(shared.slot_bytes);
            Ok(Box::new(shm::join(name, rank, size, &shared, wait)?))
        }
        GroupAddress::Tcp { host, port, name } => {
            let meeting = MeetingPlace { host: host.clone(), port: *port, name: name.clone() };
            let mut slots = tcp::Options { token: options.token.clone(), ..Default::default() };
            slots.depth = options.depth.unwrap_or(slots.depth);
            slots.slot_bytes = options.slot_bytes.unwrap_or(slots.slot_bytes);
            Ok(Box::new(tcp::join(&meeting, rank, size, &slots, wait)?))
        }
        GroupAddress::Mpi => join_mpi(options, wait),
    }
}

#[cfg(not(feature = "mpi"))]
fn join_mpi(_: &GroupOptions, _: &Wait<'_>) -> Result<Box<dyn Transport>, JoinGroupError> {
    Err(syncline_mpi::Unavailable.into())
}

#[cfg(feature = "mpi")]
fn join_mpi(options: &GroupOptions, wait: &Wait<'_>) -> Result<Box<dyn Transport>, JoinGroupError> {
    let world = syncline_mpi::World::start()?;
    agree("mpirun", options, world.rank(), world.size())?;
    let mut slots = syncline_mpi::Options::default();
    slots.depth = options.depth.unwrap_or(slots.depth);
    slots.slot_bytes = options.slot_bytes.unwrap_or(slots.slot_bytes);
    Ok(Box::new(world.join(&slots, wait)?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use syncline_transport::Session;

    use super::*;

    #[test]
    fn threads_join_by_each_address_and_finish_a_session() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let addresses =
            [format!("shm:address-{}", std::process::id()), format!("tcp://127.0.0.1:{port}/p")];
        for address in &addresses {
            std::thread::scope(|scope| {
                for rank in 0..2 {
                    scope.spawn(move || {
                        let options = GroupOptions {
                            rank: Some(rank),
                            size: Some(2),
                            slot_bytes: Some(4096),
                            token: Token::new("secret"),
                            ..GroupOptions::default()
                        };
                        let mut transport = join_group(Some(address), &options).unwrap();
                        assert_eq!((transport.rank(), transport.shape().slot_bytes), (rank, 4096));
                        let wait = Wait::timeout(options.timeout);
                        let session = Session::enter(&mut transport, 7, &wait).unwrap();
                        session.finish(&wait).unwrap();
                    });
                }
            });
        }
    }

    #[test]
    fn a_group_without_a_rank_and_a_contradiction_are_refused() {
        let error = join_group(Some("shm:no-rank"), &GroupOptions::default()).err().unwrap();
        assert!(error.to_string().contains("needs a rank and a size"), "{error}");
        let options = GroupOptions { rank: Some(1), ..GroupOptions::default() };
        let error = agree("mpirun", &options, 0, 2).unwrap_err();
        assert_eq!(error.to_string(), "rank 1 was given, and mpirun says 0: leave it out");
    }
}
