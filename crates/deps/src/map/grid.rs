//! The index of a buffer's regions: which of them may overlap a new one.
//!
//! Bytes are folded at a pitch into rows and columns, so that tiles of a matrix are boxes that lie
//! beside one another, where their intervals of bytes would all overlap. Boxes of like size share a
//! level, whose cells are as large as the boxes: a box is in the cell of its corner, and whatever
//! overlaps a query is in the few cells around it. Finding the neighbours of a tile costs the same
//! among ten tiles and among a million.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use syncline_tensor::Region;

use super::cells::{Cell, Cells, END};

/// Up to this many regions are kept in a plain list, which costs less than the cells.
const FEW: usize = 192;

/// The pitch of a buffer that has only been used in whole runs: one row.
const NO_PITCH: u64 = 1 << 63;

/// A hasher for ids and cell numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
}

pub(super) type WordMap<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;

/// A region's rows and columns, the last ones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    rows: (u64, u64),
    columns: (u64, u64),
}

impl Bounds {
    fn of(region: &Region, pitch: u64) -> Self {
        let rows = (region.start() / pitch, (region.end() - 1) / pitch);
        let first = region.start() % pitch;
        let mut last = first + region.run_bytes() - 1;
        for (stride, count) in region.dims() {
            if stride < pitch {
                last = last.saturating_add(stride * (count - 1));
            } else if !stride.is_multiple_of(pitch) {
                last = u64::MAX;
            }
        }
        // What wraps around the end of a row may be in any column.
        let columns = if last < pitch { (first, last) } else { (0, pitch - 1) };
        Self { rows, columns }
    }

    fn meets(&self, other: &Self) -> bool {
        let meet = |a: (u64, u64), b: (u64, u64)| a.0 <= b.1 && b.0 <= a.1;
        meet(self.rows, other.rows) && meet(self.columns, other.columns)
    }
}

#[derive(Clone, Copy, Debug)]
struct Member {
    node: u32,
    bounds: Bounds,
}

/// The members of all cells, in one list for each.
///
/// Views come and go with the tasks: what one leaves is the next one's, and nothing is asked of the
/// system for it.
#[derive(Debug)]
struct Members {
    all: Vec<(Member, u32)>,
    vacant: u32,
}

impl Default for Members {
    fn default() -> Self {
        Self { all: Vec::new(), vacant: END }
    }
}

impl Members {
    /// Puts a member before those of the list `first`; where it is.
    fn add(&mut self, member: Member, first: u32) -> u32 {
        let place = self.vacant;
        match self.all.get_mut(place as usize) {
            Some(vacant) => {
                self.vacant = vacant.1;
                *vacant = (member, first);
                place
            }
            None => {
                self.all.push((member, first));
                self.all.len() as u32 - 1
            }
        }
    }

    /// Takes the member of `node` out of the list `first`; what the list begins with then.
    fn remove(&mut self, node: u32, first: u32) -> u32 {
        let (mut before, mut at) = (END, first);
        while self.all[at as usize].0.node != node {
            (before, at) = (at, self.all[at as usize].1);
        }
        let next = std::mem::replace(&mut self.all[at as usize].1, self.vacant);
        self.vacant = at;
        if before == END {
            return next;
        }
        self.all[before as usize].1 = next;
        first
    }

    fn list(&self, first: u32) -> impl Iterator<Item = &Member> + '_ {
        let mut at = first;
        std::iter::from_fn(move || {
            let (member, next) = self.all.get(at as usize)?;
            at = *next;
            Some(member)
        })
    }
}

/// Boxes of like size, by the cell that their first corner is in.
#[derive(Debug)]
struct Level {
    /// Binary logarithms of the cells' size: no box of this level is larger than a cell.
    shifts: (u32, u32),
    /// The list of each cell's members.
    cells: Cells,
    len: usize,
}

impl Level {
    fn shifts(bounds: &Bounds) -> (u32, u32) {
        // Every other size is enough: fewer levels have to be visited.
        let bits = |(first, last): (u64, u64)| ((65 - (last - first).leading_zeros()) & !1).min(63);
        (bits(bounds.rows), bits(bounds.columns))
    }

