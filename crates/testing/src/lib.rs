//! What the tests of all crates share: random numbers, seeds that can be replayed, an allocator that counts, ranks of MPI jobs.
//!
//! Never a dependency of anything but tests and benchmarks.

mod counting;
mod ranks;
mod rng;
mod seeds;

pub use counting::CountingAllocator;
pub use ranks::RankLauncher;
pub use rng::Rng;
pub use seeds::for_seeds;
