//! Traces: recorded submissions as plain data that can be written, read, analysed and replayed.
//!
//! A [`Trace`] has a JSON form, for people and other languages, and a binary one ([`capture`]), for
//! programs that record themselves while they run. Both hold the same data, including the members
//! that are for other programs (`x-`): converting one into the other and back changes nothing.
//!
//! ```
//! use syncline_trace::Trace;
//!
//! let text = r#"{"format": "syncline-trace", "version": 1,
//!   "buffers": [{"id": 0, "bytes": 64}],
//!   "tasks": [{"id": 0, "name": "fill", "scope": "auto", "deps": [], "args": [
//!     {"access": "output", "buffer": 0, "offset": 0, "dtype": "f32", "shape": [16],
//!      "strides": [4]}]}]}"#;
//! let trace = Trace::from_json(text.as_bytes())?;
//! assert_eq!(trace.tasks[0].args[0].arg.view.bytes(), 64);
//! assert_eq!(Trace::from_json(trace.to_json().as_bytes())?, trace);
//! # Ok::<(), syncline_trace::TraceError>(())
//! ```
//!
//! This crate knows dependency discovery, and nothing of devices, threads or kernels.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod capture;
mod capturing;
mod edges;
mod error;
mod json;
mod json_task;
mod json_write;
mod known;
mod member;
mod model;
mod naming;
mod replay;
mod scopes;
mod validate;

pub use capturing::Capturing;
pub use edges::{read_edges, write_edges};
pub use error::{Place, TraceError};
pub(crate) use json::device;
pub use model::{Extra, Trace, TraceArg, TraceBuffer, TraceLane, TraceScope, TraceTask, Unwritten};
pub use naming::Naming;
pub use replay::{ReplayError, Replayed, replay, replay_edges};
pub(crate) use scopes::{ScopeStep, ScopeWalk};
