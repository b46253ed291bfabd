//! Opening files of others and making our own: no pipe blocks a reader, and no link leads a writer
//! elsewhere.

use std::fs::{self, File, OpenOptions};
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

/// Opens a file of our own as `options` say; refuses links, pipes and devices in its place.
pub(crate) fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    regular(options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?)
}

/// Makes a new file of our own. What has its name is removed, never written through.
pub(crate) fn create_own(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().write(true).create_new(true).open(path)
}

fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}
