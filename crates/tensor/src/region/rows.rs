//! Rows: the common case of two regions that are boxes of one matrix.

use super::Region;
use super::solve::PLACE_MAX;

/// Runs one pitch after the other, none longer than the pitch.
#[derive(Clone, Copy)]
pub(super) struct Runs {
    pub(super) run: i64,
    pub(super) count: i64,
}

impl Runs {
    #[inline]
    fn of(region: &Region, pitch: u64) -> Option<Self> {
        let (run, count) = match region.rank {
            0 if region.run <= pitch => (region.run, 1),
            0 if region.run.is_multiple_of(pitch) => (pitch, region.run / pitch),
            1 if region.run <= pitch && region.strides[0] == pitch => {
                (region.run, region.counts[0])
            }
            _ => return None,
        };
        Some(Self { run: run as i64, count: count as i64 })
    }
}

/// Two regions as rows of one pitch.
pub(super) struct Rows {
    pub(super) pitch: i64,
    pub(super) own: Runs,
    pub(super) other: Runs,
    /// The row and the column at which `other` begins, counted from the start of `own`.
    row: i64,
    column: i64,
}

impl Rows {
    /// The regions as rows, if both have the same pitch, or one of them has and the other is made
    /// of whole rows or lies in one.
    #[inline]
    pub(super) fn of_pair(own: &Region, other: &Region) -> Option<Self> {
        if own.rank.max(other.rank) != 1 || own.end.max(other.end) > PLACE_MAX {
            return None;
        }
        // One of them is zero, or they are the same.
        let pitch = own.strides[0].max(other.strides[0]);
        let shift = other.start as i64 - own.start as i64;
        Some(Self {
            pitch: pitch as i64,
            own: Runs::of(own, pitch)?,
            other: Runs::of(other, pitch)?,
            row: shift.div_euclid(pitch as i64),
            column: shift.rem_euclid(pitch as i64),
        })
    }

    /// Returns `true` if they share a byte.
    #[inline]
    pub(super) fn meet(&self) -> bool {
        let rows_meet = |row: i64| row < self.own.count && row + self.other.count > 0;
        // Columns that end past the pitch come round in the next row.
        self.column < self.own.run && rows_meet(self.row)
            || self.column + self.other.run > self.pitch && rows_meet(self.row + 1)
    }

    /// The row and the column of `other`'s first byte in the matrix whose first byte is that of
    /// `own`. `None` if no one corner says which bytes are shared.
    #[inline]
    pub(super) fn corner(&self) -> Option<(i64, i64)> {
        match self.column + self.other.run > self.pitch {
            false => Some((self.row, self.column)),
            true if self.column >= self.own.run => Some((self.row + 1, self.column - self.pitch)),
            true => None,
        }
    }
}
