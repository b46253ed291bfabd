//! Outputs: the terminal, and files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;

use clap::ColorChoice;
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

/// How this process speaks on standard error, as its options say.
#[derive(Clone, Copy, Debug)]
struct Voice {
    is_quiet: bool,
    colours: bool,
}

static VOICE: OnceLock<Voice> = OnceLock::new();

/// Sets how notes, warnings and errors are shown; the first call counts.
pub(crate) fn speak(is_quiet: bool, color: ColorChoice) {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = match color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => !plain && io::stderr().is_terminal(),
    };
    let _ = VOICE.set(Voice { is_quiet, colours });
}

/// Whether only results and errors are wanted.
pub(crate) fn is_quiet() -> bool {
    VOICE.get().is_some_and(|voice| voice.is_quiet)
}

/// Says a note or a warning, unless only results are wanted.
pub(crate) fn note(text: &str) {
    if !is_quiet() {
        say(text);
    }
}

/// Says `text` in one line on standard error, after the name of the program.
pub(crate) fn say(text: &str) {
    // There is no other place to say that it cannot be said.
    let name = match VOICE.get() {
        Some(Voice { colours: true, .. }) => "\x1b[1;31msyncline:\x1b[0m",
        _ => "syncline:",
    };
    let _ = writeln!(io::stderr().lock(), "{name} {}", one_line(text));
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
