//! Slots: memory for one message, aligned to cache lines, with room for a header before the
//! payload.

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; Lines::HEADER_BYTES]);

/// A message's memory: one line of header, then the payload.
pub(crate) struct Lines(Vec<Line>);

impl Lines {
    /// Bytes before the payload; as many as a line, so that the payload is aligned too.
    pub(crate) const HEADER_BYTES: usize = 64;

    /// Room for a payload of `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(vec![Line([0; Self::HEADER_BYTES]); 1 + bytes.div_ceil(Self::HEADER_BYTES)])
    }

    /// Header and payload.
    pub(crate) fn bytes(&self) -> &[u8] {
        let bytes = self.0.len() * Self::HEADER_BYTES;
        // SAFETY: lines are arrays of bytes without gaps, and these are borrowed for as long as the
        // result.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), bytes) }
    }

    /// Header and payload.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.0.len() * Self::HEADER_BYTES;
        // SAFETY: lines are arrays of bytes without gaps, and these are borrowed for as long as the
        // result.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), bytes) }
    }
}
