//! Any bytes where a group of processes expects its shared file: joined, refused or failed, never a
//! panic.
#![no_main]

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use syncline_transport::{Wait, shm};

/// Bytes of the file: the file of a few PEs with slots of a page fits.
const BYTES: u64 = 1 << 17;

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| syncline_fuzz::folder("group"));

fuzz_target!(|bytes: &[u8]| {
    let path = FOLDER.join("syncline-fuzz");
    let _ = std::fs::remove_file(&path);
    let file: File = (File::options().read(true).write(true).create(true).mode(0o600))
        .open(&path)
        .expect("memory has room");
    file.set_len(BYTES).expect("memory has room");
    file.write_all_at(b"SYNCLIN1", 0).expect("memory has room");
    file.write_all_at(&bytes[..bytes.len().min(BYTES as usize - 8)], 8).expect("memory has room");
    // A file that no process has locked was left behind, and would be removed.
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockShared).expect("it is ours");
    let options = shm::Options { depth: 2, slot_bytes: 4096, directory: FOLDER.clone() };
    let _ = shm::join("fuzz", 0, 2, &options, &Wait::timeout(Duration::ZERO));
});
