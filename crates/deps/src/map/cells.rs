//! The cells of a level that are not empty: from a row and a column to the first of a cell's
//! members.
//!
//! Linear probing. A hash places blocks of [`BLOCK`] columns; within a block cells lie side by
//! side, so that tiles that are used one after the other are found in lines that are in the cache
//! already.

/// The end of a list of members.
pub(super) const END: u32 = u32::MAX;

/// A row and a column.
pub(super) type Cell = (u64, u64);

/// Columns that lie side by side: a power of two.
const BLOCK: u64 = 16;

#[derive(Clone, Copy, Debug)]
struct Slot {
    cell: Cell,
    /// [`END`] where there is no cell.
    first: u32,
}

const VACANT: Slot = Slot { cell: (0, 0), first: END };

/// The first member of each cell that has one.
#[derive(Debug)]
pub(super) struct Cells {
    // A power of two, at most half full.
    slots: Vec<Slot>,
    len: usize,
}

impl Default for Cells {
    fn default() -> Self {
        Self { slots: vec![VACANT; 4 * BLOCK as usize], len: 0 }
    }
}

impl Cells {
    #[inline]
    fn home(&self, (row, column): Cell) -> usize {
        let block = (column / BLOCK).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (row ^ block.rotate_left(32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let place = (hash ^ hash >> 32).wrapping_mul(BLOCK).wrapping_add(column % BLOCK);
        place as usize & (self.slots.len() - 1)
    }

    /// Returns the place of `cell`, or the vacant one where it belongs.
    #[inline]
    fn place(&self, cell: Cell) -> usize {
        let mut at = self.home(cell);
        while self.slots[at].first != END && self.slots[at].cell != cell {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    /// Returns how many cells have members.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the first member of a cell; [`END`] where it has none.
    #[inline]
    pub(super) fn first(&self, cell: Cell) -> u32 {
        self.slots[self.place(cell)].first
    }

    /// Returns the first members of all cells.
    pub(super) fn firsts(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().map(|slot| slot.first).filter(|&first| first != END)
    }

    /// Says which member is the first of a cell, by which was; with [`END`] for none.
    pub(super) fn update(&mut self, cell: Cell, first: impl FnOnce(u32) -> u32) {
        let at = self.place(cell);
        let before = self.slots[at].first;
        let after = first(before);
        self.slots[at] = Slot { cell, first: after };
        match (before, after) {
            (END, END) => {}
            (END, _) => {
                self.len += 1;
                if 2 * self.len > self.slots.len() {
                    self.grow();
                }
            }
            (_, END) => {
                self.len -= 1;
                self.close_gap(at);
            }
            _ => {}
        }
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![VACANT; 2 * self.slots.len()];
        for slot in std::mem::replace(&mut self.slots, larger) {
            if slot.first != END {
                let at = self.place(slot.cell);
                self.slots[at] = slot;
            }
        }
    }

    /// Moves back what had to pass the slot `hole`, which has become vacant.
    fn close_gap(&mut self, mut hole: usize) {
        let mask = self.slots.len() - 1;
        let mut at = (hole + 1) & mask;
        while self.slots[at].first != END {
            let home = self.home(self.slots[at].cell);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[at];
                self.slots[at].first = END;
                hole = at;
            }
            at = (at + 1) & mask;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use syncline_testing::for_seeds;

    use super::*;

    #[test]
    fn cells_agree_with_a_map_however_they_lie() {
        for_seeds("cells_agree_with_a_map_however_they_lie", 40, |rng| {
            let (mut cells, mut model) = (Cells::default(), HashMap::new());
            let step = *rng.pick(&[1, 1, 16, 64, 1 << 20, 1 << 40]);
            for _ in 0..800 {
                let cell = (rng.range(0..4), rng.range(0..200) * step);
                let known = model.get(&cell).copied().unwrap_or(END);
                assert_eq!(cells.first(cell), known);
                let first =
                    if known == END || rng.one_in(2) { rng.range(0..9) as u32 } else { END };
                cells.update(cell, |before| {
                    assert_eq!(before, known);
                    first
                });
                match first {
                    END => _ = model.remove(&cell),
                    _ => _ = model.insert(cell, first),
                }
                assert_eq!(cells.len(), model.len());
            }
            let mut all: Vec<u32> = cells.firsts().collect();
            let mut expected: Vec<u32> = model.into_values().collect();
            all.sort_unstable();
            expected.sort_unstable();
            assert_eq!(all, expected);
        });
    }
}
