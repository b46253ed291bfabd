//! Blocks: the bytes of a buffer, sorted into classes that every task treats alike.
//!
//! Two bytes are in one block if every place used of the buffer has both or neither. Every place is
//! then a set of whole blocks, and the state of one byte of a block is the state of all. A matrix
//! used by tiles has one block a tile, however the tiles lie in memory.

use super::runs::{ByteRun, merge, runs_of};
use crate::graph::PlaceRecord;

/// The blocks of one buffer.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Blocks of each place, in the order in which the places were given.
    by_place: Vec<Vec<u32>>,
    /// The bytes of each block.
    runs: Vec<Vec<ByteRun>>,
}

impl Blocks {
    /// The blocks of a buffer that is used at `places`.
    pub(crate) fn new<'a>(places: impl Iterator<Item = &'a PlaceRecord>) -> Self {
        let place_runs: Vec<Vec<ByteRun>> = places.map(|place| runs_of(&place.view)).collect();
        let atoms = Atoms::new(&place_runs);
        let classes = atoms.classes(&place_runs);
        let count = classes.iter().copied().max().unwrap_or(0) as usize;
        let mut runs: Vec<Vec<ByteRun>> = vec![Vec::new(); count];
        for (atom, &class) in classes.iter().enumerate().filter(|(_, class)| **class > 0) {
            runs[class as usize - 1].push(atoms.run(atom));
        }
        runs.iter_mut().for_each(merge);
        let by_place = place_runs
            .iter()
            .map(|place| {
                let mut blocks: Vec<u32> = (place.iter())
                    .flat_map(|run| atoms.range(run))
                    .map(|atom| classes[atom] - 1)
                    .collect();
                blocks.sort_unstable();
                blocks.dedup();
                blocks
            })
            .collect();
        Self { by_place, runs }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// The blocks of place number `place`.
    pub(crate) fn of_place(&self, place: usize) -> &[u32] {
        &self.by_place[place]
    }

    /// The bytes of `block`.
    pub(crate) fn runs(&self, block: u32) -> &[ByteRun] {
        &self.runs[block as usize]
    }
}

/// The pieces between all the ends of runs.
struct Atoms {
    bounds: Vec<u64>,
}

impl Atoms {
    fn new(place_runs: &[Vec<ByteRun>]) -> Self {
        let mut bounds: Vec<u64> =
            place_runs.iter().flatten().flat_map(|run| [run.start, run.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        Self { bounds }
    }

    fn len(&self) -> usize {
        self.bounds.len().saturating_sub(1)
    }

    fn run(&self, atom: usize) -> ByteRun {
        ByteRun { start: self.bounds[atom], end: self.bounds[atom + 1] }
    }

    fn range(&self, run: &ByteRun) -> std::ops::Range<usize> {
        let at = |place| self.bounds.binary_search(&place).expect("every end is a bound");
        at(run.start)..at(run.end)
    }

    /// Splits the atoms into classes, place by place; class 0 holds those in no place.
    fn classes(&self, place_runs: &[Vec<ByteRun>]) -> Vec<u32> {
        let mut classes = vec![0u32; self.len()];
        let mut next = 1u32;
        // For each class, what its members inside the current place become; stamped, so that it
        // need not be cleared.
        let mut split: Vec<(u32, u32)> = vec![(u32::MAX, 0)];
        for (stamp, place) in place_runs.iter().enumerate() {
            for atom in place.iter().flat_map(|run| self.range(run)) {
                let class = &mut classes[atom];
                let entry = &mut split[*class as usize];
                if entry.0 != stamp as u32 {
                    *entry = (stamp as u32, next);
                    next += 1;
                    *class = entry.1;
                    split.push((u32::MAX, 0));
                } else {
                    *class = entry.1;
                }
            }
        }
        // Ids above the number of atoms are possible where classes were renamed whole; make them
        // dense again.
        let mut dense = vec![u32::MAX; next as usize];
        dense[0] = 0;
        let mut count = 1;
        for class in &mut classes {
            let entry = &mut dense[*class as usize];
            if *entry == u32::MAX {
                *entry = count;
                count += 1;
            }
            *class = *entry;
        }
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_tensor::View;
    use syncline_testing::for_seeds;

    fn place(start: u64, bytes: u64) -> PlaceRecord {
        PlaceRecord { buffer: 0, view: View::bytes_at(start, bytes).unwrap() }
    }

    #[test]
    fn tiles_are_one_block_each() {
        let whole = View::contiguous(syncline_tensor::Dtype::F32, &[8, 8]).unwrap();
        let tiles: Vec<PlaceRecord> = (0..4)
            .map(|tile| {
                let view = whole.split(0, 2, tile / 2).unwrap().split(1, 2, tile % 2).unwrap();
                PlaceRecord { buffer: 0, view }
            })
            .collect();
        let blocks = Blocks::new(tiles.iter());
        assert_eq!(blocks.len(), 4);
        assert_eq!(blocks.runs(blocks.of_place(3)[0]).len(), 4);
    }

    #[test]
    fn places_are_exactly_their_blocks() {
        for_seeds("places_are_exactly_their_blocks", 500, |rng| {
            let places: Vec<PlaceRecord> =
                (0..rng.range(1..8)).map(|_| place(rng.range(0..40), rng.range(0..20))).collect();
            let blocks = Blocks::new(places.iter());
            let mut owner = [u32::MAX; 64];
            for block in 0..blocks.len() as u32 {
                for byte in blocks.runs(block).iter().flat_map(|run| run.start..run.end) {
                    assert_eq!(owner[byte as usize], u32::MAX, "blocks are disjoint");
                    owner[byte as usize] = block;
                }
            }
            let signature = |byte: u64| -> Vec<bool> {
                (places.iter())
                    .map(|place| place.view.span().is_some_and(|(a, b)| (a..b).contains(&byte)))
                    .collect()
            };
            for byte in 0..64 {
                for other in 0..64 {
                    let alike = signature(byte) == signature(other);
                    assert_eq!(owner[byte as usize] == owner[other as usize], alike);
                }
            }
            for (at, place) in places.iter().enumerate() {
                let bytes: u64 = (blocks.of_place(at).iter())
                    .flat_map(|&block| blocks.runs(block))
                    .map(|run| run.end - run.start)
                    .sum();
                assert_eq!(bytes, place.view.bytes());
            }
        });
    }
}
