//! Sets of boxes: finding overlaps without comparing all pairs, and joining neighbours.

use crate::dims::{Dims, NdBox};

/// Boxes per leaf of a [`BoxTree`]: scanning a few is cheaper than descending further.
const LEAF: usize = 8;

/// A bounding-volume tree over boxes: finds those a box meets, in O(log n + found) for tilings.
#[derive(Clone, Debug, Default)]
pub(crate) struct BoxTree {
    /// Positions in the caller's list, permuted so that each node has a range of them.
    order: Vec<u32>,
    /// None where there are no more boxes than a leaf has: those are scanned as they are.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    bounds: NdBox,
    first: u32,
    last: u32,
    /// The right child; the left one follows its parent. 0 for a leaf.
    right: u32,
}

impl BoxTree {
    /// The tree of `boxes`; empty ones are never found.
    pub(crate) fn new(boxes: &[NdBox]) -> Self {
        let mut tree = Self::default();
        tree.fill(boxes);
        tree
    }

    /// Makes it the tree of `boxes`, in the memory that it has.
    pub(crate) fn fill(&mut self, boxes: &[NdBox]) {
        self.order.clear();
        self.nodes.clear();
        if boxes.len() <= LEAF {
            return;
        }
        let full = |index: &u32| !boxes[*index as usize].is_empty();
        self.order.extend((0..boxes.len() as u32).filter(full));
        if !self.order.is_empty() {
            self.grow(boxes, 0, self.order.len());
        }
    }

    fn grow(&mut self, boxes: &[NdBox], first: usize, last: usize) -> u32 {
        let bounds = bounds(boxes, &self.order[first..last]);
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { bounds, first: first as u32, last: last as u32, right: 0 });
        if last - first > LEAF {
            // Halve along the dimension with the most different starts: a grid is cut along its
            // lines.
            let dim = widest(boxes, &self.order[first..last]);
            self.order[first..last].sort_unstable_by_key(|&index| {
                let start = &boxes[index as usize].start;
                (start.get(dim).copied(), index)
            });
            let middle = first + (last - first) / 2;
            self.grow(boxes, first, middle);
            self.nodes[node as usize].right = self.grow(boxes, middle, last);
        }
        node
    }

    /// Calls `found` with the position of every box that shares an element with `query`.
    pub(crate) fn overlapping(&self, boxes: &[NdBox], query: &NdBox, mut found: impl FnMut(usize)) {
        if boxes.len() <= LEAF {
            let meeting = boxes.iter().enumerate().filter(|(_, one)| one.overlaps(query));
            return meeting.for_each(|(index, _)| found(index));
        }
        if self.nodes.is_empty() || query.is_empty() {
            return;
        }
        // Depth is at most log2 of the number of boxes, which fits 32 bits.
        let mut stack = [0u32; 40];
        let mut depth = 1;
        while depth > 0 {
            depth -= 1;
            let at = stack[depth];
            let node = &self.nodes[at as usize];
            if !node.bounds.overlaps(query) {
                continue;
            }
            if node.right == 0 {
                for &index in &self.order[node.first as usize..node.last as usize] {
                    if boxes[index as usize].overlaps(query) {
                        found(index as usize);
                    }
                }
            } else {
                stack[depth] = node.right;
                stack[depth + 1] = at + 1;
                depth += 2;
            }
        }
    }
}

fn bounds(boxes: &[NdBox], order: &[u32]) -> NdBox {
    let mut bounds = boxes[order[0] as usize];
    for &index in order {
        let one = &boxes[index as usize];
        for dim in 0..bounds.start.len() {
            let stop = bounds.stop(dim).max(one.stop(dim));
            bounds.start[dim] = bounds.start[dim].min(one.start[dim]);
            bounds.size[dim] = stop - bounds.start[dim];
        }
    }
    bounds
}

fn widest(boxes: &[NdBox], order: &[u32]) -> usize {
    let first = &boxes[order[0] as usize].start;
    let moved = |dim: &usize| {
        order.iter().filter(|&&index| boxes[index as usize].start[*dim] != first[*dim]).count()
    };
    (0..first.len()).max_by_key(moved).unwrap_or(0)
}

