//! Inputs: files, or standard input for `-`.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use syncline::trace::capture::CaptureEnd;
use syncline::trace::{Trace, TraceError};
use syncline_files::{read_all, read_file};

use crate::outcome::Failure;
use crate::output::note;

/// A byte-order mark in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A trace and the name of the file that it came from.
pub(crate) struct LoadedTrace {
    pub(crate) file: String,
    pub(crate) trace: Trace,
}

impl LoadedTrace {
    /// Reads a trace in either form. Of a capture that was cut off, the complete records are used,
    /// and a note says so.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let file = name_of(path);
        let bytes = read_bytes(path)?;
        let read = Trace::from_bytes(&bytes).map_err(in_file(&file))?;
        if read.end != CaptureEnd::Complete {
            let tasks = read.trace.tasks.len();
            note(&format!("note: {file}: {} ({tasks} tasks read)", read.end));
        }
        Ok(Self { file, trace: read.trace })
    }
}

/// All bytes of a file, or of standard input for `-`.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let read = || match is_standard(path) {
        true => read_all(File::from(io::stdin().as_fd().try_clone_to_owned()?)),
        false => read_file(path),
    };
    let mut bytes = read().map_err(|source| Failure::Read { file: name_of(path), source })?;
    // Editors of some systems begin texts with a mark; no form here begins with these bytes.
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

/// Names the file in an error about its content.
pub(crate) fn in_file(file: &str) -> impl Fn(TraceError) -> Failure {
    move |source| Failure::Trace { file: file.to_owned(), source: Box::new(source) }
}

/// Whether `path` stands for standard input or output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What a file is called in messages.
pub(crate) fn name_of(path: &Path) -> String {
    if is_standard(path) { "<standard input>".to_owned() } else { path.display().to_string() }
}
