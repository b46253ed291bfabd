//! Mutual exclusion of commutative accesses: in any order, but never at the same time.
//!
//! Discovery leaves the members of a commutative group unordered. A member that is otherwise ready
//! takes all the byte ranges it needs in one step before it is queued, or is put aside until some
//! are given back; nobody ever holds some and waits for others, so that there is no deadlock.

use std::collections::VecDeque;

use syncline_tensor::{Arg, BufferId};

/// Who holds which bytes, and who wants some.
#[derive(Debug, Default)]
pub(crate) struct Exclusion {
    held: Vec<(BufferId, u64, u64, u32)>,
    aside: VecDeque<Wanted>,
}

#[derive(Debug)]
struct Wanted {
    slot: u32,
    ranges: Vec<(BufferId, u64, u64)>,
}

impl Exclusion {
    /// Takes what the task in `slot` needs; where that is not free, the task is put aside.
    pub(crate) fn acquire(&mut self, slot: u32, args: impl Iterator<Item = Arg>) -> bool {
        let ranges: Vec<_> = args
            .filter(|arg| arg.access.is_grouped())
            .filter_map(|arg| arg.view.span().map(|(start, end)| (arg.buffer, start, end)))
            .collect();
        let wanted = Wanted { slot, ranges };
        // Not past one that has waited for longer: a wide one would starve among narrow ones.
        if self.is_free(&wanted) && !self.aside.iter().any(|older| older.conflicts(&wanted)) {
            self.take(&wanted);
            return true;
        }
        self.aside.push_back(wanted);
        false
    }

    /// Gives back what the task in `slot` held, and returns those that now have what they need.
    pub(crate) fn release(&mut self, slot: u32) -> Vec<u32> {
        self.held.retain(|&(.., holder)| holder != slot);
        let mut ready = Vec::new();
        let mut still = VecDeque::new();
        for wanted in std::mem::take(&mut self.aside) {
            if self.is_free(&wanted) && !still.iter().any(|older: &Wanted| older.conflicts(&wanted))
            {
                self.take(&wanted);
                ready.push(wanted.slot);
            } else {
                still.push_back(wanted);
            }
        }
        self.aside = still;
        ready
    }

    /// Adds to `slots` those put aside that wait, for one in `behind`, to get their turn.
    pub(crate) fn add_behind(&self, behind: &[bool], slots: &mut Vec<u32>) {
        for (at, wanted) in self.aside.iter().enumerate() {
            if !behind[wanted.slot as usize]
                && self.before(at).any(|(slot, conflicts)| behind[slot as usize] && conflicts)
            {
                slots.push(wanted.slot);
            }
        }
    }

    /// Adds to `slots` those that have their turn before one in `needed`.
    pub(crate) fn add_needed(&self, needed: &[bool], slots: &mut Vec<u32>) {
        for (at, wanted) in self.aside.iter().enumerate() {
            if needed[wanted.slot as usize] {
                let before = self
                    .before(at)
                    .filter(|(slot, conflicts)| *conflicts && !needed[*slot as usize]);
                slots.extend(before.map(|(slot, _)| slot));
            }
        }
    }

    /// The slots that come before the one put aside at `at`, and whether they keep it waiting.
    fn before(&self, at: usize) -> impl Iterator<Item = (u32, bool)> + '_ {
        let wanted = &self.aside[at];
        let held = self.held.iter();
        let held =
            held.map(|&(buffer, start, end, slot)| (slot, wanted.touches(buffer, start, end)));
        let older = self.aside.iter().take(at);
        held.chain(older.map(|older| (older.slot, older.conflicts(wanted))))
    }

    fn is_free(&self, wanted: &Wanted) -> bool {
        !self.held.iter().any(|&(buffer, start, end, _)| wanted.touches(buffer, start, end))
    }

    fn take(&mut self, wanted: &Wanted) {
        let slot = wanted.slot;
        self.held
            .extend(wanted.ranges.iter().map(|&(buffer, start, end)| (buffer, start, end, slot)));
    }
}

impl Wanted {
    fn touches(&self, buffer: BufferId, start: u64, end: u64) -> bool {
        self.ranges.iter().any(|&(mine, from, to)| mine == buffer && from < end && start < to)
    }

    fn conflicts(&self, other: &Wanted) -> bool {
        other.ranges.iter().any(|&(buffer, start, end)| self.touches(buffer, start, end))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use syncline_tensor::{Access, View};

    fn args(ranges: &[(u64, u64)]) -> impl Iterator<Item = Arg> + '_ {
        let view = |&(start, bytes): &(u64, u64)| View::bytes_at(start, bytes).expect("small");
        ranges.iter().map(move |range| Arg::new(Access::Commutative, BufferId(1), view(range)))
    }

    #[test]
    fn all_or_nothing_and_in_turn() {
        let mut exclusion = Exclusion::default();
        assert!(exclusion.acquire(0, args(&[(0, 8)])));
        assert!(exclusion.acquire(1, args(&[(8, 8)])), "other bytes");
        assert!(!exclusion.acquire(2, args(&[(0, 8), (16, 8)])));
        assert!(!exclusion.acquire(3, args(&[(16, 8)])), "not past an older one");
        assert!(exclusion.release(1).is_empty());
        assert_eq!(exclusion.release(0), [2]);
        assert_eq!(exclusion.release(2), [3]);
        assert!(exclusion.release(3).is_empty());
        assert!(exclusion.acquire(4, args(&[(0, 64)])));
    }
}
