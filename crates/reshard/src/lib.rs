//! Resharding: from one parallel layout of named tensors to another.
//!
//! Four layers, each a plain value computed from the one before, the same on every PE: [`Layout`]
//! (who holds what) -> [`TransferPlan`] (which boxes go where) -> [`Schedule`] (batches that fit a
//! slot, in rounds where each PE sends to at most one and receives from at most one) -> execution.
//! Planning knows nothing of threads, devices or transports, and needs no exchange between PEs.
//!
//! Execution is a [`CopyService`] on each PE's endpoint of a [`transport`]: it prepares a [`Refit`]
//! from two layouts, makes a [`Destination`], and moves everything into it as often as asked, by
//! way of the [`PipelineExecutor`]. What goes wrong anywhere ends on every PE with the same
//! [`Failure`](transport::Failure).

mod boxes;
mod copy;
mod dims;
mod error;
mod execute;
mod hash;
mod json;
mod layout;
#[cfg(doctest)]
mod lifetimes;
mod number;
mod schedule;
mod service;
pub mod simulate;
mod sums;
mod transfer;
pub mod transport;

pub use dims::{Dims, NdBox};
pub use error::ReshardError;
pub use execute::{
    BindError, Destination, DestinationError, Moved, PipelineExecutor, PipelineLanes, Reading,
    Refit, Shards, Sources, Targets, Versions,
};
pub use json::write_transfers;
pub use layout::{
    Layout, LayoutBuilder, LayoutFile, Mesh, MeshLayout, NameNumbers, NamedStage, Pattern, Piece,
    Placement, Shard, ShardRule, Stage, TensorLayout, TensorRule, TensorSpec, expand_ranges,
};
pub use schedule::{Batch, DEFAULT_SLOT_BYTES, SLOT_ALIGN, Schedule, Segment};
pub use service::{CopyService, Progress, ServiceError, ServiceOptions, Target};
pub use transfer::{
    BlockScales, Conversions, CopyBox, PairTraffic, PlanOptions, PlanTensor, Recoding, Run, Runs,
    Side, Traffic, TransferOp, TransferPlan,
};
