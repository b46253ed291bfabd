//! Who can supply which boxes of a tensor.
//!
//! It is refilled for one placement after the other, so that a plan of thousands of shapes
//! allocates once.

use crate::boxes::{BoxTree, first_overlap};
use crate::dims::NdBox;
use crate::layout::{Classes, Shard};

/// A box that a class of ranks holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub(super) class: u32,
    /// Position among the pieces of the class.
    pub(super) piece: u32,
}

/// All that a source placement can supply, searchable by box.
#[derive(Debug, Default)]
pub(super) struct Source {
    tiles: Vec<Tile>,
    boxes: Vec<NdBox>,
    tree: BoxTree,
    /// No element is held by two classes: then every tile that meets a box is needed, and none
    /// twice.
    disjoint: bool,
    /// Tiles that meet the box in question.
    found: Vec<u32>,
}

impl Source {
    /// Takes what `shards` have, which are in these classes.
    pub(super) fn fill(&mut self, shards: &[Shard], classes: &Classes) {
        self.tiles.clear();
        self.boxes.clear();
        for class in 0..classes.len() as u32 {
            let pieces = &classes.shard(shards, class).pieces;
            self.tiles.extend((0..pieces.len() as u32).map(|piece| Tile { class, piece }));
            self.boxes.extend(pieces.iter().map(|piece| piece.global));
        }
        self.tree.fill(&self.boxes);
        self.disjoint = first_overlap(&self.boxes, &self.tree).is_none();
    }

    /// Covers `wanted` with parts of tiles, each element once, those of class `own` first.
    ///
    /// Returns a box that nothing holds, if there is one.
    pub(super) fn cover(
        &mut self,
        wanted: &NdBox,
        own: Option<u32>,
        mut take: impl FnMut(Tile, NdBox),
    ) -> Result<(), Box<NdBox>> {
        let Self { tiles, boxes, tree, disjoint, found, .. } = self;
        found.clear();
        tree.overlapping(boxes, wanted, |tile| found.push(tile as u32));
        // In the order of the layout, whatever the tree's.
        found.sort_unstable();
        if *disjoint {
            let mut left = wanted.volume();
            for &tile in &*found {
                if let Some(part) = boxes[tile as usize].intersection(wanted) {
                    take(tiles[tile as usize], part);
                    left -= part.volume();
                }
            }
            return if left == 0 { Ok(()) } else { Err(Box::new(uncovered(wanted, boxes, found))) };
        }
        // Own tiles first, then the largest parts, so that few large boxes do most of the work.
        found.sort_by_cached_key(|&tile| {
            let share = boxes[tile as usize].intersection(wanted).map_or(0, |part| part.volume());
            (Some(tiles[tile as usize].class) != own, u64::MAX - share, tile)
        });
        let mut rest = vec![*wanted];
        for &tile in &*found {
            let mut next = Vec::with_capacity(rest.len());
            for open in &rest {
                if let Some(part) = boxes[tile as usize].intersection(open) {
                    take(tiles[tile as usize], part);
                }
                open.subtract(&boxes[tile as usize], |left| next.push(left));
            }
            rest = next;
        }
        rest.retain(|open| !open.is_empty());
        rest.first().map_or(Ok(()), |&open| Err(Box::new(open)))
    }
}

/// A part of `wanted` that none of the boxes in `found` has.
fn uncovered(wanted: &NdBox, boxes: &[NdBox], found: &[u32]) -> NdBox {
    let mut rest = vec![*wanted];
    for &tile in found {
        let mut next = Vec::new();
        rest.iter().for_each(|open| open.subtract(&boxes[tile as usize], |left| next.push(left)));
        rest = next;
    }
    rest.first().copied().unwrap_or(*wanted)
}
