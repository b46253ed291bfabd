//! Integration tests of what backends share, by what they exercise.
//!
//! - `bridges`: waits that are asked for while timelines move
//! - `conformance`: the suite that every backend passes, on CPU devices

mod bridges;
mod conformance;
