//! Zip archives whose entries are stored as they are, as torch writes them.
//!
//! Compressed entries are refused: what torch writes never is, and nothing is unpacked here.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::Malformed;

pub(super) const LOCAL: &[u8; 4] = b"PK\x03\x04";
const CENTRAL: &[u8; 4] = b"PK\x01\x02";
const END: &[u8; 4] = b"PK\x05\x06";
const END_64: &[u8; 4] = b"PK\x06\x06";
const LOCATOR_64: &[u8; 4] = b"PK\x06\x07";

/// Bytes of an end record, and of the longest comment behind it.
const END_BYTES: usize = 22;
const COMMENT_MAX: usize = 0xffff;

/// An extra field with sizes and offsets of 64 bits.
const EXTRA_64: u16 = 1;

/// The entries of an archive.
#[derive(Debug)]
pub(super) struct ZipArchive<'a> {
    bytes: &'a [u8],
    entries: BTreeMap<&'a str, Range<usize>>,
}

/// Reads little-endian numbers from a run of bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("the zip archive is cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self, bytes: usize) -> Result<u64, Malformed> {
        let taken = self.take(bytes)?;
        Ok(taken.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn signature(&mut self, expected: &[u8; 4], what: &str) -> Result<(), Malformed> {
        match self.take(4)? == expected {
            true => Ok(()),
            false => Err(format!("no {what} where the zip archive says it is").into()),
        }
    }
}

fn from(bytes: &[u8], at: u64) -> Result<Fields<'_>, Malformed> {
    let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
    Ok(Fields(rest.ok_or("the zip archive points past its end")?))
}

impl<'a> ZipArchive<'a> {
    /// Reads the directory of the archive that `bytes` are.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (count, mut directory) = directory(bytes)?;
        let mut entries = BTreeMap::new();
        // Each entry takes bytes of the directory: the count is bounded by them.
        for _ in 0..count {
            let (name, range) = entry(bytes, &mut directory)?;
            if entries.insert(name, range).is_some() {
                return Err(format!("`{name}` is in the zip archive twice").into());
            }
        }
        Ok(Self { bytes, entries })
    }

    /// Names, and where their bytes lie.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, &Range<usize>)> {
        self.entries.iter().map(|(name, range)| (*name, range))
    }

    /// Where the bytes of the entry `name` lie.
    pub(super) fn range(&self, name: &str) -> Option<Range<usize>> {
        self.entries.get(name).cloned()
    }

    /// The bytes of the entry `name`.
    pub(super) fn get(&self, name: &str) -> Option<&'a [u8]> {
        Some(&self.bytes[self.range(name)?])
    }
}

/// How many entries there are, and the bytes from the first one on.
fn directory(bytes: &[u8]) -> Result<(u64, Fields<'_>), Malformed> {
    let first = bytes.len().saturating_sub(END_BYTES + COMMENT_MAX);
    let tail = &bytes[first..];
    let is_end = |at: &usize| {
        tail[*at..].starts_with(END) && {
            let comment = [tail[*at + 20], tail[*at + 21]];
            *at + END_BYTES + usize::from(u16::from_le_bytes(comment)) == tail.len()
        }
    };
    let last = tail.len().checked_sub(END_BYTES).ok_or("too short for a zip archive")?;
    let end = (0..=last).rev().find(is_end).ok_or("no end of a zip archive: it is cut off")?;
    let mut fields = Fields(&tail[end + 4..]);
    let (disk, directory_disk) = (fields.number(2)?, fields.number(2)?);
    let _on_disk = fields.number(2)?;
    let (mut count, _bytes, mut start) = (fields.number(2)?, fields.number(4)?, fields.number(4)?);
    if let Some(locator) = (first + end).checked_sub(20)
        && bytes[locator..].starts_with(LOCATOR_64)
    {
        let mut fields = Fields(&bytes[locator + 8..]);
        let mut fields = from(bytes, fields.number(8)?)?;
        fields.signature(END_64, "64-bit end record")?;
        fields.take(28)?;
        count = fields.number(8)?;
        let _bytes = fields.number(8)?;
        start = fields.number(8)?;
    } else if disk != 0 || directory_disk != 0 {
        return Err("a zip archive in several parts".into());
    }
    Ok((count, from(bytes, start)?))
}

