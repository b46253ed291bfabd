//! Fan-out: who is told when a task has finished.
//!
//! A list that the holder of the submit lock pushes to and that the finisher closes, once. `README.md` beside this
//! file walks through the protocol; `model.rs` explores it.

use super::prefetch::prefetch_all;
use super::sync::{AtomicU32, AtomicU64, Ordering};

/// The list is closed: the task has finished.
const CLOSED: u32 = u32::MAX;
/// Somebody outside sleeps until this task has finished.
const WAITED: u32 = 1 << 31;
/// One more successor in place.
const NEAR_ONE: u32 = 1 << 28;
/// How many successors are in place: never all ones, so that no open list looks closed.
const NEAR_BITS: u32 = WAITED - NEAR_ONE;
/// The number of the latest node plus one; zero where there is none.
const NODE: u32 = NEAR_ONE - 1;

/// Successors that are kept in place, beside the head, in the cache line that the finisher needs anyway.
pub(crate) const NEAR: usize = 4;

/// One task's list of successors: the first few in place, the rest in nodes.
#[derive(Debug)]
pub(crate) struct Fanout {
    head: AtomicU32,
    near: [AtomicU32; NEAR],
}

/// What [`Fanout::push`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The successor is in place; the node was not needed.
    InPlace,
    /// The successor is in the node.
    InNode,
    /// The task has finished; the node may have been written.
    TooLate,
}

/// What [`Fanout::close`] found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed<'a> {
    near: &'a [AtomicU32],
    node: u32,
    /// Whether somebody sleeps until this task has finished.
    pub(crate) waited: bool,
}

impl Fanout {
    /// A list that is closed: nothing is there to wait for.
    pub(crate) fn new_closed() -> Self {
        Self { head: AtomicU32::new(CLOSED), near: std::array::from_fn(|_| AtomicU32::new(0)) }
    }

    /// Empties and opens the list. Only the holder of the submit lock, for a slot that it has just taken.
    #[inline]
    pub(crate) fn open(&self) {
        // Relaxed: the slot's number reaches other threads through a push or a ready queue, both of which release.
        self.head.store(0, Ordering::Relaxed);
    }

    /// Adds `successor`, under `node` where there is no place nearer, unless the task has finished. Only the holder of
    /// the submit lock.
    #[inline]
    pub(crate) fn push(&self, nodes: &EdgeNodes, node: u32, successor: u32) -> Pushed {
        // Acquire: where the list is closed, what the finished task wrote is visible to the successor.
        let mut head = self.head.load(Ordering::Acquire);
        while head != CLOSED {
            let (new, pushed) = match self.near.get(near_count(head)) {
                Some(place) => {
                    // Relaxed: a finisher looks at this place only if it gets the head below.
                    place.store(successor, Ordering::Relaxed);
                    (head + NEAR_ONE, Pushed::InPlace)
                }
                None => {
                    nodes.set(node, successor, head & NODE);
                    ((node + 1) | (head & !NODE), Pushed::InNode)
                }
            };
            // Release: the finisher that takes the list sees the place or the node. Acquire on failure as above.
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return pushed,
                Err(now) => head = now,
            }
        }
        Pushed::TooLate
    }

    /// Asks for a wake-up when the task finishes; `false` where it has. Only the holder of the submit lock.
    pub(crate) fn ask(&self) -> bool {
        let mut head = self.head.load(Ordering::Acquire);
        while head != CLOSED {
            match self.head.compare_exchange_weak(
                head,
                head | WAITED,
                Ordering::Relaxed,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => head = now,
            }
        }
        false
    }

    /// Takes the list and refuses what comes later. The finisher only, once, and what it gets is to be read before the
    /// slot is given back.
    #[inline]
    pub(crate) fn close(&self) -> Closed<'_> {
        // Acquire pairs with the push's release; Release shows the task's results to whoever finds the list closed.
        let head = self.head.swap(CLOSED, Ordering::AcqRel);
        debug_assert_ne!(head, CLOSED, "a task finishes once");
        self.found(head)
    }

    /// The list as it stands. Only the holder of the submit lock, for a task that cannot finish meanwhile.
    pub(crate) fn peek(&self) -> Closed<'_> {
        match self.head.load(Ordering::Acquire) {
            CLOSED => Closed { near: &[], node: 0, waited: false },
            head => self.found(head),
        }
    }

    #[inline]
    fn found(&self, head: u32) -> Closed<'_> {
        let near = &self.near[..near_count(head).min(NEAR)];
        Closed { near, node: head & NODE, waited: head & WAITED != 0 }
    }
}

#[inline]
fn near_count(head: u32) -> usize {
    ((head & NEAR_BITS) / NEAR_ONE) as usize
}

impl<'a> Closed<'a> {
    /// The successors: those in place in the order in which they came, then the others, the latest first.
    #[inline]
    pub(crate) fn successors(self, nodes: &'a EdgeNodes) -> impl Iterator<Item = u32> + 'a {
        let mut next = self.node;
        let rest = std::iter::from_fn(move || {
            let node = next.checked_sub(1)?;
            let (successor, after) = nodes.get(node);
            next = after;
            Some(successor)
        });
        // Relaxed: the head published them.
        self.near.iter().map(|place| place.load(Ordering::Relaxed)).chain(rest)
    }
}

/// The nodes that all lists of a ring are made of: a successor and the next node's number plus one.
///
/// One word each, written whole, so that no reference to a node is ever needed.
#[derive(Debug)]
pub(crate) struct EdgeNodes(Box<[AtomicU64]>);

impl EdgeNodes {
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    // Relaxed both ways: the list's head publishes its nodes.
    #[inline]
    fn set(&self, node: u32, successor: u32, next: u32) {
        self.0[node as usize]
            .store(u64::from(successor) << 32 | u64::from(next), Ordering::Relaxed);
    }

    #[inline]
    fn get(&self, node: u32) -> (u32, u32) {
        let word = self.0[node as usize].load(Ordering::Relaxed);
        ((word >> 32) as u32, word as u32)
    }

    /// Links `node` to `next` (a number plus one) in the list of free nodes.
    #[inline]
    pub(crate) fn link(&self, node: u32, next: u32) {
        self.set(node, 0, next);
    }

    /// Fetches the node whose number plus one is `next`: a finisher has read its line, and it is written soon.
    #[inline]
    pub(crate) fn prefetch(&self, next: u32) {
        if let Some(node) = next.checked_sub(1).and_then(|node| self.0.get(node as usize)) {
            prefetch_all(node);
        }
    }

    /// The number plus one of the node after `node`.
    #[inline]
    pub(crate) fn next(&self, node: u32) -> u32 {
        self.get(node).1
    }
}
