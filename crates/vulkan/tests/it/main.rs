//! Integration tests of the Vulkan backend, by what they exercise.
//!
//! - `conformance`: the suite that every backend passes
//!
//! Where `CI` is set, a machine without a driver fails these tests; elsewhere they say that they are skipped.

mod conformance;
mod support;
