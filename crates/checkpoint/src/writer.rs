//! Writing one destination file from several threads, and from several PEs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{FallocateFlags, fallocate};

use crate::destination::OutputFile;
use crate::error::CheckpointError;
use crate::file::{create_own, open_own};
use crate::journal::Partial;
use crate::writeback::start_writeback;

/// Bytes after which the disk is told to begin: enough for long writes, little enough that it never
/// idles for long.
pub(crate) const WRITEBACK_BYTES: u64 = 8 << 20;

/// A destination file, under another name until all of it is written.
pub(crate) struct Writer<'a> {
    file: File,
    partial: &'a Partial,
    name: &'a str,
    /// Chunks that are not written, of all PEs.
    chunks_left: AtomicUsize,
    /// Bytes that the disk has not been told of.
    bytes_waiting: AtomicU64,
    /// Held by the thread that writes. The system lets one in at a time anyway, and keeps the
    /// others spinning, which takes the processor from threads that could put together the next
    /// chunk.
    turn: Mutex<()>,
}

impl<'a> Writer<'a> {
    /// Makes the file with its header, and with room for all of it.
    pub fn create(partial: &'a Partial, output: &'a OutputFile) -> Result<Self, CheckpointError> {
        let path = partial.folder.join(format!("{}.part", output.name));
        let bytes = output.bytes;
        // Room is reserved first: a disk that is too small is found out before the work.
        let create = || {
            if let Some(folder) = path.parent().filter(|_| output.name.contains('/')) {
                fs::create_dir_all(folder)?;
            }
            let file = create_own(&path)?;
            match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
                Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes)?,
                reserved => reserved?,
            }
            for (start, fixed) in &output.fixed {
                file.write_all_at(fixed, *start)?;
            }
            Ok(file)
        };
        let failed = |source: io::Error| CheckpointError::Write { file: path.clone(), source };
        Ok(Self::new(partial, output, create().map_err(failed)?))
    }

    /// Opens the file that another PE has made.
    pub fn open(partial: &'a Partial, output: &'a OutputFile) -> Result<Self, CheckpointError> {
        let path = partial.folder.join(format!("{}.part", output.name));
        let opened = open_own(&path, File::options().write(true));
        let failed = |source| CheckpointError::Write { file: path.clone(), source };
        Ok(Self::new(partial, output, opened.map_err(failed)?))
    }

    fn new(partial: &'a Partial, output: &'a OutputFile, file: File) -> Self {
        let (chunks_left, bytes_waiting) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { file, partial, name: &output.name, chunks_left, bytes_waiting, turn: Mutex::new(()) }
    }

    /// Counts a chunk that has to be written, by any thread.
    pub fn expect(&self) {
        self.chunks_left.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes a chunk; the last one gives the file its name, and says so.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<bool, CheckpointError> {
        let turn = self.turn.lock().expect("no thread panics with it");
        let written = self.file.write_all_at(bytes, offset);
        drop(turn);
        written.map_err(|source| self.failed(source))?;
        self.hand_over(bytes.len() as u64);
        // AcqRel: the thread that names the file must see that the others' writes are done.
        let is_last = self.chunks_left.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            self.rename()?;
        }
        Ok(is_last)
    }

    /// Lets the disk begin while the rest is being written: a sync at the end then has little left
    /// to wait for.
    fn hand_over(&self, bytes: u64) {
        if self.bytes_waiting.fetch_add(bytes, Ordering::Relaxed) + bytes >= WRITEBACK_BYTES {
            self.bytes_waiting.store(0, Ordering::Relaxed);
            start_writeback(&self.file);
        }
    }

    /// Returns when what this PE has written is on disk.
    pub fn sync(&self) -> Result<(), CheckpointError> {
        self.file.sync_data().map_err(|source| self.failed(source))
    }

    /// Gives the file its name, if it has not got it: every PE has written its part.
    pub fn finish(&self) -> Result<(), CheckpointError> {
        if self.partial.has(self.name) { Ok(()) } else { self.rename() }
    }

    /// It need not be on disk yet: a resumed run checks every byte that it keeps.
    fn rename(&self) -> Result<(), CheckpointError> {
        let folder = &self.partial.folder;
        let from = folder.join(format!("{}.part", self.name));
        fs::rename(from, folder.join(self.name)).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> CheckpointError {
        CheckpointError::Write { file: self.partial.folder.join(self.name), source }
    }
}
