//! Captures (`.sltrace`): the binary form of a trace, written while the program runs.
//!
//! A capture is a mark, a version and records, each with its length and a checksum:
//!
//! ```text
//! file    = mark (8 bytes) version (u16) zero (u16) record*
//! record  = kind (u8) length (u24) check (u8) payload (length bytes)
//!           crc32 (u32, of all before it in the record)
//! ```
//!
//! Numbers are little-endian; inside payloads they are varints of seven bits a byte, signed ones
//! zigzag. The highest bit of a kind says that a reader which does not know it may skip the record.
//! What a payload holds is said in `records.rs`.
//!
//! **What a killed process leaves.** Records go to the file whole, in one `write`, as soon as
//! [`CaptureOptions::flush_bytes`] have gathered or [`CaptureOptions::flush_interval`] has passed
//! since the last write, checked every few records. A process that is killed loses at most what
//! has gathered since; the file can be read up to its last whole record.
//! [`CaptureWriter::flush`] empties the buffer at once: call it before a long pause.
//!
//! ```
//! use syncline_trace::capture::{CaptureEnd, CaptureReader, CaptureWriter, TaskLabel};
//! use syncline_deps::DepInputs;
//! use syncline_tensor::{Arg, BufferId, Dtype, TaskId, View};
//!
//! let mut writer = CaptureWriter::new(Vec::new())?;
//! let buffer = BufferId(7);
//! writer.buffer(buffer, 64, Some("x"))?;
//! let args = [Arg::inout(buffer, View::contiguous(Dtype::F32, &[16])?)];
//! let inputs = DepInputs { args: &args, deps: &[] };
//! writer.submit(TaskId::new(0, 0), TaskLabel::named("scale"), &inputs)?;
//! let bytes = writer.finish()?;
//!
//! let read = CaptureReader::read(&bytes)?;
//! assert_eq!(read.end, CaptureEnd::Complete);
//! assert_eq!(read.trace.tasks[0].label(), "scale");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod convert;
mod frame;
mod gathered;
mod names;
mod reader;
mod records;
mod writer;

pub use reader::{CaptureEnd, CaptureReader, Captured};
pub use writer::{CaptureOptions, CaptureWriter, TaskLabel};

/// The first bytes of every capture: not text, and damaged by anything that translates line ends.
pub const MARK: [u8; 8] = *b"\x89SLT\r\n\x1a\n";
/// The version of the format that is written, and the only one that is read.
pub const VERSION: u16 = 1;
