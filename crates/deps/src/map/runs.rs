//! Runs: the accesses to a buffer that is used through ever new runs of bytes.
//!
//! Where hardly a view comes twice, a node for each is wasted: here an access is a run of bytes in
//! an ordered index, and a plain write cuts its bytes out of the older ones. The runs are the
//! frontier itself: the last writer of every byte, and its readers since.
//!
//! Writers never overlap, and so are at most two for each write. Readers may, and a write in the
//! middle of many would double them: a reader is cut into at most [`PARTS_MAX`] parts. Past that
//! the part keeps bytes that have been written since, which may show edges that others imply; that
//! is counted as `uncut`.

use std::ops::ControlFlow;

use super::entries::{Entry, Mode};
use super::intervals::{Intervals, Span};
use super::live::Liveness;
use crate::OverlapStats;

/// A reader is cut into at most so many parts.
const PARTS_MAX: u32 = 16;

/// With fewer runs than this, none is searched for retired tasks.
const SWEEP_LENGTH: usize = 256;

/// So many writes decide whether runs come again.
const WRITES: u32 = 32;

/// One access to some bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) entry: Entry,
    /// How many parts it may be cut into; none where bytes have been written since.
    parts: u32,
}

impl Run {
    /// Returns `true` if it stands for bytes that have been written since.
    pub(super) fn is_uncut(&self) -> bool {
        self.parts == 0
    }
}

/// The frontier of a buffer, by runs of bytes.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// The runs of writers, which do not overlap, and the runs of readers.
    writers: Intervals,
    readers: Intervals,
    runs: Vec<Run>,
    free: Vec<u32>,
    sweep_at: usize,
    /// Writes lately, and those among them of exactly the bytes of an earlier access.
    writes: u32,
    writes_again: u32,
    /// Scratch: the readers that a write meets, and the parts that a cut leaves behind it.
    found: Vec<(Span, u32)>,
    behind: Vec<(Span, u32)>,
}

impl Runs {
    /// Returns the number of accesses that are remembered, by parts.
    pub(super) fn len(&self) -> usize {
        self.writers.len() + self.readers.len()
    }

    /// Returns `true` if many writes lately were of exactly the bytes of an earlier access.
    pub(super) fn come_again(&mut self) -> bool {
        if self.writes < WRITES {
            return false;
        }
        let again = 3 * self.writes_again > self.writes;
        (self.writes, self.writes_again) = (0, 0);
        again
    }

    /// Returns the runs of all writers, and then of all readers.
    pub(super) fn all(&self) -> Vec<(Span, Run)> {
        let mut all = Vec::with_capacity(self.len());
        for index in [&self.writers, &self.readers] {
            index.visit(&(0..u64::MAX), |span, run| all.push((span, self.runs[run as usize])));
        }
        all
    }

    /// Shows the accesses that one of `mode` to the bytes of `by` must come after.
    pub(super) fn waits<B>(
        &mut self,
        by: &Span,
        mode: Mode,
        mut show: impl FnMut(Entry) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Self { writers, readers, runs, found, .. } = self;
        let mut flow = ControlFlow::Continue(());
        if mode == Mode::Read {
            writers.visit(by, |_, run| {
                if flow.is_continue() {
                    flow = show(runs[run as usize].entry);
                }
            });
            return flow;
        }
        found.clear();
        readers.visit(by, |span, run| found.push((span, run)));
        for (_, run) in &*found {
            show(runs[*run as usize].entry)?;
        }
        // A reader of any of a writer's bytes has waited for the writer. Both come by their first
        // bytes: readers that begin before the end of a writer, as far as they reach.
        let mut begun = found.iter().filter(|(_, run)| !runs[*run as usize].is_uncut()).peekable();
        let mut reach = 0;
        writers.visit(by, |span, run| {
            while let Some((reader, _)) = begun.next_if(|(reader, _)| reader.start < span.end) {
                reach = reach.max(reader.end);
            }
            if reach <= span.start && flow.is_continue() {
                flow = show(runs[run as usize].entry);
            }
        });
        flow
    }

    /// Remembers an access that has waited for what [`Runs::waits`] shows.
    pub(super) fn record(
        &mut self,
        span: Span,
        entry: Entry,
        live: &Liveness,
        overlap: &mut OverlapStats,
    ) {
        if entry.mode() == Mode::Write {
            self.cut(&span, live, overlap);
        }
        if self.len() >= self.sweep_at.max(SWEEP_LENGTH) {
            self.sweep(live);
        }
        let run = self.add(Run { entry, parts: PARTS_MAX });
        match entry.mode() {
            Mode::Write => self.writers.insert(span, run),
            _ => self.readers.insert(span, run),
        }
    }

    /// Forgets the accesses of retired tasks.
    #[cold]
    fn sweep(&mut self, live: &Liveness) {
        let Self { writers, readers, runs, free, .. } = self;
        for index in [&mut *writers, readers] {
            index.cut(&(0..u64::MAX), |own, run| {
                if live.is_live(runs[run as usize].entry.task) {
                    return Some(own.end);
                }
                free.push(run);
                None
            });
        }
        // Doubling makes the sweeps cost a constant for each access ever remembered.
        self.sweep_at = 2 * self.len();
    }

