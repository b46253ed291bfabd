//! What the fuzz targets share: checksums that are right, and folders in memory.

use std::path::PathBuf;

/// Returns a folder of this process in memory, for readers that take a path.
pub fn folder(target: &str) -> PathBuf {
    let folder = PathBuf::from(format!("/dev/shm/syncline-fuzz-{target}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("/dev/shm can be written to");
    folder
}

/// Makes the checksums of a capture right, as an attacker would: random changes never do.
pub fn seal_capture(bytes: &mut [u8]) {
    let mut at = 12;
    while at + 9 <= bytes.len() {
        let kind = bytes[at];
        let length = [bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        bytes[at + 4] = length.iter().fold(kind ^ 0xa5, |check, byte| check.rotate_left(3) ^ byte);
        let end = at + 5 + u32::from_le_bytes([length[0], length[1], length[2], 0]) as usize;
        if end + 4 > bytes.len() {
            return;
        }
        let checksum = crc32fast::hash(&bytes[at..end]);
        bytes[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
        at = end + 4;
    }
}
