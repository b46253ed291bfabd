//! Outputs: standard output, and files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;

use syncline_files::write_file;

use crate::input::is_standard;
use crate::outcome::{Failure, Outcome};

/// Runs `print` on standard output, and makes sure that everything has arrived.
pub(crate) fn to_standard_output(
    print: impl FnOnce(&mut dyn Write) -> io::Result<Outcome>,
) -> Result<Outcome, Failure> {
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let outcome = print(&mut out)?;
    out.flush()?;
    Ok(outcome)
}

/// Writes the output at `path` as [`syncline_files::Output`] does; `-` is standard output.
pub(crate) fn to_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Failure> {
    if is_standard(path) {
        let standard = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut out = BufWriter::with_capacity(64 << 10, standard);
        write(&mut out)?;
        return Ok(out.flush()?);
    }
    write_file(path, write)
        .map_err(|source| Failure::Write { file: path.display().to_string(), source })
}

/// Refuses a file whose folder is not there: before a run, not after it.
pub(crate) fn expect_folder(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.map(fs::metadata).transpose() {
        Ok(None) => Ok(()),
        Ok(Some(found)) if found.is_dir() => Ok(()),
        Ok(Some(_)) => refused(path, io::ErrorKind::NotADirectory.into()),
        Err(source) => refused(path, source),
    }
}

fn refused(path: &Path, source: io::Error) -> Result<(), Failure> {
    Err(Failure::Write { file: path.display().to_string(), source })
}
