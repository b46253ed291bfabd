//! Files mapped for reading.

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::error::CheckpointError;

/// A file whose bytes are read where they are.
#[derive(Debug)]
pub(crate) struct MappedFile {
    pub(crate) path: PathBuf,
    map: Option<Mmap>,
}

impl MappedFile {
    pub(crate) fn open(path: &Path) -> Result<Self, CheckpointError> {
        let failed = |source| CheckpointError::Read { file: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        // An empty file cannot be mapped.
        let map = if bytes == 0 {
            None
        } else {
            // SAFETY: the map is read only, and only through `bytes`, which hands out plain bytes: any value is a valid one. A
            // file that another process cuts short meanwhile ends this process by a signal; that is the price of mapping,
            // stated in the documentation, and never yields wrong data silently.
            Some(unsafe { Mmap::map(&file) }.map_err(failed)?)
        };
        Ok(Self { path: path.to_owned(), map })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}
