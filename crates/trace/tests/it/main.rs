//! Traces and captures from the outside.
//!
//! - `random`: random views and traces, shared by the other modules
//! - `trace_forms`: conversions between JSON and captures lose nothing
//! - `trace_bad_input`: every bad input, and the error that names its place
//! - `trace_damage`: damaged captures give an error or a prefix, never a panic
//! - `trace_capture`: a killed process, and captures switched on and off
//! - `trace_replay`: replay against the library's oracle, and that oracle against simpler ones

#[path = "../../examples/traces/programs.rs"]
mod examples;
mod random;
mod trace_bad_input;
mod trace_capture;
mod trace_damage;
mod trace_forms;
mod trace_replay;
