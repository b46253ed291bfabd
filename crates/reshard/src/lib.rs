//! Resharding: moves named tensors from one parallel layout to another.
//!
//! `syncline-layout` plans: from two layouts it computes which boxes go where, in batches that fit
//! a slot. This crate carries plans out over a [`Transport`](syncline_transport::Transport). A
//! [`CopyService`] on each PE's endpoint prepares a [`Refit`] from two layouts, makes a
//! [`Destination`], and moves everything into it as often as asked, by way of the
//! [`PipelineExecutor`]. What goes wrong anywhere ends on every PE with the same
//! [`Failure`](syncline_transport::Failure).
//!
//! This crate must never know of files.

mod execute;
#[cfg(doctest)]
mod lifetimes;
mod service;
mod sums;

pub use execute::{
    BindError, Destination, DestinationError, Moved, PipelineExecutor, PipelineLanes, Reading,
    Refit, RefitActivity, RefitEvent, ShardStrides, Shards, Sources, Targets, Versions,
};
pub use service::{CopyService, Progress, Requests, ServiceError, ServiceOptions, Target};
