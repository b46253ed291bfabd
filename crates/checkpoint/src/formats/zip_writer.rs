//! Writing zip archives in which entries are stored as they are: where everything lies is known
//! before the bytes of tensors are.

use std::ops::Range;

use super::zip::LOCAL;

/// Entries begin at multiples of this, as in files of torch.
const ALIGN: u64 = 64;

/// What does not fit 32 bits is in an extra field.
const FULL: u64 = 0xffff_ffff;

/// The name of the extra field that torch fills gaps with.
const PADDING: &[u8; 2] = b"FB";

/// A checksum (CRC-32) that is written when the bytes of a tensor are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checksum {
    /// The bytes that it is of.
    pub(crate) bytes: Range<u64>,
    /// Where it stands.
    pub(crate) at: [u64; 2],
}

/// An archive, laid out from `start` of a file on.
#[derive(Debug)]
pub(super) struct ZipWriter {
    start: u64,
    next: u64,
    directory: Vec<Entry>,
    /// Bytes that are no tensors, by where they lie.
    pub(super) fixed: Vec<(u64, Vec<u8>)>,
    pub(super) sums: Vec<Checksum>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    crc: u32,
    size: u64,
    /// Where the entry begins, from the start of the archive on.
    start: u64,
    /// The checksum that is not known yet.
    sum: Option<usize>,
}

impl ZipWriter {
    pub(super) fn new(start: u64) -> Self {
        Self { start, next: start, directory: Vec::new(), fixed: Vec::new(), sums: Vec::new() }
    }

    /// Adds an entry with these bytes.
    pub(super) fn bytes(&mut self, name: &str, bytes: &[u8]) {
        let size = bytes.len() as u64;
        self.entry(name, crc32fast::hash(bytes), size, None);
        self.fixed.push((self.next, bytes.to_vec()));
        self.next += size;
    }

    /// Adds an entry for the bytes of a tensor; returns where they go.
    pub(super) fn tensor(&mut self, name: &str, size: u64) -> u64 {
        let crc_at = self.next + 14;
        self.entry(name, 0, size, Some(self.sums.len()));
        let place = self.next;
        self.sums.push(Checksum { bytes: place..place + size, at: [crc_at, crc_at] });
        self.next += size;
        place
    }

    fn entry(&mut self, name: &str, crc: u32, size: u64, sum: Option<usize>) {
        let start = self.next;
        let mut extra = Vec::new();
        if size >= FULL {
            extra.extend([1, 0, 16, 0]);
            extra.extend(size.to_le_bytes());
            extra.extend(size.to_le_bytes());
        }
        let head = 30 + name.len() as u64 + extra.len() as u64 + 4;
        let gap = (start + head).next_multiple_of(ALIGN) - (start + head);
        extra.extend(PADDING);
        extra.extend((gap as u16).to_le_bytes());
        extra.resize(extra.len() + gap as usize, 0);
        let mut bytes = LOCAL.to_vec();
        bytes.extend(shared(name, crc, size));
        bytes.extend((extra.len() as u16).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(extra);
        self.next = start + bytes.len() as u64;
        match sum {
            // A checksum that is not known is a hole.
            Some(_) => {
                self.fixed.push((start + 18, bytes.split_off(18)));
                bytes.truncate(14);
                self.fixed.push((start, bytes));
            }
            None => self.fixed.push((start, bytes)),
        }
        let start = start - self.start;
        self.directory.push(Entry { name: name.to_owned(), crc, size, start, sum });
    }

    /// Writes the directory; returns where the archive ends.
    pub(super) fn finish(&mut self) -> u64 {
        let first = self.next;
        let mut bytes = Vec::new();
        let mut holes = Vec::new();
        for Entry { name, crc, size, start, sum } in &self.directory {
            let mut extra = Vec::new();
            let wide = [(*size >= FULL).then_some(*size), (*size >= FULL).then_some(*size)];
            let wide = wide.into_iter().chain([(*start >= FULL).then_some(*start)]).flatten();
            let wide: Vec<u8> = wide.flat_map(u64::to_le_bytes).collect();
            if !wide.is_empty() {
                extra.extend([1, 0]);
                extra.extend((wide.len() as u16).to_le_bytes());
                extra.extend(wide);
            }
            if let Some(sum) = sum {
                holes.push(bytes.len() + 16);
                self.sums[*sum].at[1] = first + bytes.len() as u64 + 16;
            }
            bytes.extend(b"PK\x01\x02\x2d\x00");
            bytes.extend(shared(name, *crc, *size));
            bytes.extend((extra.len() as u16).to_le_bytes());
            bytes.extend([0; 10]);
            bytes.extend((*start.min(&FULL) as u32).to_le_bytes());
            bytes.extend(name.as_bytes());
            bytes.extend(extra);
        }
        let (count, size) = (self.directory.len() as u64, bytes.len() as u64);
        let start = first - self.start;
        let end_64 = start + size;
        bytes.extend(b"PK\x06\x06");
        bytes.extend(44u64.to_le_bytes());
        bytes.extend([0x2d, 0, 0x2d, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for value in [count, count, size, start] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(b"PK\x06\x07\0\0\0\0");
        bytes.extend(end_64.to_le_bytes());
        bytes.extend([1, 0, 0, 0]);
        bytes.extend(b"PK\x05\x06\0\0\0\0");
        let few = (count.min(0xffff) as u16).to_le_bytes();
        bytes.extend(few.iter().chain(&few));
        bytes.extend((size.min(FULL) as u32).to_le_bytes());
        bytes.extend((start.min(FULL) as u32).to_le_bytes());
        bytes.extend([0, 0]);
        self.next = first + bytes.len() as u64;
        // The directory without its holes.
        let mut from = 0;
        for hole in holes.into_iter().chain([bytes.len()]) {
            self.fixed.push((first + from as u64, bytes[from..hole].to_vec()));
            from = hole + 4;
        }
        self.next
    }
}

/// The members that an entry and its record in the directory share, from the version on, up to the
/// length of the name.
fn shared(name: &str, crc: u32, size: u64) -> Vec<u8> {
    // Version 4.5 for large entries; names in UTF-8; stored; no time.
    let mut bytes = vec![0x2d, 0, 0, 8, 0, 0, 0, 0, 0x21, 0];
    bytes.extend(crc.to_le_bytes());
    let size = (size.min(FULL) as u32).to_le_bytes();
    bytes.extend(size.iter().chain(&size));
    bytes.extend((name.len() as u16).to_le_bytes());
    bytes
}
