//! Telling the disk to begin with what a file holds, without waiting for it.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Starts to write all of `file` that is not on disk yet.
///
/// A hint: whether data is on disk is known only after a sync, which also reports what went wrong
/// on the way.
pub(crate) fn start_writeback(file: &File) {
    // SAFETY: the call takes an open file descriptor, which `file` holds until it returns, and
    // numbers; it touches no memory of this process. Offset 0 and length 0 mean all of the file.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_being_written_stays_as_it_is_and_can_be_synced() {
        use std::os::unix::fs::FileExt;
        let path = std::env::temp_dir().join(format!("syncline-writeback-{}", std::process::id()));
        let file = File::options().create(true).truncate(true).write(true).open(&path).unwrap();
        let block = vec![7; 1 << 20];
        for at in 0..4 {
            file.write_all_at(&block, at << 20).unwrap();
            start_writeback(&file);
        }
        file.sync_data().unwrap();
        assert!(std::fs::read(&path).unwrap() == block.repeat(4));
        std::fs::remove_file(&path).unwrap();
    }
}
