//! The two forms that the accesses to a buffer are kept in: nodes, one for each view, and runs.
//!
//! Nodes suit views that come again, of any shape, and every access. Runs suit plain reads and
//! writes of ever new runs of bytes. A buffer begins with nodes, and changes when many new views
//! have overlapped others; it changes back when runs come again, or when an access needs nodes, and
//! is slower to change again each time.

use std::ops::ControlFlow;

use syncline_tensor::{Access, Arg, BufferId, Dtype, Region, View};

use super::entries::{Entry, Mode};
use super::intervals::Span;
use super::node::{Hazards, WRITTEN};
use super::runs::Runs;
use super::{Buffer, Grid, Place, TensorMap};
use crate::merge::Packed;

/// So many new views that overlap others, at first, make accesses be kept as runs.
const OVERLAPS_MAX: u32 = 32;

/// What a task's arguments say of how a buffer is used. It counts when the task is accepted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Note {
    /// A new run of bytes overlaps known views.
    Overlaps(u32),
    /// A view is used again: its node.
    CameAgain(u32, u32),
}

impl Buffer {
    pub(super) fn new(id: BufferId, bytes: u64) -> Self {
        let (grid, overlaps_max) = (Grid::default(), OVERLAPS_MAX);
        Self { id, bytes, grid, runs: None, overlaps: 0, overlaps_max }
    }

    /// Makes the next change from nodes to runs later than the last one.
    fn postpone(&mut self) {
        self.overlaps = 0;
        self.overlaps_max = self.overlaps_max.saturating_mul(8);
    }
}

/// Returns the bytes of `view`, if they are seen at once to be one run.
#[inline]
fn packed(view: &View) -> Option<Span> {
    let (shape, strides) = view.stored();
    let bytes = view.dtype().bytes();
    let is_packed = view.rank() == 1 && strides[0] == bytes as i64 && shape[0] > 0;
    is_packed.then(|| view.offset()..view.offset() + shape[0] * bytes)
}

impl TensorMap {
    /// Notes a new view with the given bytes, if it overlaps one of the nodes in `self.found`.
    pub(super) fn note_overlap(&mut self, buffer: u32, region: &Region) {
        if !self.found.is_empty() && region.is_contiguous() {
            self.notes.push(Note::Overlaps(buffer));
        }
    }

    /// Counts what the arguments of an accepted task say.
    #[inline]
    pub(crate) fn count_notes(&mut self) {
        if !self.notes.is_empty() {
            self.count_all_notes();
        }
    }

    #[cold]
    #[inline(never)]
    fn count_all_notes(&mut self) {
        for note in self.notes.drain(..) {
            match note {
                Note::Overlaps(buffer) => {
                    let own = &mut self.buffers[buffer as usize];
                    own.overlaps += 1;
                    if own.overlaps >= own.overlaps_max {
                        self.due = Some(buffer);
                    }
                }
                Note::CameAgain(buffer, _) => {
                    let overlaps = &mut self.buffers[buffer as usize].overlaps;
                    *overlaps = overlaps.saturating_sub(4);
                }
            }
        }
    }

    /// Changes the form of the buffer that is due, and of buffers that need the other for `args`.
    #[cold]
    #[inline(never)]
    pub(super) fn choose_forms(&mut self, args: &[Arg], manual: bool) {
        let is_packed = |arg: &Arg| {
            arg.access == Access::NoDep || !arg.access.is_grouped() && packed(&arg.view).is_some()
        };
        if self.due.is_none() && !manual && args.iter().all(is_packed) {
            return;
        }
        // A task that is refused changes nothing.
        let is_refused = |(position, arg)| self.check(position, arg).is_err();
        if args.iter().enumerate().any(is_refused) {
            return;
        }
        if let Some(due) = self.due.take() {
            match self.buffers[due as usize].runs.is_some() {
                true => self.keep_nodes(due),
                false => self.keep_runs(due),
            }
        }
        for arg in args.iter().filter(|arg| manual || !is_packed(arg)) {
            let as_run = !manual && !arg.access.is_grouped();
            let Some(&buffer) = self.slots.get(&arg.buffer) else { continue };
            if self.buffers[buffer as usize].runs.is_some()
                && (arg.access != Access::NoDep
                    && arg.view.span().is_some()
                    && !(as_run && Region::of(&arg.view).is_contiguous()))
            {
                self.keep_nodes(buffer);
            }
        }
    }

