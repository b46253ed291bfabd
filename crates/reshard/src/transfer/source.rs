//! Who can supply which boxes of a tensor: source shards grouped by what they hold.

use crate::boxes::{BoxTree, first_overlap};
use crate::dims::{Dims, NdBox};
use crate::hash::FastMap;
use crate::layout::{Piece, Placement, Shard};

/// Ranks whose shards are the same in every respect: any of them can stand in for another.
#[derive(Debug)]
pub(super) struct ShardClass<'a> {
    pub(super) shape: Dims,
    pub(super) pieces: &'a [Piece],
    /// Ascending.
    pub(super) ranks: Vec<u32>,
}

/// Groups the shards of `placement`; classes are in the order of their first rank.
pub(super) fn shard_classes(placement: &Placement) -> Vec<ShardClass<'_>> {
    let mut classes: Vec<ShardClass<'_>> = Vec::new();
    let mut known: FastMap<(&Dims, &[Piece]), usize> = FastMap::default();
    for Shard { rank, shape, pieces } in placement.shards() {
        // The first classes are found by looking at each, the others by their hash.
        let first = &classes[..classes.len().min(SCAN_MAX)];
        let same = |class: &ShardClass<'_>| class.pieces == pieces && class.shape == *shape;
        let found = first.iter().position(same).or_else(|| match classes.len() > SCAN_MAX {
            true => known.get(&(shape, &pieces[..])).copied(),
            false => None,
        });
        let class = found.unwrap_or_else(|| {
            classes.push(ShardClass { shape: *shape, pieces, ranks: Vec::new() });
            classes.len() - 1
        });
        classes[class].ranks.push(*rank);
        if found.is_none() && class >= SCAN_MAX {
            known.insert((shape, pieces), class);
        }
    }
    classes
}

/// Up to this many classes, comparing a shard with each beats hashing it.
const SCAN_MAX: usize = 24;

/// A box that a class of ranks holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub(super) class: u32,
    pub(super) piece: Piece,
}

/// All that a source placement can supply, searchable by box.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) classes: Vec<ShardClass<'a>>,
    tiles: Vec<Tile>,
    boxes: Vec<NdBox>,
    tree: BoxTree,
    /// By rank.
    class_of: Vec<(u32, u32)>,
    /// No element is held by two classes: then every tile that meets a box is needed, and none twice.
    disjoint: bool,
}

impl<'a> Source<'a> {
    pub(super) fn new(placement: &'a Placement) -> Self {
        let classes = shard_classes(placement);
        let tiles: Vec<Tile> = (0u32..)
            .zip(&classes)
            .flat_map(|(class, held)| held.pieces.iter().map(move |&piece| Tile { class, piece }))
            .collect();
        let boxes: Vec<NdBox> = tiles.iter().map(|tile| tile.piece.global).collect();
        let tree = BoxTree::new(&boxes);
        let disjoint = first_overlap(&boxes, &tree).is_none();
        let ranks = |(class, held): (u32, &ShardClass<'_>)| {
            held.ranks.iter().map(move |&rank| (rank, class)).collect::<Vec<_>>()
        };
        let mut class_of: Vec<(u32, u32)> = (0u32..).zip(&classes).flat_map(ranks).collect();
        class_of.sort_unstable();
        Self { classes, tiles, boxes, tree, class_of, disjoint }
    }

    /// The class that `rank` is in.
    pub(super) fn class_of(&self, rank: u32) -> Option<u32> {
        let at = self.class_of.binary_search_by_key(&rank, |(rank, _)| *rank).ok()?;
        Some(self.class_of[at].1)
    }

    /// Covers `wanted` with parts of tiles, each element once, those of class `own` first.
    ///
    /// Returns a box that nothing holds, if there is one.
    pub(super) fn cover(
        &self,
        wanted: &NdBox,
        own: Option<u32>,
        mut take: impl FnMut(&Tile, NdBox),
    ) -> Result<(), Box<NdBox>> {
        let mut found = Vec::new();
        self.tree.overlapping(&self.boxes, wanted, |tile| found.push(tile));
        // In the order of the layout, whatever the tree's.
        found.sort_unstable();
        if self.disjoint {
            let mut left = wanted.volume();
            for &tile in &found {
                if let Some(part) = self.boxes[tile].intersection(wanted) {
                    take(&self.tiles[tile], part);
                    left -= part.volume();
                }
            }
            return if left == 0 { Ok(()) } else { Err(Box::new(self.uncovered(wanted, &found))) };
        }
        // Own tiles first, then the largest parts, so that few large boxes do most of the work.
        found.sort_by_cached_key(|&tile| {
            let share = self.boxes[tile].intersection(wanted).map_or(0, |part| part.volume());
            (Some(self.tiles[tile].class) != own, u64::MAX - share, tile)
        });
        let mut rest = vec![*wanted];
        for &tile in &found {
            let mut next = Vec::with_capacity(rest.len());
            for open in &rest {
                if let Some(part) = self.boxes[tile].intersection(open) {
                    take(&self.tiles[tile], part);
                }
                open.subtract(&self.boxes[tile], |left| next.push(left));
            }
            rest = next;
        }
        rest.retain(|open| !open.is_empty());
        rest.first().map_or(Ok(()), |&open| Err(Box::new(open)))
    }

    fn uncovered(&self, wanted: &NdBox, found: &[usize]) -> NdBox {
        let mut rest = vec![*wanted];
        for &tile in found {
            let mut next = Vec::new();
            rest.iter().for_each(|open| open.subtract(&self.boxes[tile], |left| next.push(left)));
            rest = next;
        }
        rest.first().copied().unwrap_or(*wanted)
    }
}
