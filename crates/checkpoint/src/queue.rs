//! Which thread writes which chunk: each a file of its own as long as there are enough.
//!
//! Two threads that write one file take turns inside of the system, and a file that is complete
//! early can be synced early.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::chunk::Chunk;

/// The chunks of some files, handed out to threads.
pub(crate) struct Queue<'a> {
    /// Of each file its chunks, and how many of them are taken.
    files: Vec<(&'a [Chunk], AtomicUsize)>,
    /// Files that a thread has begun.
    begun: AtomicUsize,
}

impl<'a> Queue<'a> {
    /// `chunks` are by file.
    pub fn new(chunks: &'a [Chunk]) -> Self {
        let files = chunks.chunk_by(|one, next| one.file == next.file);
        let files = files.map(|chunks| (chunks, AtomicUsize::new(0))).collect();
        Self { files, begun: AtomicUsize::new(0) }
    }

    /// The next chunk for a thread that was at `file`: of that file, else of one that no thread has
    /// begun, else of any.
    pub fn next(&self, file: &mut Option<usize>) -> Option<&'a Chunk> {
        loop {
            if let Some(chunk) = file.and_then(|at| self.take(at)) {
                return Some(chunk);
            }
            let begun = self.begun.fetch_add(1, Ordering::Relaxed);
            if begun < self.files.len() {
                *file = Some(begun);
                continue;
            }
            let (at, chunk) = (0..self.files.len()).find_map(|at| Some((at, self.take(at)?)))?;
            *file = Some(at);
            return Some(chunk);
        }
    }

    fn take(&self, file: usize) -> Option<&'a Chunk> {
        let (chunks, taken) = &self.files[file];
        // Checked first: a file that is over is asked for again and again.
        if taken.load(Ordering::Relaxed) >= chunks.len() {
            return None;
        }
        chunks.get(taken.fetch_add(1, Ordering::Relaxed))
    }
}
