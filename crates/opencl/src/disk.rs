//! Compiled programs on disk, between runs.
//!
//! A file holds one binary for each device, with a checksum over everything: what was cut off, changed or written by
//! another version is taken for absent. Nothing here ever fails: without a cache, programs are compiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first bytes of every file; the last one counts changes of the format.
const MAGIC: [u8; 8] = *b"slclbin\x01";

/// A directory of compiled programs.
pub(crate) struct Disk {
    directory: PathBuf,
}

impl Disk {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where programs are kept unless the caller says otherwise: under the user's cache directory, if there is one.
    pub(crate) fn usual() -> Option<PathBuf> {
        let absolute =
            |name| std::env::var_os(name).map(PathBuf::from).filter(|at| at.is_absolute());
        let cache =
            absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(cache.join("syncline").join("opencl"))
    }

    /// A name for what `parts` together determine.
    pub(crate) fn name(parts: &[&str]) -> String {
        let mut hash = OFFSET;
        for part in parts {
            // With its length, so that no two lists run together.
            hash = mix(hash, &(part.len() as u64).to_le_bytes());
            hash = mix(hash, part.as_bytes());
        }
        format!("{hash:032x}.bin")
    }

    /// The `count` binaries that are kept under `name`, if they are there and whole.
    pub(crate) fn read(&self, name: &str, count: usize) -> Option<Vec<Vec<u8>>> {
        let bytes = fs::read(self.directory.join(name)).ok()?;
        let binaries = parse(&bytes)?;
        (binaries.len() == count && binaries.iter().all(|of| !of.is_empty())).then_some(binaries)
    }

    /// Keeps `binaries` under `name`. Who reads at the same time finds all of it or nothing.
    pub(crate) fn write(&self, name: &str, binaries: &[Vec<u8>]) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let draft = self.directory.join(format!("{name}.{}.{number}", process::id()));
        if self.write_draft(&draft, binaries).is_err()
            || fs::rename(&draft, self.directory.join(name)).is_err()
        {
            let _ = fs::remove_file(&draft);
        }
    }

    fn write_draft(&self, draft: &Path, binaries: &[Vec<u8>]) -> std::io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        fs::write(draft, format_file(binaries))
    }
}

fn format_file(binaries: &[Vec<u8>]) -> Vec<u8> {
    let mut body = (binaries.len() as u64).to_le_bytes().to_vec();
    for binary in binaries {
        body.extend((binary.len() as u64).to_le_bytes());
        body.extend(binary);
    }
    [&MAGIC[..], &mix(OFFSET, &body).to_le_bytes(), &body].concat()
}

fn parse(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (sum, body) = rest.split_at_checked(16)?;
    if mix(OFFSET, body).to_le_bytes() != *sum {
        return None;
    }
    let (count, mut rest) = number(body)?;
    let mut binaries = Vec::new();
    for _ in 0..count {
        let (length, behind) = number(rest)?;
        let (binary, behind) = behind.split_at_checked(usize::try_from(length).ok()?)?;
        binaries.push(binary.to_vec());
        rest = behind;
    }
    rest.is_empty().then_some(binaries)
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*number), rest))
}

/// The start of FNV-1a with 128 bits: it needs no table, and is the same on every machine and in every version.
const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;

fn mix(hash: u128, bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_anything_else_is_absent() {
        let binaries = vec![vec![1, 2, 3], vec![], (0..=255).collect()];
        let file = format_file(&binaries);
        assert_eq!(parse(&file), Some(binaries));
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
        disk.write("name", &[vec![1]]);
        assert_eq!(disk.read("name", 1), None);
    }
}
