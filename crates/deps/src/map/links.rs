//! Links: which views overlap which.
//!
//! Found once, when a view is first used, and listed at both nodes. Reads need to know only of
//! views that are written: those come first in a list.

use syncline_tensor::TaskId;

use super::entries::{Entry, Mode};
use super::node::{CUT, FRESH, Generations, LINKED, WIDE, WRITTEN};
use super::remnants::Held;
use super::{TensorMap, remnants};

/// More overlapping views than this are searched for each time instead of listed, so that memory
/// stays linear in the number of views however they overlap.
const LINKS_MAX: usize = 256;

/// Room for so many links is kept for the next view.
const LINKS_KEPT: usize = 64;

/// Shorter lists are not searched for nodes that could be dropped.
const IDLE_LINKS: usize = 32;

/// So many visits to an empty node cost about as much as adding it anew.
const IDLE_WALKS: u32 = 64;

/// A view that was used more than once and not for so many times as many tasks as there are views
/// will hardly come again.
const TURNS: u64 = 4;

/// Another node, with a bit that says whether this view covers that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Link(u32);

impl Link {
    pub(super) const NODES_MAX: u32 = u32::MAX >> 1;

    fn to(node: u32, covers: bool) -> Self {
        Self(node << 1 | u32::from(covers))
    }

    #[inline]
    pub(super) fn node(self) -> usize {
        (self.0 >> 1) as usize
    }

    #[inline]
    pub(super) fn covers(self) -> bool {
        self.0 & 1 != 0
    }
}

/// The links of a node.
#[derive(Debug, Default)]
pub(super) struct Links {
    list: Vec<Link>,
    /// How many at the front are to nodes that have been written.
    written: usize,
}

impl Links {
    /// Returns the links that an access of `mode` has to follow.
    #[inline]
    fn followed_by(&self, mode: Mode) -> &[Link] {
        match mode {
            Mode::Read => &self.list[..self.written],
            _ => &self.list,
        }
    }

    fn add(&mut self, link: Link, written: bool) {
        self.list.push(link);
        if written {
            self.promote(self.list.len() - 1);
        }
    }

    fn promote(&mut self, at: usize) {
        if at >= self.written {
            self.list.swap(at, self.written);
            self.written += 1;
        }
    }

    fn position(&self, node: u32) -> Option<usize> {
        self.list.iter().position(|link| link.node() == node as usize)
    }

    fn remove(&mut self, mut at: usize) {
        if at < self.written {
            self.written -= 1;
            self.list.swap(at, self.written);
            at = self.written;
        }
        self.list.swap_remove(at);
    }

    fn clear(&mut self) {
        self.list.clear();
        self.list.shrink_to(LINKS_KEPT);
        self.written = 0;
    }

    pub(super) fn bytes(&self) -> usize {
        self.list.capacity() * size_of::<Link>()
    }
}

impl TensorMap {
    /// Fills `self.found` with links to the nodes that overlap `node`; the number of nodes that the
    /// index proposed.
    pub(super) fn search(&mut self, node: u32) -> usize {
        let Self { nodes, cold, buffers, overlap, found, .. } = self;
        let region = &cold[node as usize].region;
        let mut shown = 0;
        found.clear();
        buffers[nodes[node as usize].held.buffer as usize].grid.visit(region, |other| {
            if other != node {
                shown += 1;
                let theirs = &cold[other as usize].region;
                if overlap.test(region, theirs) {
                    found.push(Link::to(other, region.covers(theirs)));
                }
            }
        });
        shown
    }

    /// Lists a new node, which is fresh, at the nodes in `self.found` that list others.
    pub(super) fn list_fresh(&mut self, node: u32) {
        let region = self.cold[node as usize].region;
        for at in 0..self.found.len() {
            let other = self.found[at].node();
            if self.nodes[other].held.flags & FRESH == 0 {
                let covers = self.cold[other].region.covers(&region);
                self.add_link(other, Link::to(node, covers));
            }
        }
    }

    /// Lists the nodes in `self.found`, which overlap a fresh node, at that node: in the order in
    /// which they were added, so that arguments that share predecessors find them in one order.
    pub(super) fn settle(&mut self, node: u32) {
        let mut found = std::mem::take(&mut self.found);
        found.sort_unstable();
        self.nodes[node as usize].held.flags &= !FRESH;
        self.cold[node as usize].links.clear();
        found.iter().for_each(|&link| self.add_link(node as usize, link));
        self.found = found;
    }

