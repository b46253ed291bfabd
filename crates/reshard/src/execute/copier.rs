//! The copier: what needs no slot, within this PE and into the memory of peers.

use std::iter::Peekable;
use std::slice;

use super::pipeline::{Run, Step};
use super::program::{Move, Recode};
use crate::copy::{self, PARTS_MAX};
use crate::transport::Failure;

/// Between two looks at the clock and at the group: small tensors are copied faster than either.
const STEP_BYTES: u64 = 256 << 10;

/// Boxes are not added to a pass that has this many: whoever cancels waits for it.
const PASS_BYTES: u64 = 16 << 20;

/// What is copied next.
pub(super) struct Copier<'r, 'a> {
    run: &'r Run<'a>,
    moves: Peekable<slice::Iter<'a, Move>>,
    /// Bytes copied into memory of peers, and within this PE, that were not reported yet.
    placed: u64,
    kept: u64,
}

impl<'r, 'a> Copier<'r, 'a> {
    pub fn new(run: &'r Run<'a>) -> Self {
        Self { run, moves: run.program.moves.iter().peekable(), placed: 0, kept: 0 }
    }

    /// Copies the next boxes, a good many small ones or one large.
    ///
    /// They are counted once for all: an atomic count waits until every store past the caches has reached the memory.
    pub fn step(&mut self) -> Result<Step, Failure> {
        while self.placed + self.kept < STEP_BYTES {
            match self.next() {
                Some(first) => self.copy(first)?,
                None if self.placed + self.kept == 0 => return Ok(Step::Done),
                None => break,
            }
        }
        self.run.report_copied(self.placed, self.kept);
        (self.placed, self.kept) = (0, 0);
        Ok(Step::Went)
    }

    fn next(&mut self) -> Option<&'a Move> {
        self.moves.by_ref().find(|each| self.run.copies(each))
    }

    /// Copies a box, together with those that follow and have parts of the same rows.
    fn copy(&mut self, first: &'a Move) -> Result<(), Failure> {
        let shape = self.run.program.shape(first.shape);
        let target = self.target(first)?;
        if !matches!(shape.recode, Recode::Nothing) {
            // SAFETY: the source is bound, with the size of its shard; the target was checked or is bound, and
            // the plan writes each of its bytes once.
            unsafe { self.run.copy_move(first, target, self.run.store) };
            return Ok(());
        }
        let start = self.run.sources.bound.start(first.source).cast_const();
        let mut parts = [(start.wrapping_add(first.source_offset), target); PARTS_MAX];
        let mut count = 1;
        while count < PARTS_MAX && self.placed + self.kept < PASS_BYTES {
            let Some(next) = self.beside(first) else { break };
            parts[count] = (start.wrapping_add(next.source_offset), self.target(next)?);
            count += 1;
        }
        // SAFETY: as above, for each of them.
        unsafe { copy::copy_fan(&shape.copy, &parts[..count], self.run.store) };
        Ok(())
    }

    /// The next box, if it has parts of the same rows as `first`.
    fn beside(&mut self, first: &Move) -> Option<&'a Move> {
        let shape = &self.run.program.shape(first.shape).copy;
        self.moves.next_if(|next| {
            (next.source, next.shape) == (first.source, first.shape)
                && shape.shares_rows(next.source_offset.abs_diff(first.source_offset))
                && self.run.copies(next)
        })
    }

    /// Where a box goes; it counts as copied.
    fn target(&mut self, each: &Move) -> Result<*mut u8, Failure> {
        let bytes = self.run.program.shape(each.shape).copy.target_bytes() as u64;
        if each.peer != self.run.program.rank {
            self.placed += bytes;
            return self.run.window_address(each);
        }
        self.kept += bytes;
        // SAFETY: the target is bound, with the size of the shard that the box lies in.
        Ok(unsafe { self.run.place.start(each.target).add(each.target_offset) })
    }
}
