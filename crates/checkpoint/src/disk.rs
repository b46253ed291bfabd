//! What a disk can do by itself: new files written from start to end and synced, with nothing read
//! or put together.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::file::create_own;
use crate::writeback::start_writeback;
use crate::writer::WRITEBACK_BYTES;

/// As large as a slot, so that it stays in a processor's own cache.
const BLOCK_BYTES: usize = 1 << 20;

/// GB/s at which the disk that holds `folder` takes about `bytes`, in as many files beside it as
/// there are `threads`; `None` where that cannot be tried. The files are written as those of a
/// conversion are, and are gone afterwards.
pub fn disk_gb_per_s(folder: &Path, threads: usize, bytes: u64) -> Option<f64> {
    let threads = threads.max(1);
    let blocks = (bytes as usize / BLOCK_BYTES).div_ceil(threads).max(1);
    let place = |thread: usize| {
        let name = format!(".syncline-disk-{}-{thread}", std::process::id());
        Scratch(folder.with_file_name(name))
    };
    let places: Vec<Scratch> = (0..threads).map(place).collect();
    let started = Instant::now();
    let written = std::thread::scope(|scope| {
        let write = |place: &Scratch| write(&place.0, blocks).is_ok();
        let all: Vec<_> = places.iter().map(|place| scope.spawn(move || write(place))).collect();
        all.into_iter().all(|thread| thread.join().unwrap_or(false))
    });
    let seconds = started.elapsed().as_secs_f64();
    written.then(|| (threads * blocks * BLOCK_BYTES) as f64 / 1e9 / seconds)
}

fn write(path: &Path, blocks: usize) -> io::Result<()> {
    let block: Vec<u8> = (0..BLOCK_BYTES).map(|at| ((at * 31) >> 3) as u8).collect();
    let mut file = create_own(path)?;
    for written in 1..=blocks as u64 {
        file.write_all(&block)?;
        if (written * BLOCK_BYTES as u64).is_multiple_of(WRITEBACK_BYTES) {
            start_writeback(&file);
        }
    }
    file.sync_data()
}

/// A file that does not stay.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_measured_and_left_as_it_was() {
        let folder =
            std::env::temp_dir().join(format!("syncline-disk-test-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let rate = disk_gb_per_s(&folder.join("out"), 2, 20 << 20).unwrap();
        assert!(rate > 0.0, "{rate}");
        assert_eq!(folder.read_dir().unwrap().count(), 0);
        assert_eq!(disk_gb_per_s(&folder.join("absent/out"), 2, 1 << 20), None);
        std::fs::remove_dir(&folder).unwrap();
    }
}
