//! The tensor map: per buffer, the live writers and the readers since, by region.
//!
//! Every view that a buffer is used through has a node. An access by a known view costs one hash
//! look-up, and a walk over the nodes of the views that overlap it, which are listed. Only a new
//! view is placed among the others, by the buffer's index. Nodes that remember nothing any more are
//! dropped when there are many of them.
//!
//! A buffer that is used through ever new runs of bytes has no nodes: see [`runs`].

mod cells;
mod entries;
mod forms;
mod grid;
mod intervals;
mod links;
mod live;
mod node;
mod nodes;
mod remnants;
mod runs;
mod table;

use std::ops::ControlFlow;

use self::entries::{Chunks, Entry, Mode};
use self::forms::Note;
use self::grid::{Grid, WordMap};
use self::intervals::Span;
use self::links::Link;
use self::live::Liveness;
use self::node::{AROUND, CREATED, CUT, Generations, Hazards, Node, WIDE, WRITTEN};
use self::nodes::Cold;
pub(crate) use self::nodes::Place;
use self::remnants::Remnants;
use self::runs::Runs;
use self::table::Table;
use crate::merge::Packed;
use crate::{Edge, EdgeFlags, EdgeKinds, OverlapStats, SubmitError, SubmitOptions};
use syncline_tensor::{Access, BufferId, Region, TaskId};

/// The accesses to all buffers by the tasks that are live.
#[derive(Debug, Default)]
pub struct TensorMap {
    nodes: Vec<Node>,
    /// The seldom needed members of the nodes, in the same order.
    cold: Vec<Cold>,
    free_nodes: Vec<u32>,
    table: Table,
    chunks: Chunks,
    remnants: Remnants,
    live: Liveness,
    slots: WordMap<BufferId, u32>,
    buffers: Vec<Buffer>,
    // Not in the buffers, because every access reads it.
    creators: Vec<Creator>,
    free_buffers: Vec<u32>,
    /// The nodes of the arguments that were resolved last.
    places: Vec<Place>,
    /// Nodes that were added for them.
    added: Vec<u32>,
    /// Scratch: the links of a node that does not list them, and nodes to be dropped.
    found: Vec<Link>,
    /// The links of each argument whose view is fresh.
    founds: Vec<Vec<Link>>,
    /// The bytes of each argument of a buffer whose accesses are kept as runs.
    spans: Vec<Span>,
    /// Buffers whose accesses are kept as runs.
    in_runs: usize,
    /// What the arguments say of how their buffers are used.
    notes: Vec<Note>,
    /// The buffer whose accesses are to be kept in the other form, before the next task.
    due: Option<u32>,
    idle: Vec<u32>,
    emptied: Vec<u32>,
    dropped: Dropped,
    epoch: u64,
    swept_epoch: u64,
    sweep_at: usize,
    /// With fewer views than this, none is dropped.
    views_kept: usize,
    /// Arguments looked up, and those among them whose view was new.
    lookups: u64,
    misses: u64,
    overlap: OverlapStats,
}

#[derive(Debug)]
struct Buffer {
    id: BufferId,
    bytes: u64,
    grid: Grid,
    /// The accesses, if they are kept as runs: then the buffer has no nodes.
    runs: Option<Box<Runs>>,
    /// New views that overlapped others, less four for each view that came again.
    overlaps: u32,
    /// With so many overlaps the accesses are kept as runs.
    overlaps_max: u32,
}

/// Who brought a buffer into being.
#[derive(Clone, Copy, Debug)]
enum Creator {
    Nobody,
    Task(TaskId, u16),
    /// Several tasks have written parts of it as fresh: each is known by its own entries only.
    Several,
}

/// The argument whose predecessors are searched for.
#[derive(Clone, Copy)]
struct Seeker {
    arg: u16,
    mode: Mode,
    hazards: Hazards,
}

/// Hashes of views that were dropped after one use: one that comes again is known as a view that
/// does.
#[derive(Debug)]
struct Dropped(Vec<u32>);

impl Default for Dropped {
    fn default() -> Self {
        Self(vec![0; Self::PLACES])
    }
}

impl Dropped {
    const PLACES: usize = 64;

