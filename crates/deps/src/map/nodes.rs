//! The nodes of the map: found, placed among those they overlap, and dropped.

use syncline_tensor::{Access, Arg, Region, View};

use super::forms::Note;
use super::links::{Link, Links};
use super::node::{BROADCAST, CREATED, CUT, FRESH, LINKED, Node, WIDE};
use super::remnants;
use super::table::{Key, hash};
use super::{Creator, TensorMap};
use crate::SubmitError;

/// The seldom needed members of a node.
#[derive(Debug)]
pub(super) struct Cold {
    view: View,
    pub(super) region: Region,
    pub(super) links: Links,
    /// The first of the view's remnants.
    pub(super) remnants: u32,
    /// The call that this view was first resolved in; zero where it is known to come again.
    pub(super) since: u64,
    /// A fresh view is listed at some view that it overlaps.
    pub(super) listed: bool,
    /// Walks over many links that found nothing at most of them, and the call in which they began
    /// to be counted.
    pub(super) idle_walks: u32,
    pub(super) idle_since: u64,
}

/// Where an argument was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(super) node: u32,
    pub(super) buffer: u32,
}

impl Place {
    /// The node of an argument that touches no byte.
    pub(super) const NOWHERE: u32 = u32::MAX;
    /// The node of an argument of a buffer that has none, see [`runs`](super::runs).
    pub(super) const RUNS: u32 = u32::MAX - 1;
}

impl TensorMap {
    /// Checks every argument of a task, in a `manual` scope or not, and finds its node. After an
    /// error nothing has changed.
    pub(crate) fn resolve(&mut self, args: &[Arg], manual: bool) -> Result<(), SubmitError> {
        self.begin_resolve(args, manual)?;
        for (position, arg) in args.iter().enumerate() {
            self.resolve_next(position, arg)?;
        }
        Ok(())
    }

    /// Begins to resolve `args`, of a task in a `manual` scope or not.
    #[inline]
    pub(crate) fn begin_resolve(&mut self, args: &[Arg], manual: bool) -> Result<(), SubmitError> {
        const ARGS_MAX: usize = 1 << 16;
        let count = args.len();
        if count > ARGS_MAX {
            return Err(SubmitError::TooManyArgs { args: count, max: ARGS_MAX });
        }
        self.epoch += 1;
        if self.places.len() < count {
            self.places.resize(count, Place { node: Place::NOWHERE, buffer: 0 });
            self.founds.resize_with(count, Vec::new);
            self.spans.resize(count, 0..0);
        }
        if self.in_runs > 0 || self.due.is_some() {
            self.choose_forms(args, manual);
        }
        self.added.clear();
        self.notes.clear();
        self.lookups += count as u64;
        Ok(())
    }

    /// Checks one argument and finds its node. After an error nothing has changed since the
    /// resolving began.
    // Always: a call with its result in memory costs as much as the look-up.
    #[inline(always)]
    pub(crate) fn resolve_next(
        &mut self,
        position: usize,
        arg: &Arg,
    ) -> Result<Place, SubmitError> {
        if self.in_runs > 0
            && let Some(place) = self.place_run(position, arg)
        {
            return Ok(place);
        }
        if let Some(node) = self.node_of(arg) {
            let known = &mut self.nodes[node as usize];
            let flags = known.held.flags;
            if flags & (BROADCAST | FRESH) == 0 || flags & FRESH == 0 && !arg.access.writes() {
                known.epoch = self.epoch;
                let place = Place { node, buffer: known.held.buffer };
                self.places[position] = place;
                return Ok(place);
            }
        }
        self.resolve_slowly(position, arg)
    }

    /// Takes a view that has been used once, places a new one, or returns why an argument is
    /// refused.
    #[cold]
    fn resolve_slowly(&mut self, position: usize, arg: &Arg) -> Result<Place, SubmitError> {
        let placed = match self.node_of(arg) {
            Some(node) => self.place_again(node, position, arg),
            None => self.place_new(position, arg),
        };
        match placed {
            Ok(()) => Ok(self.places[position]),
            Err(error) => {
                self.undo_resolve();
                Err(error)
            }
        }
    }

