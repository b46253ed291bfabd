//! Dependency discovery from the outside.
//!
//! - `support`: programs as data, what runs them, and the brute-force oracle
//! - `shapes`: classic task graphs with their exact edges
//! - `accesses`: one small program for every rule about accesses, scopes, explicit dependencies and
//!   retirement
//! - `programs`: random programs against the oracle
//! - `errors`: everything that is refused, and that nothing of it remains
//! - `memory`: what is held follows what is live; cost does not follow what was submitted
//! - `random`: random views and traces, shared by the tests of traces
//! - `trace_forms`: JSON and captures give back what they were given
//! - `trace_bad_input`: every bad input, and the error that names its place
//! - `trace_damage`: damaged captures give an error or a prefix, never a panic
//! - `trace_capture`: a killed process, and captures switched on and off
//! - `trace_replay`: replay against the library's oracle, and that oracle against simpler ones
//!
//! That the warm path allocates nothing is in `tests/allocations.rs`: counting allocations takes a
//! process of its own.

mod accesses;
mod errors;
#[path = "../../examples/traces/programs.rs"]
mod examples;
mod memory;
mod programs;
mod random;
mod shapes;
mod support;
mod trace_bad_input;
mod trace_capture;
mod trace_damage;
mod trace_forms;
mod trace_replay;
