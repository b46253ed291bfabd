//! The stream runtime: tasks run while others are still being submitted, in bounded memory.
//!
//! Some programs cannot record first: shapes depend on data, or the graph never ends. A [`Stream`]
//! finds what each [`Task`] must wait for as it is submitted, runs it as soon as that has ended,
//! and takes its slot, its edges and its memory back at once, in whatever order tasks end. Where
//! one of them is used up, the submitting thread helps to run tasks until there is room.
//!
//! What can never go on is refused with an error when it is found, by looking at what waits for
//! what and never at the clock. A task that fails takes those with it that depend on it, and
//! nothing else.
//!
//! `README.md` beside this file has the protocols and the arguments why nothing is lost.
//!
//! ```
//! use syncline_tensor::{Dtype, View};
//! use syncline_runtime::stream::{Stream, StreamOptions, Task};
//!
//! let stream = Stream::new(StreamOptions::default())?;
//! let counter = stream.buffer(4)?;
//! let view = View::contiguous(Dtype::U32, &[1])?;
//! for _ in 0..1000 {
//!     stream.submit(Task::new("count").inout(&counter, view).body(|args| {
//!         args.slice_mut::<u32>(0).map(|count| count[0] += 1)
//!     }))?;
//! }
//! stream.wait_all()?;
//! assert_eq!(stream.read(&counter)?.as_slice::<u32>()?, [1000]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod body;
mod buffer;
#[cfg(feature = "capture")]
mod capture;
#[cfg(not(feature = "capture"))]
#[path = "no_capture.rs"]
mod capture;
mod children;
mod circle;
mod context;
mod error;
mod exclusion;
mod failure;
mod fanout;
mod handle;
mod heap;
mod holds;
mod home;
mod index_ring;
mod options;
mod pick;
mod ready;
mod ring;
mod run;
mod scope;
mod shared;
mod sleep;
mod slot;
mod stats;
mod submit;
mod task;
mod task_table;
mod tuning;
mod wait;
mod work;
mod worker;

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, shuttle))]
mod shuttle_models;

pub use buffer::{HostRead, HostWrite};
pub use context::TaskContext;
pub use error::{Cause, Failure, StreamError};
pub use handle::{Stream, TaskHandle};
pub use options::StreamOptions;
pub use scope::{Scope, ScopeOptions};
pub use stats::{HighWater, StreamStats};
pub use task::Task;
