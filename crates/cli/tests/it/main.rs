//! The program as users run it: the real binary, its output and its exit status.
//!
//! - `support`: running the binary, and comparing with the files in `expected/` (`SYNCLINE_BLESS=1`
//!   rewrites them)
//! - `deps_graph`: text, JSON and DOT of wired, full and reduced graphs
//! - `deps_check`: clean traces, missing and superfluous edges
//! - `deps_convert`: there and back, and captures that were cut off
//! - `programs`: four programs with known answers, by way of JSON
//! - `reshard_plan`: both forms of layouts in, text and JSON out
//! - `reshard_inspect`: what a checkpoint holds, and files of torch as sources
//! - `reshard_mpi`: the same commands as ranks of MPI, or what to install for that
//! - `reshard_run`: checkpoints converted, killed, resumed, verified
//! - `run`: programs executed, their files, and what ships in `examples`
//! - `viewer`: traces for viewers, opened by the engine of one
//! - `report`: the page's file, and refusals
//! - `reshard_refit`: a made-up model between processes and between threads
//! - `bench`: rows for tools
//! - `outputs`: links, modes, devices, pipes and full disks under every command that writes
//! - `pages`: completions, the manual, and what `doctor` finds
//! - `documents`: the examples and lists of the pages in `docs/`
//! - `hostile`: random bytes, sizes that no machine has, names that speak to the terminal, pipes
//!   and devices
//! - `claims`: the tests that ARCHITECTURE.md names exist
//! - `conventions`: documents for programs, quiet, colours, byte-order marks
//! - `bad_input`: one clear line and exit status 2
//!
//! A new command gets a module of its own.

mod bad_input;
mod bench;
mod claims;
mod conventions;
mod deps_check;
mod deps_convert;
mod deps_graph;
mod documents;
mod hostile;
mod outputs;
mod pages;
mod programs;
mod report;
mod reshard_inspect;
mod reshard_mpi;
mod reshard_plan;
mod reshard_refit;
mod reshard_run;
mod run;
mod support;
mod viewer;
