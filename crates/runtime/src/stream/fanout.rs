//! Fan-out: who is told when a task has finished.
//!
//! A list that the holder of the submit lock pushes to and that the finisher closes, once. `README.md` beside this
//! file walks through the protocol; `model.rs` explores it.

use super::sync::{AtomicU32, AtomicU64, Ordering};

/// The list is closed: the task has finished.
const CLOSED: u32 = u32::MAX;
/// Somebody outside sleeps until this task has finished.
const WAITED: u32 = 1 << 31;
/// The node number plus one; zero for the empty list.
const NODE: u32 = WAITED - 1;

/// The head of one task's list of successors.
#[derive(Debug)]
pub(crate) struct Fanout(AtomicU32);

/// What [`Fanout::close`] found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    first: u32,
    /// Whether somebody sleeps until this task has finished.
    pub(crate) waited: bool,
}

impl Fanout {
    /// A list that is closed: nothing is there to wait for.
    pub(crate) fn new_closed() -> Self {
        Self(AtomicU32::new(CLOSED))
    }

    /// Empties and opens the list. Only the holder of the submit lock, for a slot that it has just taken.
    #[inline]
    pub(crate) fn open(&self) {
        // Relaxed: the slot's number reaches other threads through a push or a ready queue, both of which release.
        self.0.store(0, Ordering::Relaxed);
    }

    /// Adds `successor` under `node`, unless the task has finished. Only the holder of the submit lock.
    #[inline]
    pub(crate) fn push(&self, nodes: &EdgeNodes, node: u32, successor: u32) -> bool {
        // Acquire: where the list is closed, what the finished task wrote is visible to the successor.
        let mut head = self.0.load(Ordering::Acquire);
        while head != CLOSED {
            nodes.set(node, successor, head & NODE);
            let new = (node + 1) | (head & WAITED);
            // Release: the finisher that takes the list sees the node. Acquire on failure as above.
            match self.0.compare_exchange_weak(head, new, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => head = now,
            }
        }
        false
    }

    /// Asks for a wake-up when the task finishes; `false` where it has. Only the holder of the submit lock.
    pub(crate) fn ask(&self) -> bool {
        let mut head = self.0.load(Ordering::Acquire);
        while head != CLOSED {
            match self.0.compare_exchange_weak(
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

    /// Takes the list and refuses what comes later. The finisher only, once.
    #[inline]
    pub(crate) fn close(&self) -> Closed {
        // Acquire pairs with the push's release; Release shows the task's results to whoever finds the list closed.
        let head = self.0.swap(CLOSED, Ordering::AcqRel);
        debug_assert_ne!(head, CLOSED, "a task finishes once");
        Closed { first: head & NODE, waited: head & WAITED != 0 }
    }

    /// The list as it stands. Only the holder of the submit lock, for a task that cannot finish meanwhile.
    pub(crate) fn peek(&self) -> Closed {
        match self.0.load(Ordering::Acquire) {
            CLOSED => Closed { first: 0, waited: false },
            head => Closed { first: head & NODE, waited: head & WAITED != 0 },
        }
    }
}

impl Closed {
    /// The successors, the latest first.
    #[inline]
    pub(crate) fn successors(self, nodes: &EdgeNodes) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let node = next.checked_sub(1)?;
            let (successor, after) = nodes.get(node);
            next = after;
            Some(successor)
        })
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

    /// The number plus one of the node after `node`.
    #[inline]
    pub(crate) fn next(&self, node: u32) -> u32 {
        self.get(node).1
    }
}