    fn place(&mut self, hash: u64) -> &mut u32 {
        &mut self.0[hash as usize % Self::PLACES]
    }

    fn remember(&mut self, hash: u64) {
        *self.place(hash) = (hash >> 32) as u32 | 1;
    }

    /// Returns `true` if the view with this hash was dropped lately.
    fn forget(&mut self, hash: u64) -> bool {
        let place = self.place(hash);
        let known = *place == (hash >> 32) as u32 | 1;
        if known {
            *place = 0;
        }
        known
    }
}

/// The tasks of a ring that were issued before one of them.
#[derive(Clone, Copy, Default)]
struct Earlier {
    first: u64,
    count: u64,
}

impl Earlier {
    #[inline]
    fn than(task: TaskId) -> Self {
        let first = TaskId::new(task.ring(), 0).to_bits();
        Self { first, count: task.to_bits() - first }
    }

    #[inline]
    fn contains(self, task: TaskId) -> bool {
        task.to_bits().wrapping_sub(self.first) < self.count
    }
}

/// What a [`TensorMap`] holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapStats {
    /// Buffers declared and not removed.
    pub buffers: usize,
    /// Distinct views that are remembered.
    pub views: usize,
    /// Accesses that are remembered.
    pub entries: usize,
    /// Bytes of memory held.
    pub bytes: usize,
    /// Arguments whose view was known already, or touches nothing: one hash look-up each.
    pub hits: u64,
    /// Arguments whose view had to be placed among the others.
    pub misses: u64,
    /// How overlap tests went.
    pub overlap: OverlapStats,
}

impl TensorMap {
    /// Creates a map without buffers.
    pub fn new() -> Self {
        Self::keeping(SubmitOptions::default().views_kept)
    }

    /// Creates a map without buffers that keeps at least so many views, used or not.
    pub(crate) fn keeping(views_kept: usize) -> Self {
        Self { views_kept, ..Self::default() }
    }

    /// Declares a buffer of `bytes` bytes.
    pub fn add_buffer(&mut self, buffer: BufferId, bytes: u64) -> Result<(), SubmitError> {
        if let Some(&slot) = self.slots.get(&buffer) {
            let bytes = self.buffers[slot as usize].bytes;
            return Err(SubmitError::BufferExists { buffer, bytes });
        }
        let added = Buffer::new(buffer, bytes);
        let slot = self.free_buffers.pop().unwrap_or(self.buffers.len() as u32);
        if slot as usize == self.buffers.len() {
            self.buffers.push(added);
            self.creators.push(Creator::Nobody);
        } else {
            self.buffers[slot as usize] = added;
            self.creators[slot as usize] = Creator::Nobody;
        }
        self.slots.insert(buffer, slot);
        Ok(())
    }

    /// Forgets a buffer and everything that was done to it.
    pub fn remove_buffer(&mut self, buffer: BufferId) -> Result<(), SubmitError> {
        let slot = self.slots.remove(&buffer).ok_or(SubmitError::NoSuchBuffer { buffer })?;
        self.remove_nodes_of(slot);
        self.in_runs -= usize::from(self.buffers[slot as usize].runs.take().is_some());
        self.due = self.due.filter(|&due| due != slot);
        self.creators[slot as usize] = Creator::Nobody;
        self.free_buffers.push(slot);
        Ok(())
    }

