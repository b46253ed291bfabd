//! Integration tests of CUDA devices.
//!
//! - `conformance`: the suite that every backend passes, on every device there is
//! - `compile`: the CUDA C of this crate through NVIDIA's compiler library, which needs no device
//!
//! Machines without a device or the library are the rule: these tests then say so and pass.

mod compile;
mod conformance;
