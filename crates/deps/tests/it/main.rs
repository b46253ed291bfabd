//! Dependency discovery from the outside.
//!
//! - `support`: programs as data, what runs them, and the brute-force oracle
//! - `shapes`: classic task graphs with their exact edges
//! - `accesses`: one small program for every rule about accesses, scopes, explicit dependencies and
//!   retirement
//! - `programs`: random programs against the oracle
//! - `partial`: views that overlap in part, of every kind, against the oracle; flat however long
//! - `errors`: everything that is refused, and that nothing of it remains
//! - `memory`: memory follows the live tasks, cost does not follow the submitted ones
//!
//! That the warm path allocates nothing is in `tests/allocations.rs`: counting allocations takes a
//! process of its own.

mod accesses;
mod errors;
mod memory;
mod partial;
mod programs;
mod shapes;
mod support;
