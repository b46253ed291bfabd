//! Boxes that lie side by side: parts of one tensor's rows, each to a target of its own, in one
//! pass.
//!
//! One part alone is every other line or so of the source. The memory hands out the lines between
//! as well, and they may be gone when it is their turn. Row by row, all of the source is read once
//! and in order, which is also what a processor foresees best.

use super::CopyShape;
use super::stream::{self, Store, copy_run};

/// Where a box starts, at the source and at the target.
pub(crate) type Part = (*const u8, *mut u8);

/// Boxes that are copied in one pass.
pub(crate) const PARTS_MAX: usize = 8;

/// Longer runs are read in order by themselves.
const RUN_BYTES_MAX: usize = 4096;

impl CopyShape {
    /// Whether boxes of this shape that start `distance` bytes apart are better copied together.
    pub fn shares_rows(&self, distance: usize) -> bool {
        let row_bytes = self.loops.last().map_or(0, |inner| inner.source_step);
        distance < row_bytes && self.source_run_bytes <= RUN_BYTES_MAX
    }

    /// Calls `run` with source and target of every run: the first of each box, then the second of
    /// each.
    ///
    /// # Safety
    /// The spans of all boxes lie within what their parts point to.
    #[inline(always)]
    pub(super) unsafe fn for_each_part(
        &self,
        parts: &[Part],
        mut run: impl FnMut(*const u8, *mut u8),
    ) {
        // SAFETY: the run lies within the span of its box.
        let mut one =
            |(source, target): Part, from, to| unsafe { run(source.add(from), target.add(to)) };
        // Runs of a line each are most of the work of packing, where a loop around each of them
        // counts.
        if let [only] = *parts {
            return self.for_each_run(|from, to| one(only, from, to));
        }
        self.for_each_run(|from, to| parts.iter().for_each(|&part| one(part, from, to)));
    }
}

/// Copies boxes of one shape, unchanged.
///
/// Runs of a few sizes that tensor-parallel splits produce are worth a loop of their own: a call of
/// memcpy for each would cost more than the bytes.
///
/// # Safety
/// As [`copy_box`](super::copy_box), for each of them.
pub(crate) unsafe fn copy_fan(shape: &CopyShape, parts: &[Part], store: Store) {
    let bytes = shape.target_run_bytes;
    let are_lines = store == Store::Streaming
        && parts.iter().all(|&(_, target)| stream::has_whole_lines(shape, target));
    // SAFETY: in every arm, the caller's promise is passed on.
    unsafe {
        match bytes {
            _ if are_lines => stream::copy_lines(shape, parts),
            16 => copy_fixed::<16>(shape, parts),
            32 => copy_fixed::<32>(shape, parts),
            64 => copy_fixed::<64>(shape, parts),
            128 => copy_fixed::<128>(shape, parts),
            _ => shape.for_each_part(parts, |from, to| copy_run(from, to, bytes, store)),
        }
    }
}

/// # Safety
/// As [`copy_fan`], with runs of `BYTES`.
unsafe fn copy_fixed<const BYTES: usize>(shape: &CopyShape, parts: &[Part]) {
    // SAFETY: each run lies within the spans that the caller vouches for.
    unsafe {
        shape.for_each_part(parts, |from, to| std::ptr::copy_nonoverlapping(from, to, BYTES));
    }
}
