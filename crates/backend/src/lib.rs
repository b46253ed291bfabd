//! What backends share: lanes over a driver's queues and events, and the suite that each backend
//! must pass.
//!
//! A driver brings queues and events; [`driver`] makes lanes and devices of them. A [`Bridge`] is
//! the one thread between the events of a driver and the timelines of others. With the feature
//! `conformance`, there is the suite that every device must pass.
//!
//! This crate knows nothing of any driver in particular, of task graphs or of plans.

#![warn(unreachable_pub)]

mod bridge;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod driver;

pub use bridge::{Bridge, BridgeWaker, Woken};
