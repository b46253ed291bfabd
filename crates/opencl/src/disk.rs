//! Compiled programs on disk, between runs.
//!
//! A file holds one binary with a checksum: what was cut off, changed or written by another version
//! is taken for absent. Nothing here ever fails: without a cache, programs are compiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// The first bytes of every file; the last one counts changes of the format.
const MAGIC: [u8; 8] = *b"slclbin\x03";

/// A directory of compiled programs.
pub(crate) struct Disk {
    directory: PathBuf,
}

impl Disk {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where programs are kept unless the caller says otherwise: under the user's cache directory,
    /// if there is one.
    pub(crate) fn usual() -> Option<PathBuf> {
        let absolute =
            |name| std::env::var_os(name).map(PathBuf::from).filter(|at| at.is_absolute());
        let cache =
            absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(cache.join("syncline").join("opencl"))
    }

    /// A name for what `parts` together determine.
    pub(crate) fn name(parts: &[&str]) -> String {
        let mut hasher = Xxh3::new();
        for part in parts {
            // With its length, so that no two lists run together.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        format!("{:032x}.bin", hasher.digest128())
    }

    /// The binary that is kept under `name`, if it is there and whole.
    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        let bytes = fs::read(self.directory.join(name)).ok()?;
        parse(&bytes).map(<[u8]>::to_vec)
    }

    /// Keeps `binary` under `name`. Who reads at the same time finds all of it or nothing.
    pub(crate) fn write(&self, name: &str, binary: &[u8]) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let draft = self.directory.join(format!("{name}.{}.{number}", process::id()));
        if self.write_draft(&draft, binary).is_err()
            || fs::rename(&draft, self.directory.join(name)).is_err()
        {
            let _ = fs::remove_file(&draft);
        }
    }

    fn write_draft(&self, draft: &Path, binary: &[u8]) -> std::io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        fs::write(draft, format_file(binary))
    }
}

fn format_file(binary: &[u8]) -> Vec<u8> {
    [&MAGIC[..], &xxh3_128(binary).to_le_bytes(), binary].concat()
}

/// The binary of a file, if it is whole. None is empty.
fn parse(bytes: &[u8]) -> Option<&[u8]> {
    let (sum, binary) = bytes.strip_prefix(&MAGIC)?.split_at_checked(16)?;
    (!binary.is_empty() && xxh3_128(binary).to_le_bytes() == *sum).then_some(binary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_anything_else_is_absent() {
        let binary: Vec<u8> = (0..=255).collect();
        let file = format_file(&binary);
        assert_eq!(parse(&file), Some(&binary[..]));
        assert_eq!(parse(&format_file(&[])), None);
        for at in 0..file.len() {
            assert_eq!(parse(&file[..at]), None, "cut off at {at}");
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert_eq!(parse(&changed), None, "changed at {at}");
        }
        assert_eq!(parse(&[&file[..], &[0]].concat()), None);
    }

    #[test]
    fn names_differ_where_any_part_does() {
        let names = [&["ab", "c"][..], &["a", "bc"], &["abc"], &["ab", "c", ""]].map(Disk::name);
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name}");
        }
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_no_cache() {
        let disk = Disk::new(PathBuf::from("/proc/no/such/place"));
        disk.write("name", &[1]);
        assert_eq!(disk.read("name"), None);
    }
}
