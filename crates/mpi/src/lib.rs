//! A transport between processes over an installed MPI.
//!
//! A `World` is this process's part of an MPI job; `World::join` makes an `MpiEndpoint` of it,
//! which `CopyService` and everything above use like any other
//! transport. `README.md` beside this file explains the protocol. This crate must never know of
//! files or of the command line.
//!
//! Without the feature `mpi` the crate builds on every machine, has none of that, and says so:
//! [`check`].
//!
#![cfg_attr(
    feature = "mpi",
    doc = "```no_run
use std::time::Duration;
use syncline_mpi::{Options, World};
use syncline_transport::Wait;

let world = World::start()?;
let endpoint = world.join(&Options::default(), &Wait::timeout(Duration::from_secs(60)))?;
# Ok::<(), syncline_mpi::JoinError>(())
```"
)]
#![warn(unreachable_pub)]

#[cfg(feature = "mpi")]
mod call;
#[cfg(any(feature = "mpi", fuzzing))]
mod control;
#[cfg(feature = "mpi")]
mod endpoint;
#[cfg(feature = "mpi")]
mod inbox;
#[cfg(feature = "mpi")]
mod join;
mod launcher;
#[cfg(feature = "mpi")]
mod lines;
#[cfg(feature = "mpi")]
mod probe;
#[cfg(feature = "mpi")]
mod progress;
#[cfg(feature = "mpi")]
mod world;

#[cfg(feature = "mpi")]
pub use call::MpiError;
#[cfg(feature = "mpi")]
pub use endpoint::MpiEndpoint;
#[cfg(feature = "mpi")]
pub use join::{JoinError, Options, Way};
pub use launcher::RankLauncher;
#[cfg(feature = "mpi")]
pub use probe::Probe;
#[cfg(feature = "mpi")]
pub use world::World;

/// This build has no MPI in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error(
    "this program was built without MPI: install openmpi-bin, libopenmpi-dev and libclang-dev (or MPICH's), and build it with --features mpi"
)]
pub struct Unavailable;

/// Whether this build can use MPI; if not, what to install.
///
/// ```
/// assert_eq!(syncline_mpi::check().is_ok(), cfg!(feature = "mpi"));
/// ```
pub fn check() -> Result<(), Unavailable> {
    if cfg!(feature = "mpi") { Ok(()) } else { Err(Unavailable) }
}

/// Reads `bytes` as a message of another PE, for the fuzz target of messages.
#[cfg(fuzzing)]
#[doc(hidden)]
pub fn fuzz_control(bytes: &[u8]) {
    use control::{Control, to_bytes, to_words};
    let again = |message: &Control| {
        let words = to_words(&to_bytes(&message.encode()));
        assert!(words.len() <= control::WORDS_MAX);
        Control::decode(&words).expect("what is read can be written")
    };
    if let Some(message) = Control::decode(&to_words(bytes)) {
        // Text that was not UTF-8 or is too long is changed once.
        let once = again(&message);
        assert_eq!(again(&once), once);
    }
}