    fn cell(&self, bounds: &Bounds) -> Cell {
        (bounds.rows.0 >> self.shifts.0, bounds.columns.0 >> self.shifts.1)
    }

    fn visit(&self, members: &Members, bounds: &Bounds, visitor: &mut impl FnMut(u32)) {
        let mut show = |first: u32| {
            for member in members.list(first).filter(|member| member.bounds.meets(bounds)) {
                visitor(member.node);
            }
        };
        // A box reaches at most into the cell after its own, hence one cell earlier on both axes.
        let cells = |(first, last): (u64, u64), shift| {
            (u64::saturating_sub(first >> shift, 1), last >> shift)
        };
        let rows = cells(bounds.rows, self.shifts.0);
        let columns = cells(bounds.columns, self.shifts.1);
        let count = u128::from(rows.1 - rows.0 + 1) * u128::from(columns.1 - columns.0 + 1);
        if count > self.cells.len() as u128 {
            self.cells.firsts().for_each(show);
            return;
        }
        for row in rows.0..=rows.1 {
            for column in columns.0..=columns.1 {
                show(self.cells.first((row, column)));
            }
        }
    }
}

/// The regions of one buffer.
#[derive(Debug)]
pub(super) struct Grid {
    pitch: u64,
    few: Vec<Member>,
    /// Empty until there are more than a few regions.
    levels: Vec<Level>,
    members: Members,
    len: usize,
    /// Regions that were proposed and did not overlap, since the pitch was chosen.
    wasted: u64,
}

impl Default for Grid {
    fn default() -> Self {
        Self {
            pitch: NO_PITCH,
            few: Vec::new(),
            levels: Vec::new(),
            members: Members::default(),
            len: 0,
            wasted: 0,
        }
    }
}

impl Grid {
    /// Shows every node whose region may overlap `region`.
    pub(super) fn visit(&self, region: &Region, mut visitor: impl FnMut(u32)) {
        let bounds = Bounds::of(region, self.pitch);
        for member in self.few.iter().filter(|member| member.bounds.meets(&bounds)) {
            visitor(member.node);
        }
        for level in &self.levels {
            level.visit(&self.members, &bounds, &mut visitor);
        }
    }

    /// Shows every node.
    pub(super) fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        let cells = self.levels.iter().flat_map(|level| level.cells.firsts());
        let in_cells = cells.flat_map(|first| self.members.list(first));
        self.few.iter().chain(in_cells).map(|member| member.node)
    }

    /// Adds a node. `wasted` of the nodes that were shown for it do not overlap it.
    pub(super) fn insert<'a>(
        &mut self,
        node: u32,
        region: &'a Region,
        wasted: usize,
        region_of: impl Fn(u32) -> &'a Region,
    ) {
        self.wasted += wasted as u64;
        self.choose_pitch(region, &region_of);
        self.place(node, region);
        if self.few.len() > FEW {
            self.rebuild(&region_of);
        }
    }

    /// Takes out a node that is in the index.
    pub(super) fn remove(&mut self, node: u32, region: &Region) {
        self.len -= 1;
        if let Some(at) = self.few.iter().position(|member| member.node == node) {
            self.few.swap_remove(at);
            return;
        }
        let bounds = Bounds::of(region, self.pitch);
        let shifts = Level::shifts(&bounds);
        let level = self.levels.iter().position(|level| level.shifts == shifts);
        let at = level.expect("the level that the node was added to");
        let level = &mut self.levels[at];
        let cell = level.cell(&bounds);
        level.cells.update(cell, |first| self.members.remove(node, first));
        level.len -= 1;
        if level.len == 0 {
            self.levels.swap_remove(at);
        }
    }

    /// Folds at the largest stride of the first region that has one, and of a later one if the
    /// former choice proposes much that does not overlap.
    fn choose_pitch<'a>(&mut self, region: &Region, region_of: &impl Fn(u32) -> &'a Region) {
        let Some((stride, _)) = region.dims().next() else { return };
        let misled = self.wasted > 8 * self.len as u64 + 256;
        if stride != self.pitch && (self.pitch == NO_PITCH || misled) {
            self.pitch = stride;
            self.wasted = 0;
            self.rebuild(region_of);
        }
    }

    fn rebuild<'a>(&mut self, region_of: &impl Fn(u32) -> &'a Region) {
        let nodes: Vec<u32> = self.nodes().collect();
        let in_cells = nodes.len() > FEW;
        self.few.clear();
        self.levels.clear();
        self.members = Members::default();
        self.len = 0;
        for node in nodes {
            match in_cells {
                true => self.place_in_cell(node, region_of(node)),
                false => self.place(node, region_of(node)),
            }
        }
    }

    fn place(&mut self, node: u32, region: &Region) {
        if !self.levels.is_empty() {
            return self.place_in_cell(node, region);
        }
        self.few.push(Member { node, bounds: Bounds::of(region, self.pitch) });
        self.len += 1;
    }

    fn place_in_cell(&mut self, node: u32, region: &Region) {
        let bounds = Bounds::of(region, self.pitch);
        let shifts = Level::shifts(&bounds);
        let at = self.levels.iter().position(|level| level.shifts == shifts).unwrap_or_else(|| {
            self.levels.push(Level { shifts, cells: Cells::default(), len: 0 });
            self.levels.len() - 1
        });
        let level = &mut self.levels[at];
        let member = Member { node, bounds };
        level.cells.update(level.cell(&bounds), |first| self.members.add(member, first));
        level.len += 1;
        self.len += 1;
    }

    pub(super) fn bytes(&self) -> usize {
        let cells: usize = self.levels.iter().map(|level| level.cells.bytes()).sum();
        let listed = self.members.all.capacity() * size_of::<(Member, u32)>();
        self.few.capacity() * size_of::<Member>() + listed + cells
    }
}

