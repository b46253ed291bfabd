//! What the tests of all crates share: random numbers, seeds that can be replayed, an allocator that counts, and the one
//! rule for what a machine lacks ([`need`]).
//!
//! Never a dependency of anything but tests: `tests/shipped.rs` decides that.

mod counting;
mod need;
mod rng;
mod seeds;

pub use counting::CountingAllocator;
pub use need::{is_ci, need, succeed};
pub use rng::Rng;
pub use seeds::for_seeds;
