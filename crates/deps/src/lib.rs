//! Dependency discovery: from tagged tensor arguments to the edges of a task graph.
//!
//! This crate knows nothing of threads, devices or kernels.
#![forbid(unsafe_code)]

mod access;
pub mod capture;
mod capturing;
mod check;
mod dtype;
mod edge;
mod error;
mod fanin;
mod graph;
mod id;
mod map;
mod merge;
mod naming;
mod oracle;
mod packed;
mod prune;
mod region;
mod replay;
mod scope;
mod submit;
pub mod trace;
mod view;

pub use access::{Access, Arg, UnknownAccess};
pub use capturing::Capturing;
pub use check::{CheckReport, check_edges};
pub use dtype::{Dtype, UnknownDtype};
pub use edge::{Edge, EdgeFlags, EdgeKinds};
pub use error::SubmitError;
pub use fanin::{DepInputs, compute_task_fanin, register_task_outputs};
pub use graph::{ArgPair, DepEdge, DepGraph};
pub use id::{BufferId, TaskId};
pub use map::{MapStats, TensorMap};
pub use naming::Naming;
pub use oracle::{OracleError, OracleLimits, full_graph, hazards, reduced_graph};
pub use packed::PackedArgs;
pub use region::{OverlapStats, Region};
pub use replay::{ReplayError, Replayed, replay, replay_edges};
pub use scope::ScopeKind;
pub use submit::{SubmitOptions, SubmitStats, Submitter};
pub use syncline_files::nearest;
pub use view::{MAX_DIMS, View, ViewError};