    /// Returns the node of an argument whose view is known.
    #[inline]
    pub(super) fn node_of(&self, arg: &Arg) -> Option<u32> {
        let Self { nodes, cold, .. } = self;
        let few_dims = arg.view.rank() <= Key::DIMS;
        self.table.find(hash(arg.buffer, &arg.view), |node| {
            nodes[node as usize].key.is(arg.buffer, &arg.view)
                && (few_dims || cold[node as usize].view == arg.view)
        })
    }

    /// Places an argument whose view is fresh, or may not be written.
    fn place_again(&mut self, node: u32, position: usize, arg: &Arg) -> Result<(), SubmitError> {
        let known = &mut self.nodes[node as usize];
        if known.held.flags & BROADCAST != 0 && arg.access.writes() {
            return Err(broadcast_write(position, arg));
        }
        known.epoch = self.epoch;
        self.places[position] = Place { node, buffer: known.held.buffer };
        if known.held.flags & FRESH != 0 {
            self.notes.push(Note::CameAgain(known.held.buffer, node));
            self.search(node);
            self.settle(node);
        }
        Ok(())
    }

    /// Places an argument whose view is new, or that touches nothing.
    #[cold]
    fn place_new(&mut self, position: usize, arg: &Arg) -> Result<(), SubmitError> {
        let (buffer, span) = self.check(position, arg)?;
        self.places[position] = Place { node: Place::NOWHERE, buffer };
        let Some((start, end)) = span else { return Ok(()) };
        let flags = if arg.view.is_broadcast() { BROADCAST } else { 0 };
        if arg.access == Access::NoDep {
            return Ok(());
        }
        self.misses += 1;
        if self.buffers[buffer as usize].runs.is_some() {
            self.places[position].node = Place::RUNS;
            self.spans[position] = start..end;
            return Ok(());
        }
        let node = self.add_node(buffer, position, arg, flags);
        self.added.push(node);
        self.places[position] = Place { node, buffer };
        Ok(())
    }

    /// Returns the place of an argument's buffer, and the bytes that the argument touches, if any.
    pub(super) fn check(
        &self,
        position: usize,
        arg: &Arg,
    ) -> Result<(u32, Option<(u64, u64)>), SubmitError> {
        let Some(&buffer) = self.slots.get(&arg.buffer) else {
            return Err(SubmitError::UnknownBuffer { arg: position, buffer: arg.buffer });
        };
        let Some((start, end)) = arg.view.span() else { return Ok((buffer, None)) };
        let bytes = self.buffers[buffer as usize].bytes;
        if end > bytes {
            let buffer = arg.buffer;
            return Err(SubmitError::OutsideBuffer { arg: position, buffer, end, bytes });
        }
        if arg.access.writes() && arg.view.is_broadcast() {
            return Err(broadcast_write(position, arg));
        }
        Ok((buffer, Some((start, end))))
    }

    #[cold]
    fn undo_resolve(&mut self) {
        while let Some(note) = self.notes.pop() {
            if let Note::CameAgain(_, node) = note {
                self.unsettle(node);
            }
        }
        while let Some(node) = self.added.pop() {
            if self.cold[node as usize].since == 0 {
                self.dropped.remember(self.nodes[node as usize].key.hash());
            }
            self.remove_node(node);
        }
    }

