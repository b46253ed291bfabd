//! The transport between processes of any hosts, over TCP.
//!
//! Processes that know one address join a group there: the first that can listen at it keeps the
//! list of members until all have come. Then every two members have connections of their own, and
//! the address is free again. `README.md` beside this file explains the protocol.
//!
//! ```
//! use std::time::Duration;
//! use syncline_transport::{ControlPlane, Wait, tcp};
//!
//! // A port that is free at the moment.
//! let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
//! let (host, name) = ("127.0.0.1".to_owned(), "policy".to_owned());
//! let meeting = tcp::MeetingPlace { host, port, name };
//! let options = tcp::Options { token: tcp::Token::new("secret"), ..tcp::Options::default() };
//! std::thread::scope(|scope| {
//!     for rank in 0..2 {
//!         let (meeting, options) = (&meeting, &options);
//!         scope.spawn(move || {
//!             let wait = Wait::timeout(Duration::from_secs(10));
//!             let endpoint = tcp::join(meeting, rank, 2, options, &wait).unwrap();
//!             assert_eq!(endpoint.rank(), rank);
//!         });
//!     }
//! });
//! # Ok::<(), std::io::Error>(())
//! ```

mod endpoint;
mod frames;
mod meet;
mod poll;
mod proof;
mod streams;

use std::fmt;
use std::io;
use std::time::Duration;

pub use endpoint::TcpEndpoint;

use crate::local::{self, GroupError};
use crate::{Failure, Wait};

/// Where a group meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeetingPlace {
    /// A host name, an IPv4 address, or an IPv6 address without brackets.
    ///
    /// With `localhost` or a loopback address, only processes of one host can join.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The group: several may meet at one address, one after the other. A PE waits for another
    /// group to go, until its deadline.
    pub name: String,
}

impl fmt::Display for MeetingPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// What only the members of a group know. It is never sent.
///
/// Without one, any process that reaches the address can join.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Token(Vec<u8>);

impl Token {
    /// The token of these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "Token(none)" } else { "Token(hidden)" })
    }
}

/// The parameters of a group: the same on every PE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Slots of each PE, and messages that wait on each connection of a PE's.
    pub depth: usize,
    /// Bytes of each slot.
    pub slot_bytes: usize,
    /// Connections for data between each two PEs.
    pub streams: usize,
    /// Whether every message has a checksum that its receiver verifies.
    pub checksums: bool,
    /// A number that all must pass alike, such as the fingerprint of what they are about to do.
    pub fingerprint: u64,
    /// How long a PE may be silent before the others go on without it.
    pub silence: Duration,
    /// What only members know.
    pub token: Token,
}

impl Default for Options {
    /// Large slots: between hosts every message has a price of its own.
    fn default() -> Self {
        Self {
            depth: 4,
            slot_bytes: 1 << 20,
            streams: 2,
            checksums: true,
            fingerprint: 0,
            silence: Duration::from_secs(1),
            token: Token::default(),
        }
    }
}

/// The most connections for data between two PEs.
const STREAMS_MAX: usize = 64;

/// A group that cannot be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The name is too long or has other characters.
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
    /// Too many connections, or none.
    #[error("{0} connections between two PEs: 1 to {STREAMS_MAX}")]
    Streams(usize),
    /// Parameters that make no group.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The host has no address.
    #[error("cannot resolve {meeting}")]
    Resolve {
        /// Where the group meets.
        meeting: MeetingPlace,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The system refuses.
    #[error("cannot {what} at {meeting}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Where the group meets.
        meeting: MeetingPlace,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// Something else listens there.
    #[error("what listens at {meeting} is no group, or has another token: use another port")]
    Foreign {
        /// Where the group meets.
        meeting: MeetingPlace,
    },
    /// The group refused this PE, or failed before it was complete.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Why a connection did not become one of the group's.
#[derive(Debug)]
enum Refusal {
    /// It speaks another protocol, or does not know the token.
    Foreign,
    /// It was refused, for this reason.
    Refused(Failure),
    /// Another group is there, as this says; it may go.
    OtherGroup(Failure),
    /// It broke.
    Broken,
}

impl From<io::Error> for Refusal {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

/// Joins the group at `meeting` as PE `rank` of `size`, and returns when all PEs have joined.
pub fn join(
    meeting: &MeetingPlace,
    rank: usize,
    size: usize,
    options: &Options,
    wait: &Wait<'_>,
) -> Result<TcpEndpoint, JoinError> {
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let name = &meeting.name;
    if !(1..=200).contains(&name.len()) || !name.bytes().all(is_sound) {
        return Err(JoinError::Name(name.clone()));
    }
    let slots = local::Options { depth: options.depth, slot_bytes: options.slot_bytes };
    let (shape, _) = local::layout(size, &slots)?;
    if rank >= size {
        return Err(JoinError::Rank { rank, size });
    }
    if !(1..=STREAMS_MAX).contains(&options.streams) {
        return Err(JoinError::Streams(options.streams));
    }
    let links = meet::meet(meeting, rank, shape, options, wait)?;
    TcpEndpoint::start(rank, shape, options, links).map_err(|cause| JoinError::System {
        what: "start the thread of the group",
        meeting: meeting.clone(),
        cause,
    })
}
