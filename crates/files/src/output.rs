//! Outputs: a regular file is replaced whole or not at all, anything else is written to.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, Gid, Mode, OFlags, Uid, accessat, fchmod, fchown, open, openat, renameat,
    unlinkat,
};
use rustix::io::Errno;

/// Symbolic links that are followed one after the other, as many as the kernel does.
const LINKS_MAX: usize = 40;

/// Attempts to find an unused temporary name.
const NAMES_MAX: usize = 16;

/// Writes the file at `path` with `write`, by way of an [`Output`].
///
/// ```
/// use std::io::Write;
///
/// let path = std::env::temp_dir().join(format!("syncline-doc-{}", std::process::id()));
/// syncline_files::write_file(&path, |out| writeln!(out, "all of it"))?;
/// assert_eq!(std::fs::read_to_string(&path)?, "all of it\n");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write_file<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
) -> io::Result<T> {
    let output = Output::open(path)?;
    let mut out = BufWriter::with_capacity(64 << 10, output.file().try_clone()?);
    let result = write(&mut out)?;
    out.flush()?;
    output.finish()?;
    Ok(result)
}

/// An output file.
///
/// - A regular file, or one that does not exist yet, is written under a temporary name in the same
///   folder and renamed by [`Output::finish`]. An existing file keeps its mode and, where
///   permitted, its owner. If the output is dropped unfinished, the old file stays and the
///   temporary one is removed.
/// - A symbolic link is followed: its target is replaced, the link stays.
/// - Anything else (a device, a pipe, a terminal) is opened and written to.
#[derive(Debug)]
pub struct Output {
    file: File,
    replacement: Option<Replacement>,
}

/// A temporary file that is yet to get its name.
#[derive(Debug)]
struct Replacement {
    folder: OwnedFd,
    temporary: OsString,
    name: OsString,
}

impl Output {
    /// Opens the output at `path`.
    ///
    /// Fails if its folder does not exist, if it is a directory, and if the existing file is
    /// read-only.
    pub fn open(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(found) if is_standard_output(&found) => {
                let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
                Ok(Self { file, replacement: None })
            }
            Ok(found) if found.is_file() => Self::replace(&fs::canonicalize(path)?, Some(&found)),
            Ok(found) if found.is_dir() => Err(Errno::ISDIR.into()),
            Ok(found) if found.file_type().is_socket() => Err(Errno::NXIO.into()),
            Ok(_) => {
                let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
                let file = File::from(open(path, flags, Mode::empty())?);
                Ok(Self { file, replacement: None })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::replace(&link_target(path)?, None)
            }
            Err(error) => Err(error),
        }
    }

    /// The file to write.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name after all of it has reached the disk.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(replacement) = &self.replacement else { return Ok(()) };
        self.file.sync_all()?;
        let Replacement { folder, temporary, name } = replacement;
        renameat(folder, temporary, folder, name)?;
        self.replacement = None;
        Ok(())
    }

    /// Creates the temporary file for `target`, which is no symbolic link.
    fn replace(target: &Path, old: Option<&Metadata>) -> io::Result<Self> {
        let name = target.file_name().ok_or(Errno::ISDIR)?.to_owned();
        if let Some(old) = old {
            require_writable(target, old)?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(folder_of(target), flags, Mode::empty())?;
        // Without the rights of a file that is to keep its mode until it has it.
        let mode = if old.is_some() { 0o600 } else { 0o666 };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let create = |temporary: &OsStr| {
            openat(&folder, temporary, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode))
        };
        let mut temporary = temporary_name();
        let mut created = create(&temporary);
        for _ in 1..NAMES_MAX {
            if !matches!(created, Err(Errno::EXIST)) {
                break;
            }
            temporary = temporary_name();
            created = create(&temporary);
        }
        let file = File::from(created?);
        let output = Self { file, replacement: Some(Replacement { folder, temporary, name }) };
        if let Some(old) = old {
            keep_owner_and_mode(&output.file, old)?;
        }
        Ok(output)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(Replacement { folder, temporary, .. }) = &self.replacement {
            // The caller has a reason of its own; a file that cannot be removed stays behind.
            let _ = unlinkat(folder, temporary, AtFlags::empty());
        }
    }
}

/// Returns a name for a temporary file that other processes cannot predict.
pub fn temporary_name() -> OsString {
    // Its keys come from the operating system's random numbers.
    let number = RandomState::new().hash_one(std::process::id());
    OsString::from(format!(".syncline-{number:016x}.partial"))
}

/// Returns `true` if the file behind `found` is the one that standard output is connected to.
fn is_standard_output(found: &Metadata) -> bool {
    let own = rustix::fs::fstat(io::stdout());
    own.is_ok_and(|own| (own.st_dev, own.st_ino) == (found.dev(), found.ino()))
}

/// Returns the path that the symbolic link `path` leads to, whether or not there is anything; else
/// `path` itself.
fn link_target(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&target) {
            Ok(next) => target = folder_of(&target).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err(Errno::LOOP.into())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses to replace a file that may not be written, or that has been made read-only for all.
///
/// Renaming needs rights on the folder only; the user's intent is in the mode of the file.
fn require_writable(target: &Path, old: &Metadata) -> io::Result<()> {
    let denied = || io::Error::new(io::ErrorKind::PermissionDenied, "the file is read-only");
    if old.mode() & 0o222 == 0 {
        return Err(denied());
    }
    match accessat(CWD, target, Access::WRITE_OK, AtFlags::EACCESS) {
        Err(Errno::ACCESS | Errno::PERM) => Err(denied()),
        Err(Errno::ROFS) => Err(Errno::ROFS.into()),
        // What else stands in the way shows when the file is replaced.
        _ => Ok(()),
    }
}

fn keep_owner_and_mode(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    let mut mode = old.mode() & 0o7777;
    let owner = (Uid::from_raw(old.uid()), Gid::from_raw(old.gid()));
    if (new.uid(), new.gid()) != (old.uid(), old.gid())
        && fchown(file, Some(owner.0), Some(owner.1)).is_err()
    {
        // A file of another owner must not run with that owner's rights.
        mode &= 0o777;
    }
    fchmod(file, Mode::from_raw_mode(mode))?;
    Ok(())
}

#[cfg(test)]
mod tests;