    /// Returns the size of a buffer, if it is known.
    pub fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
        self.slots.get(&buffer).map(|&slot| self.buffers[slot as usize].bytes)
    }

    /// Forgets a task that has finished: nothing waits for it any more. Returns `true` if it was
    /// live until then.
    ///
    /// A task that has finished has waited for others: those have finished too, whether they are
    /// retired yet or not.
    pub fn retire(&mut self, task: TaskId) -> bool {
        self.live.retire(task)
    }

    /// Returns `true` if `task` has not been retired.
    #[inline]
    pub fn is_live(&self, task: TaskId) -> bool {
        self.live.is_live(task)
    }

    /// Returns figures of the contents and of the work so far. Counts the entries one by one: not
    /// for every task.
    pub fn stats(&self) -> MapStats {
        let grids: usize = self.buffers.iter().map(|buffer| buffer.grid.bytes()).sum();
        let runs = || self.buffers.iter().filter_map(|buffer| buffer.runs.as_deref());
        let links: usize = self.cold.iter().map(|cold| cold.links.bytes()).sum();
        MapStats {
            buffers: self.slots.len(),
            views: self.nodes.len() - self.free_nodes.len(),
            entries: (self.nodes.iter().zip(&self.cold))
                .map(|(node, cold)| node.held.entries() + self.remnants.entries(cold.remnants))
                .chain(runs().map(Runs::len))
                .sum(),
            bytes: self.nodes.capacity() * (size_of::<Node>() + size_of::<Cold>())
                + self.buffers.capacity() * (size_of::<Buffer>() + size_of::<Creator>())
                + self.slots.capacity() * size_of::<(BufferId, u32)>()
                + (self.table.bytes() + self.chunks.bytes() + self.live.bytes())
                + self.remnants.bytes()
                + (grids + links + runs().map(Runs::bytes).sum::<usize>()),
            hits: self.lookups - self.misses,
            misses: self.misses,
            overlap: self.overlap,
        }
    }

    /// Returns where the argument `position` was found that was resolved.
    pub(crate) fn place(&self, position: usize) -> Place {
        self.places[position]
    }

    /// Shows what the argument `position`, found at `place`, must come after.
    #[inline]
    pub(crate) fn fanin_of<B>(
        &mut self,
        Place { node, buffer }: Place,
        position: usize,
        access: Access,
        emit: &mut impl FnMut(Packed) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let succ_arg = Some(position as u16);
        if node == Place::RUNS {
            self.waits_at_runs(buffer, position, access, emit)?;
        } else if node != Place::NOWHERE && access != Access::NoDep {
            let flags = self.nodes[node as usize].held.flags;
            let (mode, hazards) = (Mode::of(access), Hazards::of(access));
            let seeker = Seeker { arg: position as u16, mode, hazards };
            match flags & AROUND {
                0 => self.waits_at(&self.nodes[node as usize].held, mode, seeker, emit)?,
                _ => self.waits_around(node, seeker, emit)?,
            }
            if flags & CREATED == 0 {
                return ControlFlow::Continue(());
            }
        }
        match self.creators[buffer as usize] {
            // Another fresh output is not a use of what was created before.
            Creator::Task(pred, arg) if access != Access::Output && self.live.is_live(pred) => {
                let (flags, kinds) = (EdgeFlags::RETAIN, EdgeKinds::CREATOR);
                emit(Packed::of(Edge { pred, flags, kinds, pred_arg: Some(arg), succ_arg }))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// Shows what an access through `node` must come after, there and at the nodes that overlap it.
    #[inline(never)]
    fn waits_around<B>(
        &mut self,
        node: u32,
        seeker: Seeker,
        emit: &mut impl FnMut(Packed) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let own = &self.nodes[node as usize].held;
        let flags = own.flags;
        // Whatever else there was before a plain write through this view, that write waited for.
        let before = own.plain_writer().map(Earlier::than).unwrap_or_default();
        let emit = &mut |edge: Packed| match before.contains(edge.pred) {
            false => emit(edge),
            true => ControlFlow::Continue(()),
        };
        if flags & WIDE != 0 {
            self.search(node);
        }
        let mode = seeker.mode;
        let mut links = self.links_of(node, seeker.arg as usize, mode).iter();
        let nodes = self.nodes.as_slice();
        if self.remnants.is_empty() {
            // One loop for each of the two common modes, so that neither asks for it at every node.
            let mut own = &nodes[node as usize].held;
            loop {
                match mode {
                    Mode::Read => self.waits_at(own, Mode::Read, seeker, emit)?,
                    _ => self.waits_at(own, mode, seeker, emit)?,
                }
                match links.next() {
                    Some(link) => own = &nodes[link.node()].held,
                    None => return ControlFlow::Continue(()),
                }
            }
        }
        let mut overlap = self.overlap;
        let (mut own, mut at, mut covers) = (&nodes[node as usize].held, node as usize, true);
        let found = loop {
            let shown = self.waits_at(own, mode, seeker, emit);
            if shown.is_break() {
                break shown;
            }
            if own.flags & CUT != 0 {
                let region = (!covers).then_some(&self.cold[node as usize].region);
                let shown = self.waits_at_remnants(at, region, seeker, &mut overlap, emit);
                if shown.is_break() {
                    break shown;
                }
            }
            match links.next() {
                Some(link) => {
                    (at, covers) = (link.node(), link.covers());
                    own = &nodes[at].held;
                }
                None => break ControlFlow::Continue(()),
            }
        };
        self.overlap = overlap;
        found
    }

    /// Shows what an access to `region`, or to all of the view, must come after among the remnants
    /// of the view of a node.
    #[inline(never)]
    fn waits_at_remnants<B>(
        &self,
        node: usize,
        region: Option<&Region>,
        seeker: Seeker,
        overlap: &mut OverlapStats,
        emit: &mut impl FnMut(Packed) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for left in self.remnants.touched(self.cold[node].remnants, region, overlap) {
            self.waits_at(left, seeker.mode, seeker, emit)?;
        }
        ControlFlow::Continue(())
    }

    /// Shows what an access must come after at one node.
    #[inline(always)]
    fn waits_at<B>(
        &self,
        held: &Generations,
        mode: Mode,
        seeker: Seeker,
        emit: &mut impl FnMut(Packed) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let (entries, all) = held.waits(mode);
        for entry in entries {
            if self.live.is_live(entry.task) {
                emit(entry.edge(seeker.arg, seeker.hazards))?;
            }
        }
        match all {
            true => ControlFlow::Continue(()),
            false => self.more_waits_at(held, seeker, emit),
        }
    }

    #[inline(never)]
    fn more_waits_at<B>(
        &self,
        held: &Generations,
        seeker: Seeker,
        emit: &mut impl FnMut(Packed) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        held.more_waits(seeker.mode, &self.chunks, |entry| match self.live.is_live(entry.task) {
            true => emit(entry.edge(seeker.arg, seeker.hazards)),
            false => ControlFlow::Continue(()),
        })
    }

    /// Remembers what `task` does with the resolved argument `position`.
    #[inline]
    pub(crate) fn register(&mut self, position: usize, access: Access, task: TaskId, manual: bool) {
        if access == Access::NoDep {
            return;
        }
        let Place { node, buffer } = self.places[position];
        if access == Access::Output {
            self.create(buffer, task, position as u16);
        }
        let entry = Entry::new(task, position as u16, access, manual);
        if node >= Place::RUNS {
            if node == Place::RUNS {
                self.record_run(buffer, position, entry);
            }
            return;
        }
        let Self { nodes, chunks, live, .. } = self;
        let own = &mut nodes[node as usize].held;
        let flags = own.flags;
        if manual {
            own.record_manual(entry, chunks, live);
            if flags & WRITTEN == 0 && access != Access::Input {
                self.first_write(node);
            }
            return;
        }
        let around = flags & AROUND != 0;
        let previous = if around { own.plain_writer() } else { None };
        own.record(entry, chunks, live);
        if flags & WRITTEN == 0 && access != Access::Input {
            self.first_write(node);
        }
        if around {
            if flags & CUT != 0 {
                self.succeed_remnants(node as usize, entry);
            }
            self.mark_links(node, position, entry, previous);
        }
    }

    /// Tells the remnants of a view of an access through it.
    #[inline(never)]
    fn succeed_remnants(&mut self, node: usize, entry: Entry) {
        let Self { nodes, cold, remnants, chunks, live, .. } = self;
        let first = &mut cold[node].remnants;
        remnants.succeed(first, entry, chunks, live);
        nodes[node].held.note_cut(*first != remnants::NONE);
    }

    #[cold]
    fn create(&mut self, buffer: u32, task: TaskId, arg: u16) {
        let creator = &mut self.creators[buffer as usize];
        *creator = match *creator {
            Creator::Task(known, _) if known == task => return,
            Creator::Nobody => Creator::Task(task, arg),
            Creator::Task(..) | Creator::Several => Creator::Several,
        };
        for node in self.buffers[buffer as usize].grid.nodes() {
            self.nodes[node as usize].held.flags |= CREATED;
        }
    }
}