/// Positions of two boxes that share an element, if any do.
pub(crate) fn first_overlap(boxes: &[NdBox], tree: &BoxTree) -> Option<(usize, usize)> {
    if boxes.len() < 2 {
        return None;
    }
    for (index, one) in boxes.iter().enumerate() {
        let mut other = None;
        tree.overlapping(boxes, one, |found| {
            if found != index {
                other = Some(other.map_or(found, |least: usize| least.min(found)));
            }
        });
        if let Some(other) = other {
            return Some((index.min(other), index.max(other)));
        }
    }
    None
}

/// Joins items whose boxes are neighbours in each of `N` coordinate systems at once, until none
/// are.
///
/// An item's box has one `size` and a start in every system; two join along a dimension when all
/// else is equal and the second starts where the first stops, in all systems.
pub(crate) fn merge_boxes<T, const N: usize>(
    items: &mut Vec<T>,
    size: impl Fn(&T) -> Dims,
    starts: impl Fn(&T) -> [Dims; N],
    mut resize: impl FnMut(&mut T, Dims),
) {
    // Each pass over all dimensions either removes an item or is the last.
    loop {
        let before = items.len();
        if before < 2 {
            return;
        }
        let dims = size(&items[0]).len();
        for dim in (0..dims).rev() {
            let across = |item: &T| {
                let (mut size, mut starts) = (size(item), starts(item));
                size[dim] = 0;
                let along = starts[0][dim];
                for start in &mut starts {
                    start[dim] = 0;
                }
                (starts, size, along)
            };
            items.sort_by_cached_key(&across);
            let mut joined: Vec<T> = Vec::with_capacity(items.len());
            for item in items.drain(..) {
                if let Some(last) = joined.last_mut()
                    && follows(size(last), starts(last), size(&item), starts(&item), dim)
                {
                    let mut sum = size(last);
                    sum[dim] += size(&item)[dim];
                    resize(last, sum);
                } else {
                    joined.push(item);
                }
            }
            *items = joined;
        }
        if items.len() == before {
            // Back to the order of the first system: what was given in order stays in order.
            items.sort_by_key(|item| starts(item));
            return;
        }
    }
}

fn follows<const N: usize>(
    size: Dims,
    starts: [Dims; N],
    next_size: Dims,
    next_starts: [Dims; N],
    dim: usize,
) -> bool {
    (0..size.len()).all(|at| {
        let step = if at == dim { size[at] } else { 0 };
        let same_size = at == dim || size[at] == next_size[at];
        same_size && (0..N).all(|system| starts[system][at] + step == next_starts[system][at])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(start: &[u64], size: &[u64]) -> NdBox {
        NdBox { start: Dims::from_slice(start).unwrap(), size: Dims::from_slice(size).unwrap() }
    }

    #[test]
    fn the_tree_finds_what_a_scan_finds() {
        syncline_testing::for_seeds("the_tree_finds_what_a_scan_finds", 60, |rng| {
            let count = rng.below(60);
            let mut any = || {
                let start: Vec<u64> = (0..3).map(|_| rng.range(0..20)).collect();
                let size: Vec<u64> = (0..3).map(|_| rng.range(0..9)).collect();
                of(&start, &size)
            };
            let boxes: Vec<NdBox> = (0..count).map(|_| any()).collect();
            let query = any();
            let mut found = Vec::new();
            BoxTree::new(&boxes).overlapping(&boxes, &query, |index| found.push(index));
            found.sort_unstable();
            let meets = |index: &usize| boxes[*index].intersection(&query).is_some();
            assert_eq!(found, (0..count).filter(meets).collect::<Vec<_>>());
            let pair = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
            let overlaps =
                pair.into_iter().any(|(a, b)| boxes[a].intersection(&boxes[b]).is_some());
            assert_eq!(first_overlap(&boxes, &BoxTree::new(&boxes)).is_some(), overlaps);
        });
    }

    #[test]
    fn a_shuffled_grid_merges_to_one_box() {
        let mut tiles: Vec<NdBox> =
            (0..12).map(|tile| of(&[tile / 4 * 2, tile % 4 * 5], &[2, 5])).collect();
        syncline_testing::Rng::new(3).shuffle(&mut tiles);
        merge_boxes(
            &mut tiles,
            |tile| tile.size,
            |tile| [tile.start],
            |tile, size| tile.size = size,
        );
        assert_eq!(tiles, [of(&[0, 0], &[6, 20])]);
    }
}
