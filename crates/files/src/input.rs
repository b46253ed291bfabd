//! Inputs that are read whole.

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Returns the bytes of memory that the machine has.
pub fn machine_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(info.mem_unit.into())
}

/// Reads the file or pipe at `path` whole.
///
/// Refuses files larger than the machine's memory, and devices, most of which have no end.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_all(File::open(path)?)
}

/// Reads the rest of an open file or pipe, as [`read_file`] does.
pub fn read_all(file: File) -> io::Result<Vec<u8>> {
    let found = file.metadata()?;
    let kind = found.file_type();
    if found.is_dir() {
        return Err(rustix::io::Errno::ISDIR.into());
    }
    if kind.is_block_device() || (kind.is_char_device() && !file.is_terminal() && !is_null(&found))
    {
        let text = "expected a file or a pipe, found a device";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // A pipe may go on for ever, and parsed forms need memory too.
    let (size, limit) = match found.is_file() {
        true => (found.len(), machine_memory_bytes()),
        false => (0, machine_memory_bytes() / 4),
    };
    if size > limit {
        return Err(too_large(limit));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size as usize)?;
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(limit));
    }
    Ok(bytes)
}

/// Returns `true` for `/dev/null`, which is empty.
fn is_null(found: &Metadata) -> bool {
    (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev())) == (1, 3)
}

fn too_large(limit: u64) -> io::Error {
    let text = format!("more than {limit} bytes, which this machine's memory does not hold");
    io::Error::new(io::ErrorKind::FileTooLarge, text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        let folder = std::env::temp_dir().join(format!("syncline-inputs-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("file");
        fs::write(&path, "text").unwrap();
        assert_eq!(read_file(&path).unwrap(), b"text");
        // A file of 8 TiB that is a hole.
        let large = File::options().write(true).open(&path).unwrap();
        if large.set_len(1 << 43).is_ok() {
            assert_eq!(read_file(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        }
        let zero = read_file(Path::new("/dev/zero")).unwrap_err();
        assert!(zero.to_string().contains("found a device"), "{zero}");
        assert!(read_file(Path::new("/dev/null")).unwrap().is_empty());
        assert_eq!(read_file(&folder).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        fs::remove_dir_all(&folder).unwrap();
    }
}
