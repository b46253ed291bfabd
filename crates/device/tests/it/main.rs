//! Integration tests of the device crate, by what they exercise.
//!
//! - `bridges`: waits that are asked for while timelines move
//! - `conformance`: the suite that every backend passes, on CPU devices of several shapes
//! - `races`: what a host, a submitter and a worker may do to each other, and what user code may
//!   throw at them
//!
//! What concerns one module alone is tested beside it.

mod bridges;
mod conformance;
mod races;