    /// Makes a node fresh again that has just been settled.
    pub(super) fn unsettle(&mut self, node: u32) {
        let flags = &mut self.nodes[node as usize].held.flags;
        *flags = *flags & !(LINKED | WIDE) | FRESH;
        self.cold[node as usize].links.clear();
    }

    fn add_link(&mut self, node: usize, link: Link) {
        if self.nodes[node].held.flags & WIDE != 0 {
            return;
        }
        self.cold[link.node()].listed = true;
        let written = self.nodes[link.node()].held.flags & WRITTEN != 0;
        let (own, links) = (&mut self.nodes[node].held, &mut self.cold[node].links);
        own.flags |= LINKED;
        links.add(link, written);
        if links.list.len() > LINKS_MAX {
            own.flags = own.flags & !LINKED | WIDE;
            *links = Links::default();
        }
    }

    /// Takes `node` out of the lists of all others, and empties its own.
    pub(super) fn unlink(&mut self, node: u32) {
        self.with_all_links(node, |map, link| {
            let other = &mut map.nodes[link.node()].held;
            let links = &mut map.cold[link.node()].links;
            if let Some(at) = links.position(node) {
                links.remove(at);
            }
            if links.list.is_empty() {
                other.flags &= !LINKED;
            }
        });
        self.cold[node as usize].links.clear();
    }

    /// Notes that `node` is written, and tells the nodes that overlap it.
    #[cold]
    pub(super) fn first_write(&mut self, node: u32) {
        self.nodes[node as usize].held.flags |= WRITTEN;
        if !self.cold[node as usize].listed {
            return;
        }
        self.with_all_links(node, |map, link| {
            let links = &mut map.cold[link.node()].links;
            if let Some(at) = links.position(node) {
                links.promote(at);
            }
        });
    }

    /// Calls `body` for all links of `node`, listed or searched for.
    fn with_all_links(&mut self, node: u32, mut body: impl FnMut(&mut Self, Link)) {
        if self.nodes[node as usize].held.flags & (WIDE | FRESH) != 0 {
            self.search(node);
            let found = std::mem::take(&mut self.found);
            found.iter().for_each(|&link| body(self, link));
            self.found = found;
        } else {
            let links = std::mem::take(&mut self.cold[node as usize].links);
            links.list.iter().for_each(|&link| body(self, link));
            self.cold[node as usize].links = links;
        }
    }

    /// Returns the links that an access of `mode` by argument `position`, through `node`, has to
    /// follow.
    #[inline]
    pub(super) fn links_of(&self, node: u32, position: usize, mode: Mode) -> &[Link] {
        match self.nodes[node as usize].held.flags & (LINKED | WIDE | FRESH) {
            0 => &[],
            LINKED => self.cold[node as usize].links.followed_by(mode),
            WIDE => &self.found,
            _ => &self.founds[position],
        }
    }

    /// Tells the nodes that overlap `node` of an access through it, by argument `position`.
    /// `previous` is the plain writer that was remembered there before.
    #[inline(never)]
    pub(super) fn mark_links(
        &mut self,
        node: u32,
        position: usize,
        entry: Entry,
        previous: Option<TaskId>,
    ) {
        let mode = entry.mode();
        let flags = self.nodes[node as usize].held.flags & (LINKED | WIDE | FRESH);
        if flags & WIDE != 0 {
            self.search(node);
        }
        // Taken out, and put back, so that the nodes may change meanwhile.
        let own = &mut self.cold[node as usize].links;
        let alone = flags == LINKED && own.written == 0;
        let followed = own.followed_by(mode).len();
        let list = match flags {
            0 => return,
            LINKED => &mut own.list,
            WIDE => &mut self.found,
            _ => &mut self.founds[position],
        };
        let list = std::mem::take(list);
        let links = if flags == LINKED { &list[..followed] } else { &list };
        let mut idle = 0;
        if links.len() > IDLE_LINKS && flags & FRESH == 0 {
            idle = links.iter().filter(|link| self.nodes[link.node()].is_idle()).count();
        }
        let many_are_idle = idle > links.len() / 2;
        match mode {
            Mode::Write => self.cut_links(node, links, alone, previous, entry.task),
            Mode::Read => self.leave_marks(links, |held, link| held.mark_read(link.covers())),
            _ => self.leave_marks(links, |held, _| held.mark_write(mode)),
        }
        *match flags {
            LINKED => &mut self.cold[node as usize].links.list,
            WIDE => &mut self.found,
            _ => &mut self.founds[position],
        } = list;
        if many_are_idle {
            self.drop_idle(node);
        }
        self.drop_emptied();
    }

