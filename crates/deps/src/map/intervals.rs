//! An index of intervals that may overlap: a B+ tree whose blocks know how far those below reach.
//!
//! Inserting, visiting what overlaps a span and cutting a span out take a logarithm of the number
//! of intervals, and a constant for each interval that is found.

use std::ops::Range;

/// Entries of a block.
const FANOUT: usize = 16;

/// Bytes from the first to before the last.
pub(super) type Span = Range<u64>;

/// An interval, or the bounds of a block.
#[derive(Clone, Copy, Debug)]
struct Slot {
    start: u64,
    end: u64,
    /// The number of the interval, or of the block.
    below: u32,
}

impl Slot {
    const VACANT: Self = Self { start: 0, end: 0, below: 0 };

    fn span(&self) -> Span {
        self.start..self.end
    }

    #[inline]
    fn meets(&self, span: &Span) -> bool {
        self.start < span.end && span.start < self.end
    }
}

/// Some intervals, or some blocks, by their first bytes.
#[derive(Clone, Copy, Debug)]
struct Block {
    len: usize,
    slots: [Slot; FANOUT],
}

impl Block {
    const EMPTY: Self = Self { len: 0, slots: [Slot::VACANT; FANOUT] };

    #[inline]
    fn slots(&self) -> &[Slot] {
        &self.slots[..self.len]
    }

    /// Returns the bytes from the first interval to where the last one ends.
    fn bounds(&self, below: u32) -> Slot {
        let end = self.slots().iter().fold(0, |end, slot| slot.end.max(end));
        Slot { start: self.slots[0].start, end, below }
    }

    /// Returns how many entries begin at `start` or before.
    #[inline]
    fn begun_at(&self, start: u64) -> usize {
        self.slots().iter().take_while(|slot| slot.start <= start).count()
    }

    fn insert(&mut self, at: usize, slot: Slot) {
        self.slots.copy_within(at..self.len, at + 1);
        self.slots[at] = slot;
        self.len += 1;
    }

    /// Moves the second half of the entries out.
    fn split(&mut self) -> Self {
        let mut upper = Self::EMPTY;
        self.len = FANOUT / 2;
        upper.append(&self.slots[FANOUT / 2..]);
        upper
    }

    fn append(&mut self, slots: &[Slot]) {
        self.slots[self.len..self.len + slots.len()].copy_from_slice(slots);
        self.len += slots.len();
    }
}

/// Numbered intervals.
#[derive(Debug)]
pub(super) struct Intervals {
    blocks: Vec<Block>,
    free: Vec<u32>,
    root: u32,
    /// Steps from the root to the blocks of intervals.
    height: u32,
    len: usize,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { blocks: vec![Block::EMPTY], free: Vec::new(), root: 0, height: 0, len: 0 }
    }
}

impl Intervals {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Shows the intervals that share a byte with `span`, by their first bytes.
    #[inline]
    pub(super) fn visit(&self, span: &Span, mut show: impl FnMut(Span, u32)) {
        self.visit_below(self.root, self.height, span, &mut show);
    }

    fn visit_below(&self, block: u32, height: u32, span: &Span, show: &mut impl FnMut(Span, u32)) {
        let slots = self.blocks[block as usize].slots();
        let met = slots.iter().take_while(|slot| slot.start < span.end);
        for slot in met.filter(|slot| slot.end > span.start) {
            match height {
                0 => show(slot.span(), slot.below),
                _ => self.visit_below(slot.below, height - 1, span, show),
            }
        }
    }

    /// Adds an interval that is not empty.
    pub(super) fn insert(&mut self, span: Span, number: u32) {
        debug_assert!(span.start < span.end, "{span:?}");
        self.len += 1;
        let slot = Slot { start: span.start, end: span.end, below: number };
        if let Some(upper) = self.insert_below(self.root, self.height, slot) {
            let mut root = Block::EMPTY;
            root.append(&[self.bounds(self.root), self.bounds(upper)]);
            self.root = self.add(root);
            self.height += 1;
        }
    }

    fn bounds(&self, block: u32) -> Slot {
        self.blocks[block as usize].bounds(block)
    }

    /// Returns the block that was split off, if there was no room.
    fn insert_below(&mut self, block: u32, height: u32, slot: Slot) -> Option<u32> {
        let own = &mut self.blocks[block as usize];
        let at = own.begun_at(slot.start);
        if height == 0 {
            return self.insert_at(block, at, slot);
        }
        let at = at.saturating_sub(1);
        let child = &mut own.slots[at];
        child.start = child.start.min(slot.start);
        child.end = child.end.max(slot.end);
        let child = child.below;
        let upper = self.insert_below(child, height - 1, slot)?;
        self.blocks[block as usize].slots[at] = self.bounds(child);
        self.insert_at(block, at + 1, self.bounds(upper))
    }

    fn insert_at(&mut self, block: u32, at: usize, slot: Slot) -> Option<u32> {
        let own = &mut self.blocks[block as usize];
        if own.len < FANOUT {
            own.insert(at, slot);
            return None;
        }
        let mut upper = own.split();
        match at.checked_sub(own.len) {
            Some(at) if at > 0 => upper.insert(at, slot),
            _ => own.insert(at, slot),
        }
        Some(self.add(upper))
    }