    fn add(&mut self, run: Run) -> u32 {
        let Some(vacant) = self.free.pop() else {
            self.runs.push(run);
            return self.runs.len() as u32 - 1;
        };
        self.runs[vacant as usize] = run;
        vacant
    }

    /// Cuts the bytes of `by` out of all that is remembered.
    fn cut(&mut self, by: &Span, live: &Liveness, overlap: &mut OverlapStats) {
        let Self { writers, readers, runs, free, behind, .. } = self;
        let mut again = false;
        for (index, reads) in [(&mut *writers, false), (readers, true)] {
            index.cut(by, |own, run| {
                again |= own == *by;
                let Run { entry, parts } = runs[run as usize];
                let (before, after) = (own.start < by.start, by.end < own.end);
                if !(before || after) || !live.is_live(entry.task) {
                    free.push(run);
                    return None;
                }
                if before && after {
                    if reads && parts < 2 {
                        overlap.uncut += 1;
                        runs[run as usize].parts = 0;
                        return Some(own.end);
                    }
                    let second = if reads { parts / 2 } else { 0 };
                    runs[run as usize].parts = parts - second;
                    let new = Run { entry, parts: if reads { second } else { parts } };
                    let place = free.pop().unwrap_or(runs.len() as u32);
                    match runs.get_mut(place as usize) {
                        Some(vacant) => *vacant = new,
                        None => runs.push(new),
                    }
                    behind.push((by.end..own.end, place));
                } else if after {
                    behind.push((by.end..own.end, run));
                    return None;
                }
                Some(by.start)
            });
            behind.drain(..).for_each(|(span, run)| index.insert(span, run));
        }
        self.writes += 1;
        self.writes_again += u32::from(again);
    }

    pub(super) fn bytes(&self) -> usize {
        (self.writers.bytes() + self.readers.bytes())
            + self.runs.capacity() * size_of::<Run>()
            + (self.free.capacity() * size_of::<u32>())
            + (self.found.capacity() + self.behind.capacity()) * size_of::<(Span, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use syncline_tensor::{Access, TaskId};
    use syncline_testing::for_seeds;

    use super::*;

    /// Who wrote each byte last, and who has read it since.
    #[derive(Clone, Default)]
    struct Byte {
        writer: Option<u64>,
        readers: BTreeSet<u64>,
    }

    #[test]
    fn what_is_waited_for_is_the_frontier_of_the_bytes() {
        for_seeds("what_is_waited_for_is_the_frontier_of_the_bytes", 200, |rng| {
            let (mut runs, mut live) = (Runs::default(), Liveness::default());
            let mut overlap = OverlapStats::default();
            let mut bytes = vec![Byte::default(); 300];
            let longest = *rng.pick(&[8, 60, 250]);
            for sequence in 0..400 {
                let start = rng.range(0..299);
                let span = start..(start + rng.range(1..longest)).min(300);
                let (access, mode) = match rng.one_in(3) {
                    true => (Access::InOut, Mode::Write),
                    false => (Access::Input, Mode::Read),
                };
                let mut shown = BTreeSet::new();
                let _ = runs.waits::<()>(&span, mode, |entry| {
                    shown.insert(entry.task.sequence());
                    ControlFlow::Continue(())
                });
                let touched = &mut bytes[span.start as usize..span.end as usize];
                let mut must = BTreeSet::new();
                let mut may = BTreeSet::new();
                for byte in touched.iter_mut() {
                    may.extend(byte.writer);
                    match mode {
                        Mode::Read => must.extend(byte.writer),
                        _ if byte.readers.is_empty() => must.extend(byte.writer),
                        _ => must.extend(byte.readers.iter().copied()),
                    }
                }
                may.extend(must.iter().copied());
                // A writer with a reader is left out, also where the reader is elsewhere.
                let read: BTreeSet<u64> =
                    (must.iter().copied()).filter(|writer| !shown.contains(writer)).collect();
                for writer in read {
                    let is_his = |byte: &&Byte| byte.writer == Some(writer);
                    let known = |byte: &Byte| byte.readers.iter().any(|one| shown.contains(one));
                    assert!(mode != Mode::Read && bytes.iter().filter(is_his).any(known));
                }
                if overlap.uncut == 0 {
                    assert!(shown.is_subset(&may), "{shown:?} of {may:?}");
                }
                let task = TaskId::new(0, sequence);
                runs.record(span.clone(), Entry::new(task, 0, access, false), &live, &mut overlap);
                for byte in &mut bytes[span.start as usize..span.end as usize] {
                    match mode {
                        Mode::Read => _ = byte.readers.insert(sequence),
                        _ => *byte = Byte { writer: Some(sequence), readers: BTreeSet::new() },
                    }
                }
            }
            (0..400).for_each(|sequence| assert!(live.retire(TaskId::new(0, sequence))));
            for sequence in 400..900 {
                let entry = Entry::new(TaskId::new(0, sequence), 0, Access::Input, false);
                runs.record(0..300, entry, &live, &mut overlap);
                live.retire(TaskId::new(0, sequence));
            }
            assert!(runs.len() <= 2 * SWEEP_LENGTH, "{} runs of retired tasks", runs.len());
        });
    }
}
