//! Asking for memory ahead of its turn.
//!
//! A processor finds out by itself what a copy reads next, but never beyond the page it is in, and
//! a small box ends before it has found out anything. So while one box is copied, the next one's
//! pages and first lines are asked for: by the time it is its turn, addresses are translated and
//! the first bytes are on their way.

use syncline_sync::prefetch::prefetch_read;

use super::CopyShape;

/// What is asked for at the start of a box; the processor sees to the rest once it is read. Six
/// times as many take so much of what can be under way at once that the copy itself slows down.
const LINES: usize = 8;
const LINE_BYTES: usize = 64;

/// A box of more pages is long enough for the processor to keep up by itself.
const PAGES_MAX: usize = 4;
const PAGE_BYTES: usize = 4096;

impl CopyShape {
    /// Asks for the start of the box at `source`; any address will do, even one that is not there.
    pub fn prefetch(&self, source: *const u8) {
        let (span, _) = self.spans();
        for page in 1..=PAGES_MAX.min(span / PAGE_BYTES) {
            prefetch_read(source.wrapping_add(page * PAGE_BYTES));
        }
        // Runs of a line or two follow each other at a distance.
        let step = match self.loops.last() {
            Some(inner) if self.source_run_bytes < LINES * LINE_BYTES => inner.source_step,
            _ => LINE_BYTES,
        };
        for line in 0..LINES {
            prefetch_read(source.wrapping_add(line * step));
        }
    }
}
