//! The sources that a set of workers serves.

use std::fmt;
use std::sync::Arc;

use syncline_sync::lock;
use syncline_sync::shim::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock, RwLockReadGuard};

use super::{Pool, Source, serve};

/// One source, for as long as it is served.
pub(super) struct Entry {
    /// A worker holds it for reading while it serves the source.
    source: RwLock<Option<Arc<dyn Source>>>,
    pub(super) is_removed: AtomicBool,
}

impl Entry {
    /// The source, for as long as the result lives; `None` where it is being removed.
    pub(super) fn enter(&self) -> Option<RwLockReadGuard<'_, Option<Arc<dyn Source>>>> {
        if self.is_removed.load(Ordering::SeqCst) {
            return None;
        }
        // Fails only where the one writer is there, which removes it.
        self.source.try_read().ok().filter(|source| source.is_some())
    }
}

/// The sources, in the order in which they came.
#[derive(Default)]
pub(super) struct Registry {
    entries: Mutex<Vec<Arc<Entry>>>,
    /// Changes whenever the entries do.
    version: AtomicU64,
}

impl Registry {
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.entries).is_empty()
    }

    fn add(&self, entry: Arc<Entry>) {
        lock(&self.entries).push(entry);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes an entry off, if it is there.
    pub(super) fn remove(&self, entry: &Arc<Entry>) {
        entry.is_removed.store(true, Ordering::SeqCst);
        let mut entries = lock(&self.entries);
        if let Some(at) = entries.iter().position(|other| Arc::ptr_eq(other, entry)) {
            entries.remove(at);
            self.version.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Copies the entries into `known`, and returns their version.
    pub(super) fn copy(&self, known: &mut Vec<Arc<Entry>>) -> u64 {
        let entries = lock(&self.entries);
        known.clone_from(&entries);
        self.version()
    }
}

/// A source that workers serve. Dropping it waits until no other thread is in the middle of a turn
/// there, and then drops the source; dropped in such a turn, it does not wait.
pub struct Served {
    pool: Arc<Pool>,
    entry: Arc<Entry>,
}

impl Served {
    pub(super) fn new(pool: &Arc<Pool>, source: Arc<dyn Source>) -> Self {
        let source = RwLock::new(Some(source));
        let entry = Arc::new(Entry { source, is_removed: AtomicBool::new(false) });
        pool.registry.add(entry.clone());
        Self { pool: pool.clone(), entry }
    }

    /// Leaves the source to the workers until it is over.
    pub fn leave(self) {
        self.pool.work_arrived();
        std::mem::forget(self);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.pool.forget(&self.entry);
        if serve::serves(&self.entry) {
            return;
        }
        let source = {
            let mut source = match self.entry.source.write() {
                Ok(source) => source,
                Err(poisoned) => poisoned.into_inner(),
            };
            source.take()
        };
        drop(source);
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Served by {:?}", self.pool.name)
    }
}
