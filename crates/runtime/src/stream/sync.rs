//! The primitives that the lock-free parts are made of, replaceable by those of a model checker.
//!
//! With `--cfg loom` the atomics come from `loom`, so that `fanout.rs` and `index_ring.rs` are explored over all
//! interleavings. Everything else uses the standard library directly.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
