//! Layouts of named tensors over the PEs of a group, and plans from one layout to another.
//!
//! Three layers, each a plain value computed from the one before, the same on every PE: [`Layout`]
//! (which PE holds what) -> [`TransferPlan`] (which boxes go where) -> [`Schedule`] (batches that
//! fit a slot, in rounds where each PE sends to at most one PE and receives from at most one).
//! Planning needs no exchange between PEs.
//!
//! This crate must never know of threads, devices and transports: `syncline-reshard` executes what
//! is planned here, and [`simulate`] predicts how long that takes on a cluster.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod boxes;
mod dims;
mod error;
mod hash;
#[cfg(feature = "json")]
mod json;
mod layout;
#[cfg(feature = "json")]
mod number;
mod schedule;
pub mod simulate;
mod transfer;

pub use dims::{Dims, NdBox};
pub use error::LayoutError;
pub use hash::Fingerprint;
#[cfg(feature = "json")]
pub use json::write_transfers;
#[cfg(feature = "json")]
pub use layout::LayoutFile;
pub use layout::{
    BlockRule, Layout, LayoutBuilder, Mesh, MeshLayout, NameNumbers, NamePattern, NamedStage,
    Piece, Placement, Shard, ShardRule, Stage, TensorLayout, TensorRule, TensorSpec, expand_ranges,
};
pub use schedule::{Batch, DEFAULT_SLOT_BYTES, SLOT_ALIGN, SUM_BYTES, Schedule, Segment};
pub use transfer::{
    BlockScales, Conversions, CopyBox, PairTraffic, PlanOptions, PlanTensor, Recoding, Traffic,
    TransferOp, TransferPlan,
};