#[cfg(test)]
mod tests {
    use syncline_testing::for_seeds;

    use super::*;
    use syncline_tensor::{Dtype, View};

    #[test]
    fn every_overlap_is_among_what_is_shown() {
        for_seeds("every_overlap_is_among_what_is_shown", 60, |rng| {
            let mut regions = Vec::new();
            for _ in 0..120 {
                let pitch = *rng.pick(&[64u64, 64, 64, 60]);
                let (rows, columns) = (rng.range(1..9), rng.range(1..17));
                let offset = rng.range(0..20) * pitch + rng.range(0..48);
                let view = View::strided(Dtype::U8, offset, &[rows, columns], &[pitch as i64, 1]);
                regions.push(Region::of(&view.unwrap()));
            }
            let (mut grid, mut inside) = (Grid::default(), vec![false; regions.len()]);
            for _ in 0..400 {
                let node = rng.below(regions.len());
                if inside[node] {
                    grid.remove(node as u32, &regions[node]);
                } else {
                    grid.insert(node as u32, &regions[node], 3, |node| &regions[node as usize]);
                }
                inside[node] = !inside[node];
                let query = &regions[rng.below(regions.len())];
                let mut shown = vec![0; regions.len()];
                grid.visit(query, |node| shown[node as usize] += 1);
                for (node, region) in regions.iter().enumerate() {
                    let must = inside[node] && region.overlaps(query);
                    let may = usize::from(inside[node]);
                    assert!(
                        (usize::from(must)..=may).contains(&shown[node]),
                        "{region:?} {query:?}"
                    );
                }
            }
            assert_eq!(grid.nodes().count(), inside.iter().filter(|&&inside| inside).count());
        });
    }

    #[test]
    fn tiles_of_a_matrix_are_proposed_to_few_others() {
        let matrix = View::contiguous(Dtype::F32, &[1024, 1024]).unwrap();
        let tile = |row: u64, column: u64| {
            let rows = matrix.slice(0, 16 * row..16 * row + 16).unwrap();
            Region::of(&rows.slice(1, 16 * column..16 * column + 16).unwrap())
        };
        let regions: Vec<Region> = (0..64 * 64).map(|at| tile(at / 64, at % 64)).collect();
        let mut grid = Grid::default();
        for (node, region) in regions.iter().enumerate() {
            let mut shown = 0;
            grid.visit(region, |_| shown += 1);
            assert!(shown <= 1, "tile {node} was shown {shown} others");
            grid.insert(node as u32, region, shown, |node| &regions[node as usize]);
        }
    }
}
