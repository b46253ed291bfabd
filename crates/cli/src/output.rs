//! Outputs: standard output, and files that appear whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

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

/// Writes `path` beside itself first, so that what was there stays until the new one is complete.
pub(crate) fn to_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut beside = OsString::from(path);
    beside.push(format!(".part-{}", std::process::id()));
    let written = write_and_sync(beside.as_ref(), write).and_then(|()| fs::rename(&beside, path));
    written.map_err(|source| {
        // The reason is the first failure; what is left over is at worst an odd file.
        let _ = fs::remove_file(&beside);
        Failure::Write { file: path.display().to_string(), source }
    })
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

fn write_and_sync(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    write(&mut out)?;
    out.flush()?;
    out.get_ref().sync_all()
}