/// Reads an entry of the directory: its name, and where its bytes lie.
fn entry<'a>(
    bytes: &'a [u8],
    fields: &mut Fields<'a>,
) -> Result<(&'a str, Range<usize>), Malformed> {
    fields.signature(CENTRAL, "entry of the directory")?;
    fields.take(4)?;
    let (flags, method) = (fields.number(2)?, fields.number(2)?);
    fields.take(8)?;
    let (mut packed, mut size) = (fields.number(4)?, fields.number(4)?);
    let (name, extra, comment) = (fields.number(2)?, fields.number(2)?, fields.number(2)?);
    fields.take(8)?;
    let mut start = fields.number(4)?;
    let name = std::str::from_utf8(fields.take(name as usize)?);
    let name = name.map_err(|_| "a name in the zip archive is not UTF-8")?;
    let mut extras = Fields(fields.take(extra as usize)?);
    fields.take(comment as usize)?;
    while extras.0.len() >= 4 {
        let (id, length) = (extras.number(2)?, extras.number(2)?);
        let mut extra = Fields(extras.take(length as usize)?);
        if id == u64::from(EXTRA_64) {
            // The numbers that did not fit 32 bits, in this order.
            for value in [&mut size, &mut packed, &mut start] {
                if *value == u64::from(u32::MAX) {
                    *value = extra.number(8)?;
                }
            }
        }
    }
    if flags & 1 != 0 {
        return Err(format!("`{name}` in the zip archive is encrypted").into());
    }
    if method != 0 || packed != size {
        return Err(format!(
            "`{name}` in the zip archive is compressed, which torch never does: unpack it and pack \
             it again with `zip -0`"
        )
        .into());
    }
    let mut local = from(bytes, start)?;
    local.signature(LOCAL, "entry")?;
    local.take(22)?;
    let (local_name, local_extra) = (local.number(2)?, local.number(2)?);
    local.take((local_name + local_extra) as usize)?;
    let first = bytes.len() - local.0.len();
    let size = usize::try_from(size).map_err(|_| "an entry of the zip archive is too large")?;
    local.take(size)?;
    Ok((name, first..first + size))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive with these entries, written by hand.
    fn archive(entries: &[(&str, &[u8])], method: u8) -> Vec<u8> {
        let (mut file, mut directory) = (Vec::new(), Vec::new());
        for (name, bytes) in entries {
            let start = file.len() as u32;
            let size = (bytes.len() as u32).to_le_bytes();
            let mut shared = vec![0, 0, 0, 0, method, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            shared.extend(size.iter().chain(&size));
            shared.extend((name.len() as u16).to_le_bytes());
            shared.extend([0, 0]);
            file.extend(LOCAL);
            file.extend(&shared);
            file.extend(name.as_bytes());
            file.extend(*bytes);
            directory.extend(CENTRAL);
            directory.extend([0, 0]);
            directory.extend(&shared);
            directory.extend([0; 10]);
            directory.extend(start.to_le_bytes());
            directory.extend(name.as_bytes());
        }
        let start = (file.len() as u32).to_le_bytes();
        let count = (entries.len() as u16).to_le_bytes();
        file.extend(&directory);
        file.extend(END);
        file.extend([0; 4]);
        file.extend(count.iter().chain(&count));
        file.extend((directory.len() as u32).to_le_bytes());
        file.extend(start);
        file.extend([0, 0]);
        file
    }

    #[test]
    fn entries_are_found_where_they_lie() {
        let file = archive(&[("a/data.pkl", b"xyz"), ("a/data/0", b"")], 0);
        let read = ZipArchive::read(&file).unwrap();
        assert_eq!(read.get("a/data.pkl"), Some(&b"xyz"[..]));
        assert_eq!(read.get("a/data/0"), Some(&b""[..]));
        assert_eq!(read.get("a"), None);
        assert_eq!(read.entries().count(), 2);
    }

    #[test]
    fn cut_compressed_and_doubled_archives_are_refused() {
        let file = archive(&[("a", b"xyz"), ("b", b"12")], 0);
        for cut in 0..file.len() {
            assert!(ZipArchive::read(&file[..cut]).is_err(), "cut at {cut}");
        }
        let refused = |file: &[u8]| ZipArchive::read(file).unwrap_err().to_string();
        assert!(refused(&archive(&[("a", b"xyz")], 8)).contains("compressed"));
        assert!(refused(&archive(&[("a", b"x"), ("a", b"y")], 0)).contains("twice"));
        for at in 0..file.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = file.clone();
                damaged[at] = value;
                let _ = ZipArchive::read(&damaged);
            }
        }
    }
}
