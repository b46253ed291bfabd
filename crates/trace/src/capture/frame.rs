//! Frames and numbers: how records are delimited and encoded.

/// Bytes before a payload: kind, length, check.
pub(super) const HEAD_BYTES: usize = 5;
/// Bytes after a payload: its checksum.
pub(super) const TAIL_BYTES: usize = 4;
/// The longest payload.
pub(super) const PAYLOAD_MAX: usize = (1 << 24) - 1;
/// Says of an unknown kind that it may be skipped.
pub(super) const SKIPPABLE: u8 = 0x80;

/// Tells a damaged length from a file that ends early: the checksum cannot, as it would be searched
/// for elsewhere.
pub(super) fn check_of(kind: u8, length: [u8; 3]) -> u8 {
    length.iter().fold(kind ^ 0xa5, |check, byte| check.rotate_left(3) ^ byte)
}

/// The next record of a capture, or the reason that there is none.
pub(super) enum Frame<'a> {
    Record { kind: u8, payload: &'a [u8], bytes: usize },
    End,
    Truncated,
    Corrupt(&'static str),
}

/// Decodes the record that `bytes` begin with.
pub(super) fn next_frame(bytes: &[u8]) -> Frame<'_> {
    let Some(&[kind, low, middle, high, check]) = bytes.first_chunk::<HEAD_BYTES>() else {
        return if bytes.is_empty() { Frame::End } else { Frame::Truncated };
    };
    if check != check_of(kind, [low, middle, high]) {
        return Frame::Corrupt("its head does not agree with itself");
    }
    let length = u32::from_le_bytes([low, middle, high, 0]) as usize;
    let summed = HEAD_BYTES + length;
    let Some(checksum) = bytes.get(summed..).and_then(|rest| rest.first_chunk::<TAIL_BYTES>())
    else {
        return Frame::Truncated;
    };
    if crc32fast::hash(&bytes[..summed]) != u32::from_le_bytes(*checksum) {
        return Frame::Corrupt("its checksum does not agree with its bytes");
    }
    Frame::Record { kind, payload: &bytes[HEAD_BYTES..summed], bytes: summed + TAIL_BYTES }
}

/// The unread rest of a payload.
pub(super) struct Payload<'a>(pub(super) &'a [u8]);

/// Why a payload with a right checksum still cannot be read.
pub(super) type Malformed = &'static str;

impl<'a> Payload<'a> {
    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&byte, rest) = self.0.split_first().ok_or("it ends early")?;
        self.0 = rest;
        Ok(byte)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("it has a number of more than 64 bits")
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        self.u64().map(|bits| (bits >> 1) as i64 ^ -((bits & 1) as i64))
    }

    /// A number of things that take at least `bytes_each` bytes each, so that no count makes anyone
    /// allocate more than the file is long.
    pub(super) fn count(&mut self, bytes_each: usize) -> Result<usize, Malformed> {
        let count = self.u64()?;
        let most = (self.0.len() / bytes_each) as u64;
        if count > most {
            Err("it counts more things than it has bytes")
        } else {
            Ok(count as usize)
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = self.count(1)?;
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_| "it has a text that is not UTF-8")
    }

    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err("it is longer than its kind says") }
    }
}