    #[inline]
    fn leave_marks(&mut self, links: &[Link], mark: impl Fn(&mut Generations, Link)) {
        let Self { nodes, cold, remnants, .. } = self;
        for &link in links {
            let other = &mut nodes[link.node()].held;
            mark(other, link);
            if other.flags & CUT != 0 {
                remnants.mark(cold[link.node()].remnants, |held| mark(held, link));
            }
        }
    }

    /// Cuts the bytes of `node`, which a plain write has touched, out of the accesses remembered at
    /// the nodes that overlap it. `alone`: none of them has been written.
    ///
    /// An access through a view that comes again is only marked: the next access through it
    /// forgets what it holds, and until then nothing is lost but that some edges are found which
    /// others imply. It is cut where that view has not come for long. The same holds for an access
    /// that this view sees for the first time, where no other view that is written shares a byte
    /// with it: all who ask for these bytes come through this view and see the write.
    fn cut_links(
        &mut self,
        node: u32,
        links: &[Link],
        alone: bool,
        previous: Option<TaskId>,
        task: TaskId,
    ) {
        let views = self.nodes.len() - self.free_nodes.len();
        let Self { nodes, cold, chunks, live, remnants, overlap, emptied, epoch, .. } = self;
        let recent = task.sequence().saturating_sub(TURNS * views as u64);
        let recent = TaskId::new(task.ring(), recent);
        let region = cold[node as usize].region;
        for link in links {
            let other = &mut nodes[link.node()];
            let partly = !link.covers();
            let comes_again =
                other.held.flags & (FRESH | CUT) == 0 && other.held.has_come_since(recent);
            let is_new = || previous.is_some_and(|task| other.held.is_used_since(task));
            if partly && (comes_again || alone && other.held.flags & CUT == 0 && is_new()) {
                other.held.mark_write(Mode::Write);
                continue;
            }
            let theirs = &mut cold[link.node()];
            if !other.is_idle() {
                if !partly {
                    other.held.clear(chunks);
                    remnants.clear(&mut theirs.remnants, chunks);
                } else {
                    let used = previous.is_none() && theirs.since < other.epoch;
                    if alone && used && other.held.flags & CUT == 0 {
                        other.held.mark_write(Mode::Write);
                        continue;
                    }
                    let (whole, first) = (&mut other.held, &mut theirs.remnants);
                    let held = Held { whole, region: &theirs.region, first };
                    remnants.cut(held, &region, chunks, live, overlap);
                }
                other.held.note_cut(theirs.remnants != remnants::NONE);
            }
            // A view that was used once will hardly be used again.
            if other.held.flags & FRESH != 0 && other.epoch < *epoch && other.is_idle() {
                emptied.push(link.node() as u32);
            }
        }
    }

    fn drop_emptied(&mut self) {
        while let Some(node) = self.emptied.pop() {
            // Dropped already, as one that was idle.
            if self.nodes[node as usize].held.buffer == Self::VACANT {
                continue;
            }
            self.dropped.remember(self.nodes[node as usize].key.hash());
            self.remove_node(node);
        }
    }

    /// After many walks that found most of the overlapping nodes empty, drops the nodes that were
    /// not used meanwhile.
    #[cold]
    fn drop_idle(&mut self, node: u32) {
        let cold = &mut self.cold[node as usize];
        cold.idle_walks += 1;
        if cold.idle_walks < IDLE_WALKS {
            return;
        }
        let since = std::mem::replace(&mut cold.idle_since, self.epoch);
        cold.idle_walks = 0;
        let mut idle = std::mem::take(&mut self.idle);
        idle.clear();
        let links = match self.nodes[node as usize].held.flags & WIDE {
            0 => &cold.links.list,
            _ => &self.found,
        };
        idle.extend(links.iter().map(|link| link.node() as u32));
        idle.retain(|&other| {
            let other = &self.nodes[other as usize];
            other.is_idle() && other.epoch < since
        });
        for &other in &idle {
            self.remove_node(other);
        }
        self.idle = idle;
    }
}
