//! A run as one self-contained HTML page: graph, swimlane, critical path, memory and the numbers.
//!
//! A [`RunRecord`] says what ran where and when, and what waited for what. [`render`] turns one
//! run, or two to compare, into a page that needs no network. The analyses behind the page
//! (critical path, gaps, what-if, memory) can be used on their own, through [`Analysis`].
//!
//! This crate must never know how a run was made: it takes times and edges as they are given.
//!
//! ```
//! use syncline_report::{RunLane, RunOp, RunOpKind, RunRecord, RunTiming, render};
//!
//! let mut run = RunRecord::new("two kernels");
//! run.lanes.push(RunLane::new("worker 0", "cpu"));
//! for (task, name) in ["load", "scale"].into_iter().enumerate() {
//!     let start_ns = 100 * task as u64;
//!     let timing = RunTiming { lane: 0, start_ns, end_ns: start_ns + 80 };
//!     let op = RunOp::new(task as u64, name, RunOpKind::Compute);
//!     run.ops.push(RunOp { timing: Some(timing), ..op });
//! }
//! let page = render(&[run])?;
//! assert!(page.starts_with("<!doctype html>"));
//! # Ok::<(), syncline_report::ReportError>(())
//! ```
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod analysis;
mod chain;
mod compare;
mod embed;
mod from_trace;
mod gaps;
mod graph;
mod layout;
mod memory;
mod outliers;
mod page;
mod path;
mod reduce;
mod run;
mod summary;
mod verdict;
mod walk;
mod whatif;

pub use analysis::Analysis;
pub use chain::{ChainStep, DataChain};
pub use compare::{Comparison, Growth, KernelChange, PathCause, PathChange, TaskChange};
pub use from_trace::Detail;
pub use gaps::{Gap, GapCause};
pub use graph::Graph;
pub use layout::GraphLayout;
pub use memory::PlaceUse;
pub use outliers::{Outlier, OutlierCause};
pub use page::render;
pub use path::{CriticalPath, LinkTimes, PathStep, StepKind};
pub use reduce::Redundant;
pub use run::{Allocation, ReportError, RunEdge, RunLane, RunOp, RunOpKind, RunRecord, RunTiming};
pub use summary::{KernelSummary, LaneUse, RunSummary};
pub use walk::PathLink;
pub use whatif::{Change, Scenario};
