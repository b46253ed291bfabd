//! Files mapped for reading.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memmap2::{Mmap, UncheckedAdvice};

use crate::error::CheckpointError;
use crate::file::{open_own, open_regular};
use crate::truncation::MappedRange;

/// A file whose bytes are read where they are.
#[derive(Debug)]
pub(crate) struct MappedFile {
    pub(crate) path: PathBuf,
    /// Goes before the map.
    range: Option<MappedRange>,
    map: Option<Mmap>,
    /// When it was last changed, as of its opening.
    changed: Option<SystemTime>,
}

impl MappedFile {
    /// Maps a file that this program did not write, following links.
    pub(crate) fn open(path: &Path) -> Result<Self, CheckpointError> {
        Self::map(path, open_regular(path))
    }

    /// Maps a file of our own; a link is not one.
    pub(crate) fn open_own(path: &Path) -> Result<Self, CheckpointError> {
        Self::map(path, open_own(path, File::options().read(true)))
    }

    fn map(path: &Path, file: io::Result<File>) -> Result<Self, CheckpointError> {
        let failed = |source| CheckpointError::Read { file: path.to_owned(), source };
        let file = file.map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let (bytes, changed) = (metadata.len(), metadata.modified().ok());
        // An empty file cannot be mapped.
        let map = if bytes == 0 {
            None
        } else {
            // SAFETY: the map is read only, and only through `bytes`, which hands out plain bytes:
            // any value is a valid one. Conversions and comparisons read within `reading` and end
            // with `is_unchanged`, so that a file that another process cuts short or changes
            // meanwhile is an error. Touching bytes of `Checkpoint::shard` elsewhere ends the
            // process by a signal if the file was cut short, which the documentation states.
            Some(unsafe { Mmap::map(&file) }.map_err(failed)?)
        };
        let range = map.as_deref().map(MappedRange::new);
        Ok(Self { path: path.to_owned(), range, map, changed })
    }

    /// Gives back the memory of what was read; it is read again when it is needed again.
    pub(crate) fn release(&self) {
        let Some(map) = &self.map else { return };
        // SAFETY: the map is shared with the file and never written to: pages that are dropped come
        // back from the file with the same bytes, and pages that `truncation` put in the place of
        // lost ones are zeros again.
        let released = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
        // It only saves memory: a system that refuses has the pages a while longer.
        drop(released);
    }

    /// Returns `true` if the file has the size and the time of its opening.
    pub(crate) fn is_unchanged(&self) -> bool {
        let same = |now: Metadata| {
            now.len() == self.bytes().len() as u64 && now.modified().ok() == self.changed
        };
        let is_cut = self.range.as_ref().is_some_and(MappedRange::is_cut);
        !is_cut && self.path.metadata().is_ok_and(same)
    }

    /// Size, and when it was last changed.
    pub(crate) fn state(&self) -> String {
        let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
        let changed = self.changed.and_then(since).map(|since| since.as_nanos());
        format!("{} {changed:?};", self.bytes().len())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}
