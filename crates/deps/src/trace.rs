//! Traces: what was submitted, as plain data that can be written, read, analysed and run again.
//!
//! A [`Trace`] has a JSON form, for people and other languages, and a binary one
//! ([`crate::capture`]), for programs that record themselves while they run. Both hold the same
//! things, also the members that are for other programs (`x-`), so that converting one into the
//! other and back changes nothing.
//!
//! ```
//! use syncline_deps::trace::Trace;
//!
//! let text = r#"{"format": "syncline-trace", "version": 1,
//!   "buffers": [{"id": 0, "bytes": 64}],
//!   "tasks": [{"id": 0, "name": "fill", "scope": "auto", "deps": [], "args": [
//!     {"access": "output", "buffer": 0, "offset": 0, "dtype": "f32", "shape": [16], "strides": [4]}]}]}"#;
//! let trace = Trace::from_json(text.as_bytes())?;
//! assert_eq!(trace.tasks[0].args[0].arg.view.bytes(), 64);
//! assert_eq!(Trace::from_json(trace.to_json().as_bytes())?, trace);
//! # Ok::<(), syncline_deps::trace::TraceError>(())
//! ```

mod error;
mod json;
mod json_task;
mod json_write;
mod known;
mod member;
mod model;
mod scopes;
mod validate;

pub use error::{Place, TraceError};
pub(crate) use json::{check_head, device};
pub(crate) use json_write::integer;
pub(crate) use member::{Members, as_u64, shape};
pub use model::{Extra, Lane, Trace, TraceArg, TraceBuffer, TraceScope, TraceTask, Unwritten};
pub(crate) use scopes::{ScopeStep, ScopeWalk};
