//! Statistics of overlap tests.

use syncline_tensor::Region;

/// Counts of overlap tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverlapStats {
    /// Pairs of regions that were compared.
    pub tests: u64,
    /// Pairs that needed the integer solver.
    pub solved: u64,
    /// Pairs on which the solver gave up: they count as overlapping, which is safe but may order
    /// too much.
    pub exhausted: u64,
    /// Accesses of which a later write could not be cut out exactly, or only into too many parts.
    /// They are remembered for all of their bytes, which may show edges that others imply.
    pub uncut: u64,
}

impl OverlapStats {
    /// Returns `true` if the two regions overlap, and counts the test.
    #[inline]
    pub(crate) fn test(&mut self, a: &Region, b: &Region) -> bool {
        let test = a.test_overlap(b);
        self.tests += 1;
        self.solved += u64::from(test.solved);
        self.exhausted += u64::from(test.exhausted);
        test.overlaps
    }
}