    /// Adds a node for the view of an argument. Its links are put where those of the argument
    /// `position` belong.
    pub(super) fn add_node(&mut self, buffer: u32, position: usize, arg: &Arg, flags: u16) -> u32 {
        if self.nodes.len() - self.free_nodes.len() >= self.sweep_at.max(self.views_kept) {
            self.sweep();
        }
        let (key, region) = (Key::of(arg.buffer, &arg.view), Region::of(&arg.view));
        let created = matches!(self.creators[buffer as usize], Creator::Task(..));
        let flags = FRESH | if created { flags | CREATED } else { flags };
        let node = self.new_slot(Node::new(key, buffer, flags, self.epoch), arg.view, region);
        self.table.insert(key.hash(), node);
        let shown = self.search(node);
        let wasted = shown - self.found.len();
        self.note_overlap(buffer, &region);
        self.list_fresh(node);
        if self.dropped.forget(key.hash()) {
            self.cold[node as usize].since = 0;
            self.settle(node);
        } else {
            self.founds[position].clone_from(&self.found);
        }
        let Self { buffers, cold, .. } = self;
        let grid = &mut buffers[buffer as usize].grid;
        grid.insert(node, &region, wasted, |node| &cold[node as usize].region);
        node
    }

    fn new_slot(&mut self, node: Node, view: View, region: Region) -> u32 {
        let (remnants, since, idle_since) = (remnants::NONE, self.epoch, self.epoch);
        let cold = |links| Cold {
            view,
            region,
            links,
            remnants,
            since,
            listed: false,
            idle_walks: 0,
            idle_since,
        };
        if let Some(slot) = self.free_nodes.pop() {
            let links = std::mem::take(&mut self.cold[slot as usize].links);
            self.nodes[slot as usize] = node;
            self.cold[slot as usize] = cold(links);
            return slot;
        }
        let slot = self.nodes.len() as u32;
        assert!(slot < Link::NODES_MAX, "{slot} views in one map");
        self.nodes.push(node);
        self.cold.push(cold(Links::default()));
        slot
    }

    /// Drops the nodes that remember no live task and were not used since the last sweep.
    fn sweep(&mut self) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].held.buffer == Self::VACANT {
                continue;
            }
            self.forget_retired(node);
            let own = &self.nodes[node];
            if own.is_idle() && own.epoch < self.swept_epoch {
                self.remove_node(node as u32);
            }
        }
        self.swept_epoch = self.epoch;
        // Doubling makes the sweeps cost a constant for each view ever added.
        self.sweep_at = 2 * (self.nodes.len() - self.free_nodes.len());
    }

    /// Forgets the accesses of retired tasks through a view.
    pub(super) fn forget_retired(&mut self, node: usize) {
        let Self { nodes, cold, remnants, chunks, live, .. } = self;
        let held = &mut nodes[node].held;
        held.forget_retired(chunks, live);
        if held.flags & CUT != 0 {
            let first = &mut cold[node].remnants;
            remnants.forget_retired(first, chunks, live);
            held.note_cut(*first != remnants::NONE);
        }
    }

    pub(super) const VACANT: u32 = u32::MAX;

    /// Drops a node, and every link to it.
    pub(super) fn remove_node(&mut self, node: u32) {
        self.remnants.clear(&mut self.cold[node as usize].remnants, &mut self.chunks);
        let own = &mut self.nodes[node as usize].held;
        own.clear(&mut self.chunks);
        let linked = own.flags & (LINKED | WIDE) != 0;
        if linked || self.cold[node as usize].listed {
            self.unlink(node);
        }
        let region = self.cold[node as usize].region;
        let hash = self.nodes[node as usize].key.hash();
        self.table.remove(hash, node);
        let own = &mut self.nodes[node as usize].held;
        let buffer = std::mem::replace(&mut own.buffer, Self::VACANT);
        own.flags = 0;
        self.buffers[buffer as usize].grid.remove(node, &region);
        self.free_nodes.push(node);
    }

    pub(super) fn remove_nodes_of(&mut self, buffer: u32) {
        let nodes: Vec<u32> = self.buffers[buffer as usize].grid.nodes().collect();
        for node in nodes {
            self.remove_node(node);
        }
    }
}

#[cold]
fn broadcast_write(position: usize, arg: &Arg) -> SubmitError {
    let dims = arg.view.shape().iter().zip(arg.view.strides());
    let dim = dims.clone().position(|(&size, &stride)| size > 1 && stride == 0).unwrap_or(0);
    SubmitError::BroadcastWrite { arg: position, access: arg.access, buffer: arg.buffer, dim }
}
