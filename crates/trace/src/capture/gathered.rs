//! Records that gather in memory until they are written.

use super::frame::{HEAD_BYTES, PAYLOAD_MAX, check_of};

/// The longest run: an argument with as many dimensions as there may be, all numbers at their
/// longest.
pub(super) const RUN_BYTES: usize = 192;

/// Bytes with room behind them: one check of the bounds for a run of numbers, not for each byte.
#[derive(Debug)]
pub(super) struct Gathered {
    bytes: Vec<u8>,
    length: usize,
}

impl Gathered {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { bytes: vec![0; capacity], length: 0 }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn clear(&mut self) {
        self.length = 0;
    }

    /// Starts a record and returns its place, for [`Gathered::end_record`].
    #[inline]
    pub(super) fn begin_record(&mut self, kind: u8) -> usize {
        let start = self.length;
        self.put_bytes([kind, 0, 0, 0, 0]);
        start
    }

    /// Completes the record that began at `start`; takes it back where it is too long.
    #[inline]
    pub(super) fn end_record(&mut self, start: usize) -> Result<(), usize> {
        let length = self.length - start - HEAD_BYTES;
        if length > PAYLOAD_MAX {
            self.length = start;
            return Err(length);
        }
        let [low, middle, high, _] = (length as u32).to_le_bytes();
        let record = &mut self.bytes[start..self.length];
        let check = check_of(record[0], [low, middle, high]);
        record[1..HEAD_BYTES].copy_from_slice(&[low, middle, high, check]);
        let checksum = crc32fast::hash(record);
        self.put_bytes(checksum.to_le_bytes());
        Ok(())
    }

    #[inline]
    pub(super) fn put_bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        *self.room() = bytes;
        self.length += N;
    }

    #[inline]
    pub(super) fn put_u64(&mut self, value: u64) {
        self.put_run(|run| run.put_u64(value));
    }

    /// Puts a run of at most [`RUN_BYTES`] bytes.
    #[inline]
    pub(super) fn put_run(&mut self, fill: impl FnOnce(&mut Run<'_>)) {
        let mut run = Run { bytes: self.room(), length: 0 };
        fill(&mut run);
        let length = run.length;
        self.length += length;
    }

    pub(super) fn put_text(&mut self, text: &str) {
        self.put_u64(text.len() as u64);
        self.grow_for(text.len());
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
    }

    /// The `N` bytes that come next.
    #[inline]
    fn room<const N: usize>(&mut self) -> &mut [u8; N] {
        if self.bytes.len() - self.length < N {
            self.grow_for(N);
        }
        self.bytes[self.length..].first_chunk_mut().expect("grown above")
    }

    #[cold]
    fn grow_for(&mut self, bytes: usize) {
        let needed = self.length + bytes;
        if needed > self.bytes.len() {
            self.bytes.resize(needed.max(self.bytes.len() * 2), 0);
        }
    }
}

/// Numbers that follow one another: their place is known without going through memory for each.
pub(super) struct Run<'a> {
    bytes: &'a mut [u8; RUN_BYTES],
    length: usize,
}

impl Run<'_> {
    #[inline(always)]
    pub(super) fn put_u8(&mut self, value: u8) {
        self.bytes[self.length] = value;
        self.length += 1;
    }

    #[inline(always)]
    pub(super) fn put_u64(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.put_u8(value as u8);
    }

    #[inline(always)]
    pub(super) fn put_i64(&mut self, value: i64) {
        self.put_u64(((value << 1) ^ (value >> 63)) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::Payload;
    use super::*;

    #[test]
    fn numbers_come_back() {
        let edges = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        let words: Vec<u64> = edges.chain([u64::MAX - 1, u64::MAX]).collect();
        let mut out = Gathered::with_capacity(3);
        for &word in &words {
            out.put_u64(word);
            out.put_run(|run| run.put_i64(word as i64));
        }
        let mut payload = Payload(out.as_slice());
        for &word in &words {
            assert_eq!(payload.u64(), Ok(word));
            assert_eq!(payload.i64(), Ok(word as i64));
        }
        assert_eq!(payload.end(), Ok(()));
        assert!(Payload(&[0xff; 10]).u64().is_err());
        assert!(Payload(&[0xff, 0xff]).u64().is_err());
    }
}
