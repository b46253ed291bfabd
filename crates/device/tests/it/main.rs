//! Integration tests of the device crate, by what they exercise.
//!
//! - `races`: what a host, a submitter and a worker may do to each other, and what user code may
//!   throw at them
//! - `workers`: lanes and other sources of work on few threads
//!
//! What concerns one module alone is tested beside it.

mod races;
mod workers;
