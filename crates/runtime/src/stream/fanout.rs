//! Fan-out: who is told when a task has finished.
//!
//! A list that the holder of the submit lock pushes to and that the finisher closes, once.
//! `README.md` beside this file walks through the protocol; `model.rs` explores it.

use syncline_sync::barrier::fence_after_exchange;
use syncline_sync::prefetch::prefetch_all;
use syncline_sync::shim::{AtomicU32, AtomicU64, Ordering};

/// In `state`: the task has not finished.
const OPEN: u32 = 0;
/// The same, and somebody outside sleeps until it has.
const WAITED: u32 = 1;
/// The task has finished, and it is being decided which successors are told so by the finisher.
const CLOSING: u32 = 2;
/// It is decided: those in the list that the other bits describe, as `pushed` had it.
const CLOSED: u32 = 1 << 31;

/// In `pushed`: one more successor in place.
const NEAR_ONE: u32 = 1 << 28;
/// The number of the latest node plus one; zero where there is none.
const NODE: u32 = NEAR_ONE - 1;

/// Successors that are kept in place, in the cache lines that the finisher needs anyway.
pub(crate) const NEAR: usize = 4;

/// One task's list of successors: the first few in place, the rest in nodes.
#[derive(Debug)]
pub(crate) struct Fanout {
    /// Written by the finisher, and by the holder of the submit lock where both meet.
    state: AtomicU32,
    /// What the list is made of: how many are in place, and the latest node. Written by the holder
    /// of the submit lock.
    pushed: AtomicU32,
    near: [AtomicU32; NEAR],
}

/// What [`Fanout::push`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The successor is in place; the node was not needed.
    InPlace(Link),
    /// The successor is in the node.
    InNode(Link),
    /// The task has finished; nothing was written.
    TooLate,
}

/// The list as it was after a push: to be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it is not certain yet that the finisher will see it"]
pub(crate) struct Link(u32);

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
        Self {
            state: AtomicU32::new(CLOSED),
            pushed: AtomicU32::new(0),
            near: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// Empties and opens the list. Only the holder of the submit lock, for a slot that it has just
    /// taken.
    #[inline]
    pub(crate) fn open(&self) {
        // Relaxed: the slot's number reaches other threads through a push or a ready queue, both of
        // which release.
        self.pushed.store(0, Ordering::Relaxed);
        self.state.store(OPEN, Ordering::Relaxed);
    }

    /// Adds `successor`, under `node` where there is no place nearer, unless the task has finished.
    /// Only the holder of the submit lock, for a task that is not in the list.
    ///
    /// A push is two plain stores. Whether they came in time is told by [`Fanout::confirm`], behind
    /// a fence that all pushes of one successor share.
    #[inline]
    pub(crate) fn push(&self, nodes: &EdgeNodes, node: u32, successor: u32) -> Pushed {
        // Acquire: where the task has finished, what it wrote is visible to the successor.
        if self.state.load(Ordering::Acquire) >= CLOSING {
            return Pushed::TooLate;
        }
        // Relaxed: only the holder of the submit lock writes it.
        let before = self.pushed.load(Ordering::Relaxed);
        let (after, in_place) = match self.near.get(near_count(before)) {
            Some(place) => {
                place.store(successor, Ordering::Relaxed);
                (before + NEAR_ONE, true)
            }
            None => {
                nodes.set(node, successor, before & NODE);
                ((node + 1) | (before & !NODE), false)
            }
        };
        // Release: the finisher that sees this sees the place or the node.
        self.pushed.store(after, Ordering::Release);
        if in_place { Pushed::InPlace(Link(after)) } else { Pushed::InNode(Link(after)) }
    }

    /// Whether the finisher tells the successor that was pushed last. To be asked behind a full
    /// fence, once.
    ///
    /// Of the push before the fence and the finisher's `CLOSING` before its own, one is seen by the
    /// other side: an open list will be found with the push in it. Where both saw each other,
    /// whoever is first to say so decides.
    #[inline]
    pub(crate) fn confirm(&self, link: Link) -> bool {
        // Acquire: as in `push`.
        match self.state.load(Ordering::Acquire) {
            OPEN | WAITED => true,
            state => self.decide(state, link),
        }
    }

    #[cold]
    fn decide(&self, state: u32, Link(pushed): Link) -> bool {
        let decided = match state {
            // Release: the finisher gets what was pushed. Acquire: as in `push`.
            CLOSING => self.state.compare_exchange(
                CLOSING,
                CLOSED | pushed,
                Ordering::AcqRel,
                Ordering::Acquire,
            ),
            decided => Err(decided),
        };
        decided.map_or_else(|theirs| theirs == CLOSED | pushed, |_| true)
    }

    /// Asks for a wake-up when the task finishes; `false` where it has. Only the holder of the
    /// submit lock.
    pub(crate) fn ask(&self) -> bool {
        match self.state.compare_exchange(OPEN, WAITED, Ordering::Relaxed, Ordering::Acquire) {
            Ok(_) => true,
            Err(state) => state == WAITED,
        }
    }

    /// Takes the list and refuses what comes later. The finisher only, once, and what it gets is to
    /// be read before the slot is given back.
    #[inline]
    pub(crate) fn close(&self) -> Closed<'_> {
        // Release shows the task's results to whoever finds it finished.
        let before = self.state.swap(CLOSING, Ordering::SeqCst);
        debug_assert!(before < CLOSING, "a task finishes once");
        fence_after_exchange();
        // Acquire pairs with the push's release, and below with that of whoever decided otherwise.
        let seen = self.pushed.load(Ordering::Acquire);
        let decided = match self.state.compare_exchange(
            CLOSING,
            CLOSED | seen,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => seen,
            Err(theirs) => theirs & !CLOSED,
        };
        self.found(decided, before == WAITED)
    }

    /// The list as it stands. Only the holder of the submit lock, for a task that cannot finish
    /// meanwhile.
    pub(crate) fn peek(&self) -> Closed<'_> {
        match self.state.load(Ordering::Acquire) {
            OPEN | WAITED => self.found(self.pushed.load(Ordering::Relaxed), false),
            _ => Closed { near: &[], node: 0, waited: false },
        }
    }

    #[inline]
    fn found(&self, pushed: u32, waited: bool) -> Closed<'_> {
        let near = &self.near[..near_count(pushed).min(NEAR)];
        Closed { near, node: pushed & NODE, waited }
    }
}

#[inline]
fn near_count(pushed: u32) -> usize {
    (pushed / NEAR_ONE) as usize
}

impl<'a> Closed<'a> {
    /// The successors: those in place in the order in which they came, then the others, the latest
    /// first.
    #[inline]
    pub(crate) fn successors(self, nodes: &'a EdgeNodes) -> impl Iterator<Item = u32> + 'a {
        let mut next = self.node;
        let rest = std::iter::from_fn(move || {
            let node = next.checked_sub(1)?;
            let (successor, after) = nodes.get(node);
            next = after;
            Some(successor)
        });
        // Relaxed: `pushed` published them.
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

    // Relaxed both ways: the list's `pushed` publishes its nodes.
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

    /// Fetches the node whose number plus one is `next`: a finisher has read its line, and it is
    /// written soon.
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
