//! Identities of tasks and buffers.

use std::fmt;

/// Identity of a buffer. Ids are never used again within one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u64);

impl fmt::Display for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

/// Identity of a task: the ring that issued it and its sequence number there.
///
/// Sequence numbers only grow, so that the id of a task that has long gone is recognised as such
/// and never taken for a newer task that happens to live in the same slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(u64);

impl TaskId {
    const SEQUENCE_BITS: u32 = 56;
    /// The largest sequence number of a ring.
    pub const SEQUENCE_MAX: u64 = (1 << Self::SEQUENCE_BITS) - 1;

    /// The task number `sequence` of ring number `ring`.
    ///
    /// # Panics
    /// If `sequence` is above [`TaskId::SEQUENCE_MAX`]: at one task a nanosecond, two years of
    /// submitting.
    #[inline]
    pub const fn new(ring: u8, sequence: u64) -> Self {
        assert!(sequence <= Self::SEQUENCE_MAX, "task sequence numbers are used up");
        Self((ring as u64) << Self::SEQUENCE_BITS | sequence)
    }

    /// The ring that issued this id.
    #[inline]
    pub const fn ring(self) -> u8 {
        (self.0 >> Self::SEQUENCE_BITS) as u8
    }

    /// The number of tasks that this ring had issued before.
    #[inline]
    pub const fn sequence(self) -> u64 {
        self.0 & Self::SEQUENCE_MAX
    }

    /// The task that its ring issues after this one.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.ring(), self.sequence() + 1)
    }

    /// Both parts in one word, for files.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`TaskId::to_bits`].
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ring() {
            0 => write!(f, "{}", self.sequence()),
            ring => write!(f, "{ring}:{}", self.sequence()),
        }
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{self}")
    }
}
