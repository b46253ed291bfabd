//! Numbers and strings as bytes: seven bits a byte, lowest first.

use super::StoreError;

/// Appends to a byte string.
#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn number(&mut self, number: impl Into<u64>) {
        let mut rest = number.into();
        while rest >= 0x80 {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }

    /// Small negative numbers stay short, too.
    pub(crate) fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> 63)) as u64);
    }

    pub(crate) fn string(&mut self, string: &str) {
        self.number(string.len() as u64);
        self.raw(string.as_bytes());
    }

    pub(crate) fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.number(items.len() as u64);
        for item in items {
            each(self, item);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Takes from a byte string, and says where it could not.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(crate) fn invalid(&self, what: &'static str) -> StoreError {
        StoreError::Invalid { at: self.at, what }
    }

    pub(crate) fn number(&mut self, what: &'static str) -> Result<u64, StoreError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte =
                *self.bytes.get(self.at).ok_or(StoreError::Truncated { at: self.at, what })?;
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.invalid(what))
    }

    /// A number that fits a narrower type.
    pub(crate) fn narrow<T: TryFrom<u64>>(&mut self, what: &'static str) -> Result<T, StoreError> {
        let number = self.number(what)?;
        T::try_from(number).map_err(|_| self.invalid(what))
    }

    pub(crate) fn signed(&mut self, what: &'static str) -> Result<i64, StoreError> {
        let number = self.number(what)?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(crate) fn flag(&mut self, what: &'static str) -> Result<bool, StoreError> {
        match self.number(what)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.invalid(what)),
        }
    }

    pub(crate) fn string(&mut self, what: &'static str) -> Result<&'a str, StoreError> {
        let length: usize = self.narrow(what)?;
        let end = self.at.checked_add(length).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or(StoreError::Truncated { at: self.bytes.len(), what })?;
        let string =
            std::str::from_utf8(&self.bytes[self.at..end]).map_err(|_| self.invalid(what))?;
        self.at = end;
        Ok(string)
    }

    pub(crate) fn list<T>(
        &mut self,
        what: &'static str,
        mut each: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let count: usize = self.narrow(what)?;
        // Every item takes a byte at least: a forged count cannot make us reserve more than the
        // file's size.
        if count > self.bytes.len() - self.at {
            return Err(StoreError::Truncated { at: self.bytes.len(), what });
        }
        (0..count).map(|_| each(self)).collect()
    }

    pub(crate) fn expect_end(&self) -> Result<(), StoreError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.invalid("end")) }
    }
}
