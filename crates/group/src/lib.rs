//! Groups by address: one function that joins whatever an address names.
//!
//! | address | group |
//! | --- | --- |
//! | `shm:NAME` | processes of one host, by a name |
//! | `tcp://HOST:PORT/NAME` | processes of any hosts, which meet at one address |
//! | `mpi:` | the ranks that `mpirun` has started |
//! | none | the processes that `torchrun` has started, by its variables |
//!
//! This crate knows transports and nothing of layouts, refits or the command line.
//!
//! ```
//! use syncline_group::{GroupOptions, join_group};
//!
//! let options = GroupOptions { rank: Some(0), size: Some(1), ..GroupOptions::default() };
//! let name = format!("shm:alone-{}", std::process::id());
//! let transport = join_group(Some(&name), &options)?;
//! assert_eq!(transport.shape().size, 1);
//! # Ok::<(), syncline_group::JoinGroupError>(())
//! ```

#![warn(unreachable_pub)]

mod address;
mod join;
mod launched;

pub use address::{AddressError, GroupAddress};
pub use join::{GroupOptions, JoinGroupError, join_group, join_group_until};
pub use launched::{Launched, LaunchedError};
pub use syncline_transport::tcp::Token;
