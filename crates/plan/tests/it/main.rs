//! Integration tests of plans.
//!
//! - `program`: random programs over machines of all kinds, for the other files to use.
//! - `compile`: what holds for every compiled plan; placement, copies, waits.
//! - `check`: the checker finds what was broken on purpose.
//! - `memory`: arenas, reuse, plans that do not fit.
//! - `store`: files, and damage to them.
//! - `runs`: successive runs that overlap, and ops out of their lanes' order.
//! - `forecast`: when the ops of a plan would run.
//! - `print`: text, JSON and DOT.
//! - `graph`: recording, and refusals.

mod check;
mod compile;
mod forecast;
mod graph;
mod memory;
mod print;
mod program;
mod runs;
mod store;
