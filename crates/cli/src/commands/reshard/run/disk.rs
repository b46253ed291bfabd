//! What a disk can do by itself: one file written from start to end and synced.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// Enough to see past a disk's own cache of a moment, little enough to be written in about a second.
const BYTES: usize = 256 << 20;
const BLOCK: usize = 4 << 20;

/// GB/s at which the disk that holds `folder` takes a new file, synced; `None` where that cannot be tried.
pub(super) fn write_gb_per_s(folder: &Path) -> Option<f64> {
    let path = folder.with_file_name(format!(".syncline-disk-{}", std::process::id()));
    let measured = measure(&path);
    let _ = std::fs::remove_file(&path);
    measured.ok()
}

fn measure(path: &Path) -> std::io::Result<f64> {
    let block: Vec<u8> = (0..BLOCK).map(|at| (at * 31 >> 3) as u8).collect();
    let started = Instant::now();
    let mut file = File::create(path)?;
    for _ in 0..BYTES / BLOCK {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(BYTES as f64 / 1e9 / started.elapsed().as_secs_f64())
}
