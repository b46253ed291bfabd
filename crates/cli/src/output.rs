//! Outputs: the terminal, and files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;

use syncline_files::{Escaped, one_line, write_file};

use crate::input::is_standard;
use crate::outcome::{Failure, Outcome};

/// Runs `print` on standard output, and makes sure that everything has arrived. Nothing from a file
/// acts on a terminal.
pub(crate) fn to_standard_output(
    print: impl FnOnce(&mut dyn Write) -> io::Result<Outcome>,
) -> Result<Outcome, Failure> {
    let mut out = BufWriter::with_capacity(64 << 10, Escaped::new(io::stdout().lock()));
    let outcome = print(&mut out)?;
    out.flush()?;
    Ok(outcome)
}

/// Says `text` in one line on standard error, after the name of the program.
pub(crate) fn say(text: &str) {
    // There is no other place to say that it cannot be said.
    let _ = writeln!(io::stderr().lock(), "syncline: {}", one_line(text));
}

/// Writes the output at `path` as [`syncline_files::Output`] does; `-` is standard output.
pub(crate) fn to_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    if !is_standard(path) {
        return write_file(path, |out| write(out))
            .map_err(|source| Failure::Write { file: path.display().to_string(), source });
    }
    let standard = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let out: Box<dyn Write> = match standard.is_terminal() {
        true => Box::new(Escaped::new(standard)),
        false => Box::new(standard),
    };
    let mut out = BufWriter::with_capacity(64 << 10, out);
    write(&mut out)?;
    Ok(out.flush()?)
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
