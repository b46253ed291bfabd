//! Dependency discovery: from tagged tensor arguments to the edges of a task graph.
//!
//! This crate knows nothing of threads, devices, kernels or files.
#![forbid(unsafe_code)]

mod check;
mod edge;
mod error;
mod fanin;
mod graph;
mod map;
mod merge;
mod oracle;
mod overlap;
mod prune;
mod scope;
mod submit;

pub use check::{CheckReport, check_edges};
pub use edge::{Edge, EdgeFlags, EdgeKinds};
pub use error::SubmitError;
pub use fanin::{DepInputs, compute_task_fanin, register_task_outputs};
pub use graph::{ArgPair, DepEdge, DepGraph, Reason};
pub use map::{MapStats, TensorMap};
pub use oracle::{OracleError, OracleLimits, RecordedTasks, full_graph, hazards, reduced_graph};
pub use overlap::OverlapStats;
pub use scope::ScopeKind;
pub use submit::{SubmitOptions, SubmitStats, Submitter};
