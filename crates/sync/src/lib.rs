//! Parking and waking threads, and what goes with it.
//!
//! - [`EventCount`]: parks threads until something may have changed, in one process or across
//!   processes. `event_count/README.md` has the proof that no wake-up is lost.
//! - [`Sleepers`]: threads that take work, parked until they are handed a permit.
//! - [`Spin`], [`Polls`]: how often a thread checks before it parks; all thresholds stand there.
//! - [`blocking`]: threads of a pool that block in the middle of their work.
//! - [`lock`], [`ignore_poison`]: locks that outlive a panic.
//! - [`CachePadded`], [`prefetch`]: cache lines.
//! - [`barrier`]: a memory barrier that costs only the side that passes it rarely.
//! - [`shim`]: atomics, locks and threads, of a model checker where one is in use.
//!
//! This crate knows of no devices, tasks or files.

#![warn(unreachable_pub)]

pub mod barrier;
pub mod blocking;
pub mod prefetch;
pub mod shim;

mod event_count;
mod poison;
mod polls;
mod sleepers;
mod spin;

pub use crossbeam_utils::CachePadded;
#[cfg(any(target_os = "linux", loom, shuttle))]
pub use event_count::AcrossProcesses;
pub use event_count::{EventCount, OneProcess, Sharing};
pub use poison::{Lock, ignore_poison, lock};
pub use polls::{Polls, pause};
pub use sleepers::Sleepers;
pub use spin::{Spin, processors};
