//! What the tests of all crates share: random numbers, seeds that can be replayed, an allocator that counts.
//!
//! Never a dependency of anything but tests and benchmarks.

mod counting;
mod rng;
mod seeds;

pub use counting::CountingAllocator;
pub use rng::Rng;
pub use seeds::for_seeds;
