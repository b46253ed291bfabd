//! Programs: traces that name kernels and initial contents, and can therefore be run.
//!
//! [`Program::load`] reads a trace and checks every kernel, scalar, argument, file and device in it
//! before anything runs. The same program then runs serially ([`Program::run_serially`]), as a
//! plan, or as a stream; all give the same bytes. Captures, analyses and runs
//! is one format.
//!
//! ```
//! use syncline_program::{ProgramOptions, Program};
//!
//! let text = r#"{"format": "syncline-trace", "version": 1,
//!   "buffers": [{"id": 0, "name": "x", "bytes": 16, "init": {"fill": 1.5, "dtype": "f32"}}],
//!   "tasks": [{"id": 0, "kernel": "scale", "scalars": {"alpha": 2.0}, "args": [
//!     {"access": "input", "buffer": 0, "offset": 0, "dtype": "f32", "shape": [4], "strides": [4]},
//!     {"access": "output_existing", "buffer": 0, "offset": 0, "dtype": "f32", "shape": [4],
//!      "strides": [4]}]}]}"#;
//! let program = Program::from_bytes(text.as_bytes(), &ProgramOptions::default())?;
//! let run = program.run_serially()?;
//! assert_eq!(run.contents[0], 3.0f32.to_le_bytes().repeat(4));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(unreachable_pub)]

mod choices;
mod compare;
mod error;
mod examples;
mod executed;
mod initial;
mod intermediates;
mod machine_form;
pub mod npy;
mod opened;
mod overheads;
mod planned;
mod program;
mod progress;
mod recorded;
mod resolve;
mod run;
mod simulated;
mod streamed;
mod timed;
mod user_kernels;

pub use compare::{FloatTolerance, Mismatch, compare};
pub use error::{ProgramError, ProgramRunError};
pub use examples::{EXAMPLES, Example, ExampleError, Setting, example};
pub use executed::{ByteReuse, Executed};
pub use intermediates::Keep;
pub use machine_form::{SimulatedMachine, machine_from_toml};
pub use program::{Program, ProgramOptions, ProgramTask};
pub use progress::{RunProgress, WorkerProgress};
pub use run::{CopyTiming, ProgramRun, RunOptions, TaskTiming};
