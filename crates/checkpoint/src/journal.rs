//! The unfinished destination: a directory beside the real one, renamed when it is complete.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{FlockOperation, flock};

use crate::error::CheckpointError;
use crate::file::{create_own, open_own};

/// Says which conversion a partial directory belongs to; locked while someone is at work in it.
const JOURNAL: &str = ".conversion";

/// A directory being filled.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) folder: PathBuf,
    target: PathBuf,
    /// Holds the lock, which the system lets go even if the process is killed; the first PE of a
    /// team has it.
    _journal: Option<File>,
}

fn failed(file: &Path) -> impl Fn(io::Error) -> CheckpointError {
    move |source| CheckpointError::Write { file: file.to_owned(), source }
}

/// Where the destination is made.
fn hidden(target: &Path) -> Result<PathBuf, CheckpointError> {
    let name = target.file_name().ok_or_else(|| {
        CheckpointError::Target(format!("{}: not a name for a directory", target.display()))
    })?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".partial");
    Ok(target.with_file_name(hidden))
}

impl Partial {
    /// The directory that another PE of the team opens.
    pub(crate) fn visit(target: &Path) -> Result<Self, CheckpointError> {
        Ok(Self { folder: hidden(target)?, target: target.to_owned(), _journal: None })
    }

    /// Creates the directory for `target`, or goes on with the one that an earlier run of the same
    /// conversion left.
    pub(crate) fn open(
        target: &Path,
        fingerprint: &str,
        resume: bool,
    ) -> Result<Self, CheckpointError> {
        if target.symlink_metadata().is_ok() {
            return Err(CheckpointError::Exists { folder: target.to_owned() });
        }
        let folder = hidden(target)?;
        let path = folder.join(JOURNAL);
        match fs::create_dir(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A link there could lead anywhere.
                let found = fs::symlink_metadata(&folder).map_err(failed(&folder))?;
                if !found.is_dir() {
                    return Err(failed(&folder)(io::ErrorKind::NotADirectory.into()));
                }
            }
            Err(error) => return Err(failed(&folder)(error)),
        }
        let journal = open_own(&path, File::options().create(true).append(true).read(true));
        let mut journal = journal.map_err(failed(&path))?;
        if flock(&journal, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(CheckpointError::Busy { folder });
        }
        let mut found = String::new();
        journal.read_to_string(&mut found).map_err(failed(&path))?;
        match found.trim() {
            // A run that was killed before it wrote its fingerprint has written nothing else
            // either.
            "" => journal.write_all(fingerprint.as_bytes()).map_err(failed(&path))?,
            _ if !resume => return Err(CheckpointError::Partial { folder }),
            found if found == fingerprint => {}
            found => {
                let (found, expected) = (found.to_owned(), fingerprint.to_owned());
                return Err(CheckpointError::OtherConversion { folder, found, expected });
            }
        }
        Ok(Self { folder, target: target.to_owned(), _journal: Some(journal) })
    }

    /// Returns `true` if the file `name` is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.folder.join(name).symlink_metadata().is_ok_and(|found| found.is_file())
    }

    /// Writes a small file whole.
    pub(crate) fn text(&self, name: &str, text: &[u8]) -> Result<(), CheckpointError> {
        let path = self.folder.join(name);
        let write = || {
            let mut file = create_own(&path)?;
            file.write_all(text)?;
            file.sync_all()
        };
        write().map_err(failed(&path))
    }

    fn sync_files(&self, threads: usize) -> Result<(), CheckpointError> {
        let listed = |folder: &Path| -> io::Result<Vec<PathBuf>> {
            folder.read_dir()?.map(|entry| Ok(entry?.path())).collect()
        };
        let mut files = Vec::new();
        for path in listed(&self.folder).map_err(failed(&self.folder))? {
            // Directories of ranks have files only.
            match path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                true => {
                    files.extend(listed(&path).map_err(failed(&path))?);
                    let synced = File::open(&path).and_then(|folder| folder.sync_all());
                    synced.map_err(failed(&path))?;
                }
                false => files.push(path),
            }
        }
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                let file = open_own(path, File::options().read(true));
                file.and_then(|file| file.sync_all()).map_err(failed(path))?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads.min(files.len())).map(|_| scope.spawn(work)).collect();
            let own = work();
            let joined = others.into_iter().map(|other| other.join().expect("it does not panic"));
            joined.fold(own, |first, next| first.and(next))
        })
    }

    /// Makes the directory the destination: all of it is on disk before it has its name.
    pub(crate) fn finish(self, threads: usize) -> Result<(), CheckpointError> {
        self.sync_files(threads)?;
        let journal = self.folder.join(JOURNAL);
        fs::remove_file(&journal).map_err(failed(&journal))?;
        let sync = |folder: &Path| File::open(folder)?.sync_all();
        sync(&self.folder).map_err(failed(&self.folder))?;
        if self.target.symlink_metadata().is_ok() {
            return Err(CheckpointError::Exists { folder: self.target });
        }
        fs::rename(&self.folder, &self.target).map_err(failed(&self.target))?;
        let parent = match self.target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        sync(parent).map_err(failed(parent))
    }
}