    /// Places an argument of a buffer that is kept as runs, where that is seen at once.
    #[inline(never)]
    pub(super) fn place_run(&mut self, position: usize, arg: &Arg) -> Option<Place> {
        let span = packed(&arg.view).filter(|_| arg.access != Access::NoDep)?;
        let &buffer = self.slots.get(&arg.buffer)?;
        let own = &self.buffers[buffer as usize];
        if own.runs.is_none() || span.end > own.bytes {
            return None;
        }
        self.misses += 1;
        self.spans[position] = span;
        self.places[position] = Place { node: Place::RUNS, buffer };
        Some(self.places[position])
    }

    /// Turns the nodes of a buffer into runs, unless something is remembered that they cannot hold.
    fn keep_runs(&mut self, buffer: u32) {
        match self.entries_of(buffer) {
            None => self.buffers[buffer as usize].postpone(),
            Some(mut all) => {
                all.sort_by_key(|(entry, span)| (entry.task.to_bits(), entry.arg(), span.start));
                let mut runs = Box::<Runs>::default();
                for (entry, span) in all {
                    runs.record(span, entry, &self.live, &mut self.overlap);
                }
                self.remove_nodes_of(buffer);
                self.buffers[buffer as usize].runs = Some(runs);
                self.in_runs += 1;
            }
        }
    }

    /// Returns the live accesses to a buffer and their bytes, if all are plain accesses of one ring
    /// to runs of bytes.
    fn entries_of(&self, buffer: u32) -> Option<Vec<(Entry, Span)>> {
        let (mut all, mut entries) = (Vec::new(), Vec::new());
        for node in self.buffers[buffer as usize].grid.nodes() {
            let (held, cold) = (&self.nodes[node as usize].held, &self.cold[node as usize]);
            let whole = std::iter::once((held, std::slice::from_ref(&cold.region).to_vec()));
            for (held, regions) in whole.chain(self.remnants.all(cold.remnants)) {
                entries.clear();
                if !held.append_plain(&self.chunks, &mut entries) {
                    return None;
                }
                entries.retain(|entry| self.live.is_live(entry.task));
                for region in regions {
                    if !region.is_contiguous() {
                        return None;
                    }
                    let span = region.start()..region.end();
                    all.extend(entries.iter().map(|entry| (*entry, span.clone())));
                }
            }
        }
        let ring = |at: &(Entry, Span)| at.0.task.ring();
        all.windows(2).all(|pair| ring(&pair[0]) == ring(&pair[1])).then_some(all)
    }

    /// Turns the runs of a buffer into nodes.
    fn keep_nodes(&mut self, buffer: u32) {
        let own = &mut self.buffers[buffer as usize];
        let Some(runs) = own.runs.take() else { return };
        self.in_runs -= 1;
        let id = own.id;
        // A writer comes before the readers of the same bytes.
        for (span, run) in runs.all() {
            let bytes = span.end - span.start;
            // An uncut reader gets a view of its own: the bytes' writers are newer.
            let view = match run.is_uncut() {
                false => View::bytes_at(span.start, bytes),
                true => View::strided(Dtype::U8, span.start, &[1, bytes], &[1, 1]),
            };
            let arg = Arg::input(id, view.expect("a run inside the buffer"));
            let known = self.node_of(&arg);
            let node = known.unwrap_or_else(|| self.add_node(buffer, 0, &arg, 0));
            let Self { nodes, chunks, live, .. } = self;
            let held = &mut nodes[node as usize].held;
            held.record(run.entry, chunks, live);
            if held.flags & WRITTEN == 0 && run.entry.mode() != Mode::Read {
                self.first_write(node);
            }
        }
        self.due = None;
        self.notes.clear();
        self.buffers[buffer as usize].postpone();
    }

    /// Shows what an access to a buffer that is kept as runs must come after.
    #[inline(never)]
    pub(super) fn waits_at_runs<B>(
        &mut self,
        buffer: u32,
        position: usize,
        access: Access,
        emit: &mut impl FnMut(Packed) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Self { buffers, spans, live, .. } = self;
        let (mode, hazards) = (Mode::of(access), Hazards::of(access));
        let runs = buffers[buffer as usize].runs.as_mut().expect("the form was chosen");
        runs.waits(&spans[position], mode, |entry| match live.is_live(entry.task) {
            true => emit(entry.edge(position as u16, hazards)),
            false => ControlFlow::Continue(()),
        })
    }

    /// Remembers an access to a buffer that is kept as runs.
    #[inline(never)]
    pub(super) fn record_run(&mut self, buffer: u32, position: usize, entry: Entry) {
        let Self { buffers, spans, live, overlap, due, .. } = self;
        let runs = buffers[buffer as usize].runs.as_mut().expect("the form was chosen");
        runs.record(spans[position].clone(), entry, live, overlap);
        if runs.come_again() {
            *due = Some(buffer);
        }
    }
}
