//! Execution plans: a recorded [`TaskGraph`] compiled once into lanes of work, to be replayed many
//! times.
//!
//! ```text
//! TaskGraph --+
//!             +-- compile: place, move, order, wait, lay out --> ExecutionPlan
//! Machine ----+                                          (print, store, check, replay)
//! ```
//!
//! A plan is data. This crate starts no thread and touches no device: a [`Machine`] is a
//! description, a kernel is a name, memory is a number of bytes. `syncline-runtime` replays
//! plans.
//!
//! ```
//! use syncline_tensor::{Arg, Dtype, View};
//! use syncline_plan::{BufferSpec, CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskSpec};
//!
//! let mut graph = TaskGraph::new();
//! let a = graph.add_buffer(BufferSpec::external("a", 1024))?;
//! let b = graph.add_buffer(BufferSpec::temporary("b", 1024))?;
//! let view = View::contiguous(Dtype::F32, &[256])?;
//! graph.submit(&TaskSpec::new("double", &[Arg::input(a, view), Arg::output(b, view)]))?;
//! graph.submit(&TaskSpec::new("add", &[Arg::input(b, view), Arg::inout(a, view)]))?;
//!
//! let plan = ExecutionPlan::compile(&graph, &Machine::cpu(2), &CompileOptions::default())?;
//! plan.check()?;
//! // A chain stays on one lane, and order on a lane needs no wait.
//! assert_eq!(plan.waits().len(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(unreachable_pub)]

mod check;
mod compile;
mod cost;
mod forecast;
mod graph;
mod hazards;
mod machine;
mod names;
mod plan;
mod print;
mod run_waits;
mod store;
mod successors;

pub use check::{CheckError, OpSite};
pub use compile::{ByteRun, CompileError, CompileOptions, runs_of as byte_runs};
pub use cost::CostModel;
pub use forecast::{Forecast, OpCost, forecast_pools};
pub use graph::{
    BufferInfo, BufferKind, BufferSpec, DeviceChoice, GraphEdge, GraphError, TaskArg, TaskGraph,
    TaskInfo, TaskSpec,
};
pub use hazards::{OpDep, OpDeps};
pub use machine::{DeviceIndex, DeviceModel, Link, Machine, MachineError, Route};
pub use plan::{
    Copy, CopyIndex, ExecutionPlan, LaneIndex, LaneKind, Memory, MemoryIndex, MemoryPlace, Op,
    OpIndex, OpKind, PlanArg, PlanLane, TaskIndex, Wait,
};
pub use run_waits::RunWaits;
pub use store::StoreError;
