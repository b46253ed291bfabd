//! Opening files of others: no pipe blocks a reader.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file for reading, following links; refuses pipes and devices, which may block or never
/// end.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK, opening a pipe waits for its writer.
    regular(File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?)
}

/// Reads a text file that is a regular file.
pub(crate) fn read_regular(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_regular(path)?.read_to_string(&mut text)?;
    Ok(text)
}

fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}
