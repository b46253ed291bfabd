//! Links: which views overlap which.
//!
//! Found once, when a view is first used, and listed at both nodes. Reads need to know only of
//! views that are written: those come first in a list.

use super::TensorMap;
use super::entries::Mode;
use super::node::{LINKED, WIDE, WRITTEN};

/// More overlapping views than this are searched for each time instead of listed, so that memory
/// stays linear in the number of views however they overlap.
const LINKS_MAX: usize = 256;

/// Lists shorter than this are not looked through for nodes that could be dropped.
const IDLE_LINKS: usize = 32;

/// So many visits to an empty node cost about as much as adding it anew.
const IDLE_WALKS: u32 = 64;

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
    fn covers(self) -> bool {
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
    /// The links that an access of `mode` has to follow.
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
        buffers[nodes[node as usize].buffer as usize].grid.visit(region, |other| {
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

    /// Links a new node with those in `self.found`.
    pub(super) fn link(&mut self, node: u32) {
        let mut found = std::mem::take(&mut self.found);
        // In the order in which they were added, so that edges do not come in the index's
        // accidental order.
        found.sort_unstable();
        self.cold[node as usize].links.clear();
        for &link in &found {
            let region = self.cold[node as usize].region;
            let covers = self.cold[link.node()].region.covers(&region);
            self.add_link(link.node(), Link::to(node, covers));
            self.add_link(node as usize, link);
        }
        self.found = found;
    }

    fn add_link(&mut self, node: usize, link: Link) {
        if self.nodes[node].flags & WIDE != 0 {
            return;
        }
        let written = self.nodes[link.node()].flags & WRITTEN != 0;
        let (own, links) = (&mut self.nodes[node], &mut self.cold[node].links);
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
            let (other, links) = (&mut map.nodes[link.node()], &mut map.cold[link.node()].links);
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
        self.nodes[node as usize].flags |= WRITTEN;
        self.with_all_links(node, |map, link| {
            let links = &mut map.cold[link.node()].links;
            if let Some(at) = links.position(node) {
                links.promote(at);
            }
        });
    }

    /// Calls `body` for all links of `node`, listed or searched for.
    fn with_all_links(&mut self, node: u32, mut body: impl FnMut(&mut Self, Link)) {
        if self.nodes[node as usize].flags & WIDE != 0 {
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

    /// The links that an access of `mode` through `node` has to follow.
    #[inline]
    pub(super) fn links_of(&self, node: u32, mode: Mode) -> &[Link] {
        match self.nodes[node as usize].flags & (LINKED | WIDE) {
            0 => &[],
            LINKED => self.cold[node as usize].links.followed_by(mode),
            _ => &self.found,
        }
    }

    /// Leaves marks of an access of `mode` through `node` at the nodes that overlap it.
    #[inline(never)]
    pub(super) fn mark_links(&mut self, node: u32, mode: Mode) {
        let wide = self.nodes[node as usize].flags & WIDE != 0;
        if wide {
            self.search(node);
        }
        let Self { nodes, cold, found, chunks, .. } = self;
        let links = match wide {
            true => found.as_slice(),
            false => cold[node as usize].links.followed_by(mode),
        };
        let mut idle = 0;
        if links.len() > IDLE_LINKS {
            idle = links.iter().filter(|link| nodes[link.node()].is_empty()).count();
        }
        let nodes = nodes.as_mut_slice();
        match mode {
            Mode::Read => {
                links.iter().for_each(|link| nodes[link.node()].mark_read(link.covers()));
            }
            Mode::Write => {
                for link in links {
                    match link.covers() {
                        true => nodes[link.node()].clear(chunks),
                        false => nodes[link.node()].mark_write(Mode::Write),
                    }
                }
            }
            _ => links.iter().for_each(|link| nodes[link.node()].mark_write(mode)),
        }
        if idle > links.len() / 2 {
            self.drop_idle(node);
        }
    }

    /// After many walks that found most of the overlapping nodes empty, drops those that were not
    /// used meanwhile.
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
        let links = match self.nodes[node as usize].flags & WIDE {
            0 => &cold.links.list,
            _ => &self.found,
        };
        idle.extend(links.iter().map(|link| link.node() as u32));
        idle.retain(|&other| {
            let other = &self.nodes[other as usize];
            other.is_empty() && other.epoch < since
        });
        for &other in &idle {
            self.remove_node(other);
        }
        self.idle = idle;
    }
}
