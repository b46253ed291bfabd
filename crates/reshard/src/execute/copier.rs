//! The copier: what needs no slot, within this PE and into the memory of peers.

use std::iter::Peekable;
use std::slice;

use super::pipeline::{Run, Step};
use super::program::{Move, Recode};
use super::timeline::RefitActivity;
use syncline_copy::{CopyPlan, ElementChange, FAN_MAX, Part};
use syncline_transport::Failure;

/// Between two looks at the clock and at the group: small tensors are copied faster than either.
const STEP_BYTES: u64 = 256 << 10;

/// What is copied at once of large boxes: whoever cancels, or sees its deadline pass, waits for no
/// more than this. (On lanes, for what was submitted.)
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
    pub fn step(&mut self) -> Result<Step, Failure> {
        let mut copied = 0;
        while copied < STEP_BYTES {
            match self.moves.by_ref().find(|each| self.run.copies(each)) {
                Some(first) => copied += self.copy(first)?,
                None if copied == 0 => return Ok(Step::Done),
                None => break,
            }
        }
        self.report();
        Ok(Step::Went)
    }

    /// Reports once for many boxes: an atomic count waits until every store past the caches has
    /// reached the memory.
    fn report(&mut self) {
        self.run.report_copied(self.placed, self.kept);
        (self.placed, self.kept) = (0, 0);
    }

    /// Copies a box, together with those that follow and have parts of the same rows; returns their
    /// bytes.
    fn copy(&mut self, first: &'a Move) -> Result<u64, Failure> {
        let shape = self.run.program.shape(first.shape);
        let mut fan =
            Fan { moves: [first; FAN_MAX], parts: [self.part(first)?; FAN_MAX], count: 1 };
        while fan.count < FAN_MAX
            && matches!(shape.recode, Recode::Nothing)
            && let Some(next) = self.beside(first)
        {
            (fan.moves[fan.count], fan.parts[fan.count]) = (next, self.part(next)?);
            fan.count += 1;
        }
        let bytes = shape.copy.bytes() * fan.count as u64;
        if bytes <= PASS_BYTES {
            self.copy_part(&fan, &shape.copy);
            return Ok(bytes);
        }
        for part in shape.copy.parts(PASS_BYTES / fan.count as u64) {
            self.copy_part(&fan, &part);
            self.report();
            self.run.check_limits()?;
        }
        Ok(bytes)
    }

    /// Copies a part of each box.
    fn copy_part(&mut self, fan: &Fan<'_>, copy: &CopyPlan) {
        let (run, first) = (self.run, fan.moves[0]);
        let shape = run.program.shape(first.shape);
        let change = shape.change(|| run.scales(first.source), first.source_offset);
        // SAFETY: sources are bound, with the sizes of their shards; targets were checked or are
        // bound, and the plan writes each of their bytes once.
        unsafe {
            match change {
                ElementChange::Nothing => copy.run_fan(&fan.parts[..fan.count], run.store),
                change => copy.run_as(fan.parts[0], change, run.store),
            }
        }
        for each in &fan.moves[..fan.count] {
            let is_kept = each.peer == run.program.rank;
            *(if is_kept { &mut self.kept } else { &mut self.placed }) += copy.bytes();
        }
        if let Some(timeline) = run.control.timeline {
            let parts = fan.moves.map(|each| match each.peer == run.program.rank {
                true => (RefitActivity::Keep, each.peer as usize),
                false => (RefitActivity::Place, each.peer as usize),
            });
            timeline.add_all(&parts[..fan.count], copy.bytes());
        }
    }

    /// The next box, if it has parts of the same rows as `first`.
    fn beside(&mut self, first: &Move) -> Option<&'a Move> {
        let shape = &self.run.program.shape(first.shape).copy;
        self.moves.next_if(|next| {
            (next.source, next.shape) == (first.source, first.shape)
                && shape.shares_rows(next.source_offset.abs_diff(first.source_offset) as u64)
                && self.run.copies(next)
        })
    }

    /// Where a box starts, and where it goes.
    fn part(&self, each: &Move) -> Result<Part, Failure> {
        let source = self.run.sources.bound.start(each.source).cast_const();
        let target = match each.peer == self.run.program.rank {
            true => self.run.place.start(each.target).wrapping_add(each.target_offset),
            false => self.run.window_address(each)?,
        };
        Ok((source.wrapping_add(each.source_offset), target))
    }
}

/// Boxes of one shape that are copied in one pass.
struct Fan<'a> {
    moves: [&'a Move; FAN_MAX],
    parts: [Part; FAN_MAX],
    count: usize,
}
