//! Integration tests of the Vulkan backend, by what they exercise.
//!
//! - `conformance`: the suite that every backend passes; as it is, with memory that the host does
//!   not reach, and with the validation layers in between
//! - `kernels`: what the compiler and the limits of a device say
//! - `order`: lanes and timelines of others, devices that go with work pending, when commands ran
//! - `recordings`: commands that are written down once
//! - `transfers`: copies from and to memory of the host
//!
//! Where `CI` is set, a machine without a driver fails these tests; elsewhere they say that they
//! are skipped.

mod conformance;
mod kernels;
mod order;
mod recordings;
mod support;
mod transfers;
