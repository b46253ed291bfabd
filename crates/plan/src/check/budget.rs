//! How much work and memory a check may take.

use super::CheckError;

/// What a check may still spend.
///
/// A unit is a step of some ten nanoseconds or a few bytes of memory. Every loop and table of the
/// checker whose size does not follow from the number of records in the plan is paid for before it
/// begins, so that neither the time nor the memory of a check can exceed the budget.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u64,
    max: u64,
}

impl Budget {
    /// What any file may cost: views of [`Budget::PER_RUN`] units a run, four million of them.
    const BASE: u64 = 1 << 24;
    /// What each byte of a file may cost besides.
    const PER_BYTE: u64 = 1 << 8;
    /// What an interval of a view costs, in time and memory.
    pub(crate) const PER_RUN: u64 = 4;
    /// What a pair of strided views costs for which the solver gave up.
    pub(crate) const PER_EXHAUSTED: u64 = 1 << 12;
    /// What a pair of strided views costs.
    pub(crate) const PER_SOLVED: u64 = 32;

    /// For plans that this process compiled: they cost what compiling them cost.
    pub(crate) const fn unlimited() -> Self {
        Self { left: u64::MAX, max: u64::MAX }
    }

    /// For a plan from a file of `bytes` bytes.
    pub(crate) const fn for_file(bytes: usize) -> Self {
        let max = Self::BASE.saturating_add(Self::PER_BYTE.saturating_mul(bytes as u64));
        Self { left: max, max }
    }

    /// Takes `units`, or refuses if fewer are left.
    #[inline]
    pub(crate) fn spend(&mut self, units: u64) -> Result<(), CheckError> {
        if self.max == u64::MAX {
            return Ok(());
        }
        match self.left.checked_sub(units) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(CheckError::TooCostly { steps_max: self.max }),
        }
    }
}
