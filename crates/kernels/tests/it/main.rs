//! Tests of the built-in kernels.
//!
//! - `against_reference`: every kernel, random shapes, dtypes, strides and scalars, against the
//!   plain reference
//! - `exact`: integers and aliasing arguments, bit for bit
//! - `refusals`: calls that must be refused before anything runs
//! - `wrong_calls`: every kernel on every backend, called at random: an error, or what the
//!   reference says
//! - `devices`: every kernel on real devices, against the plain reference and against the CPU
//! - `sources`: every variant in WGSL, parsed and validated
//! - `foreign`: a kernel from a shared object, compiled by the test
//! - `cases`: random calls, and what must come out of them
//! - `support`: arguments in memory of the test's own

mod against_reference;
mod cases;
mod devices;
mod exact;
mod foreign;
mod refusals;
mod sources;
mod support;
mod wrong_calls;
