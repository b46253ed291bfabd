//! Tests of programs.
//!
//! - `examples`: every ready program against an answer computed another way
//! - `ways`: plans and streams against the serial run, bit for bit
//! - `executed`: what a run did, copies included, as a trace
//! - `intermediates`: buffers that live in a plan's arenas
//! - `refusals`: programs that must be refused before anything runs, with the place in the file
//! - `simulated`: what a simulation learns from a recorded run
//! - `user_kernels`: kernels that a program brings along
//! - `files`: arrays in files, initial contents

mod examples;
mod executed;
mod files;
mod intermediates;
mod refusals;
mod simulated;
mod user_kernels;
mod ways;
