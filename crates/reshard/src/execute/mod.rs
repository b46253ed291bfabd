//! Execution: one PE's part of a refit, from bindings to committed destinations.
//!
//! [`Refit`] is what a plan and a schedule come down to for one PE; [`Sources`], [`Targets`] and
//! [`Destination`] say where its tensors lie; [`PipelineExecutor`] moves them.

mod apart;
mod bindings;
mod copier;
mod delta;
mod destination;
mod device_memory;
mod lanes;
mod pipeline;
mod place;
mod program;
mod refit;
mod timeline;
mod verify;

pub use bindings::{BindError, Sources, Targets};
pub(crate) use delta::{Delta, Kept};
pub(crate) use destination::Writing;
pub use destination::{Destination, DestinationError, Reading, Versions};
pub use lanes::PipelineLanes;
pub(crate) use pipeline::{Control, Part};
pub use pipeline::{Moved, PipelineExecutor};
pub(crate) use place::Place;
pub use refit::{Refit, ShardStrides, Shards};
pub(crate) use timeline::Timeline;
pub use timeline::{RefitActivity, RefitEvent};
