//! Requests for memory ahead of its use.
//!
//! A processor predicts what a copy reads next, but never beyond a page, and a small box ends
//! before the prediction begins. So while one box is copied, the next one's pages and first lines
//! are requested: when it is copied, addresses are translated and the first bytes are on their way.

use syncline_sync::prefetch::prefetch_read;

use super::tuning::{LINE_BYTES, PAGE_BYTES, PREFETCH_LINES, PREFETCH_PAGES_MAX};
use crate::plan::CopyPlan;

const LINE: u64 = LINE_BYTES as u64;

impl CopyPlan {
    /// Requests the start of the box whose offsets count from `source`. Any address will do, also
    /// one that is not mapped.
    pub fn prefetch(&self, source: *const u8) {
        let span = self.source_span();
        let source = source.wrapping_add(self.source_offset() as usize);
        for page in 1..=PREFETCH_PAGES_MAX.min((span.end - span.start) / PAGE_BYTES) {
            prefetch_read(source.wrapping_add((page * PAGE_BYTES) as usize));
        }
        // Runs of a line or two follow each other at a distance.
        let step = match self.loops().last() {
            Some(inner) if self.source_run_bytes() < PREFETCH_LINES * LINE => inner.source_stride,
            _ => LINE as i64,
        };
        for line in 0..PREFETCH_LINES as i64 {
            prefetch_read(source.wrapping_offset((line * step) as isize));
        }
    }
}
