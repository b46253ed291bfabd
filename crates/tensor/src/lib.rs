//! The vocabulary of tensors: element types, views, regions, accesses and ids.
//!
//! A [`View`] describes elements in a buffer, a [`Region`] is the set of bytes that a view touches,
//! an [`Access`] says what a task does with them, and an [`Arg`] puts the three together.
//!
//! This crate knows nothing of tasks, files, threads or devices.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod access;
mod dtype;
mod id;
mod packed;
mod region;
mod view;

pub use access::{Access, Arg, UnknownAccess};
pub use dtype::{Dtype, UnknownDtype};
pub use id::{BufferId, TaskId};
pub use packed::PackedArgs;
pub use region::{OverlapTest, Region};
pub use view::{MAX_DIMS, View, ViewError};
