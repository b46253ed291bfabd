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
    /// Accesses of which a later write could not be cut out exactly, or only into too many parts:
    /// more than 16 of one access, or, of a view of several dimensions, after eight writes that
    /// each left something. They are remembered for all of their bytes, which may show edges that
    /// others imply, and never loses one. Boxes of one tensor of any rank, and runs of bytes, are
    /// cut exactly; of two views whose strides have no common lattice the older one is cut if it
    /// has at most 16 runs.
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