    fn add(&mut self, block: Block) -> u32 {
        let Some(vacant) = self.free.pop() else {
            self.blocks.push(block);
            return self.blocks.len() as u32 - 1;
        };
        self.blocks[vacant as usize] = block;
        vacant
    }

    /// Replaces the end of each interval that shares a byte with `span` by what `cut` returns for
    /// it, and takes it out where that is nothing.
    pub(super) fn cut(&mut self, span: &Span, mut cut: impl FnMut(Span, u32) -> Option<u64>) {
        self.cut_below(self.root, self.height, span, &mut cut);
        while self.height > 0 && self.blocks[self.root as usize].len <= 1 {
            let root = &self.blocks[self.root as usize];
            match root.slots().first() {
                Some(&Slot { below, .. }) => {
                    self.free.push(self.root);
                    self.root = below;
                    self.height -= 1;
                }
                None => self.height = 0,
            }
        }
    }

    fn cut_below(
        &mut self,
        block: u32,
        height: u32,
        span: &Span,
        cut: &mut impl FnMut(Span, u32) -> Option<u64>,
    ) {
        let slots = self.blocks[block as usize].slots();
        let Some(first) = slots.iter().position(|slot| slot.meets(span)) else { return };
        let mut kept = first;
        for at in first..self.blocks[block as usize].len {
            let mut slot = self.blocks[block as usize].slots[at];
            if slot.meets(span) {
                if height == 0 {
                    let Some(end) = cut(slot.span(), slot.below) else {
                        self.len -= 1;
                        continue;
                    };
                    slot.end = end;
                } else {
                    let below = slot.below;
                    self.cut_below(below, height - 1, span, cut);
                    if self.blocks[below as usize].len == 0 || self.merge(block, kept, below) {
                        self.free.push(below);
                        continue;
                    }
                    slot = self.bounds(below);
                }
            } else if kept == at && slot.start >= span.end {
                return;
            }
            self.blocks[block as usize].slots[kept] = slot;
            kept += 1;
        }
        self.blocks[block as usize].len = kept;
    }

    /// Moves all of the block `below` to the one before entry `kept` of `block`, where both are
    /// nearly empty. Returns `true` if it did.
    fn merge(&mut self, block: u32, kept: usize, below: u32) -> bool {
        let Some(before) = kept.checked_sub(1) else { return false };
        let target = self.blocks[block as usize].slots[before].below;
        let len = |block: u32| self.blocks[block as usize].len;
        if len(below) + len(target) > FANOUT / 2 {
            return false;
        }
        let source = self.blocks[below as usize];
        self.blocks[target as usize].append(source.slots());
        self.blocks[block as usize].slots[before] = self.bounds(target);
        true
    }

    pub(super) fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>() + self.free.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use syncline_testing::{Rng, for_seeds};

    use super::*;

    fn meet(a: &Span, b: &Span) -> bool {
        a.start < b.end && b.start < a.end
    }

    fn span(rng: &mut Rng, longest: u64) -> Span {
        let start = rng.range(0..1000);
        start..start + rng.range(1..longest + 1)
    }

    #[test]
    fn the_tree_agrees_with_a_list() {
        for_seeds("the_tree_agrees_with_a_list", 60, |rng| {
            let longest = *rng.pick(&[1, 20, 300, 1000]);
            let (mut tree, mut list) = (Intervals::default(), Vec::<(Span, u32)>::new());
            for number in 0..800 {
                let own = if rng.one_in(8) { 0..rng.range(1..9) } else { span(rng, longest) };
                tree.insert(own.clone(), number);
                list.push((own, number));
                if rng.one_in(6) {
                    let longest = if rng.one_in(20) { 2000 } else { longest };
                    let by = span(rng, longest);
                    let cut = |own: &Span| (own.start < by.start).then_some(by.start);
                    let mut shown = 0;
                    tree.cut(&by, |own, _| {
                        shown += 1;
                        cut(&own)
                    });
                    assert_eq!(shown, list.iter().filter(|(own, _)| meet(own, &by)).count());
                    list.retain_mut(|(own, _)| {
                        let end = if meet(own, &by) { cut(own) } else { Some(own.end) };
                        own.end = end.unwrap_or(own.end);
                        end.is_some()
                    });
                }
                let query = span(rng, longest);
                let mut found = Vec::new();
                tree.visit(&query, |own, number| found.push((own, number)));
                assert!(found.is_sorted_by_key(|(own, _)| own.start));
                let mut expected = list.clone();
                expected.retain(|(own, _)| meet(own, &query));
                found.sort_by_key(|(_, number)| *number);
                assert_eq!(found, expected);
                assert_eq!(tree.len(), list.len());
            }
        });
    }

    #[test]
    fn blocks_follow_the_intervals_that_are_left() {
        let mut tree = Intervals::default();
        for round in 0..20u64 {
            (0..5000).for_each(|at| tree.insert(at * 7 % 5000..at * 7 % 5000 + 3, at as u32));
            tree.cut(&(0..5003), |own, _| (own.start % 500 == round).then_some(own.end));
            assert!(tree.len() <= 10 * (round as usize + 1));
            tree.cut(&(0..5003), |_, _| None);
            assert_eq!((tree.len(), tree.height), (0, 0));
        }
        assert!(tree.blocks.len() < 5000 / 4, "{} blocks", tree.blocks.len());
    }
}
