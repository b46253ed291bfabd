//! Shards in classes: ranks whose shards are the same in every respect, so that any can stand in
//! for another.
//!
//! Plans read one shard of each class and at these numbers, which lie side by side: the shards
//! of thousands of placements do not fit the caches.

use super::{Piece, Shard};
use crate::dims::Dims;
use rustc_hash::FxHashMap;

/// Up to this many classes, comparing a shard with each beats hashing it.
const SCAN_MAX: u32 = 24;

/// The classes of a placement's shards, in the order of their first rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Classes {
    count: usize,
    shards: usize,
    /// By class: the position of its first shard, and where its ranks end. By shard: its class, and
    /// its rank. Then the ranks, class by class, ascending in each.
    words: Box<[u32]>,
}

impl Classes {
    /// The classes of `shards`, which are sorted by rank.
    pub(super) fn new(shards: &[Shard]) -> Self {
        let mut firsts: Vec<u32> = Vec::new();
        let mut of_shard: Vec<u32> = Vec::with_capacity(shards.len());
        let mut known: FxHashMap<(&Dims, &[Piece]), u32> = FxHashMap::default();
        let mut last = 0;
        for (at, shard) in (0u32..).zip(shards) {
            let key = (&shard.shape, &shard.pieces[..]);
            let count = firsts.len() as u32;
            let first = |class: u32| &shards[firsts[class as usize] as usize];
            let alike = |&class: &u32| class < count && is_alike(first(class), shard);
            // In a mesh, ranks that hold the same follow each other, or classes do, again from the
            // first after the last.
            let likely = [last, last + 1, 0].into_iter().find(alike);
            let scanned = || (0..count.min(SCAN_MAX)).find(alike);
            last = likely.or_else(scanned).or_else(|| known.get(&key).copied()).unwrap_or(count);
            if last == count {
                firsts.push(at);
                if last >= SCAN_MAX {
                    known.insert(key, last);
                }
            }
            of_shard.push(last);
        }
        Self::of(shards, firsts, &of_shard)
    }

    fn of(shards: &[Shard], mut words: Vec<u32>, of_shard: &[u32]) -> Self {
        let count = words.len();
        let mut ends = vec![0; count];
        of_shard.iter().for_each(|&class| ends[class as usize] += 1);
        // From how many each class has to where each starts; placing its ranks moves that to where
        // it ends.
        let mut end = 0;
        for each in &mut ends {
            (*each, end) = (end, end + *each);
        }
        let mut ranks = vec![0; shards.len()];
        for (shard, &class) in shards.iter().zip(of_shard) {
            let place = &mut ends[class as usize];
            ranks[*place as usize] = shard.rank;
            *place += 1;
        }
        words.reserve_exact(count + 3 * shards.len());
        words.extend(ends);
        words.extend(of_shard);
        words.extend(shards.iter().map(|shard| shard.rank));
        words.extend(ranks);
        Self { count, shards: shards.len(), words: words.into() }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// What every rank of `class` holds, of the shards that these are the classes of, or of the
    /// same shards in other units.
    pub(crate) fn shard<'s>(&self, shards: &'s [Shard], class: u32) -> &'s Shard {
        &shards[self.words[class as usize] as usize]
    }

    /// The ranks of a class, ascending.
    pub(crate) fn ranks(&self, class: u32) -> &[u32] {
        let ends = &self.words[self.count..2 * self.count];
        let start = class.checked_sub(1).map_or(0, |before| ends[before as usize]);
        let ranks = &self.words[2 * self.count + 2 * self.shards..];
        &ranks[start as usize..ends[class as usize] as usize]
    }

    fn by_shard(&self) -> (&[u32], &[u32]) {
        self.words[2 * self.count..][..2 * self.shards].split_at(self.shards)
    }

    /// Every rank that holds a shard, ascending, with its class.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        let (classes, ranks) = self.by_shard();
        ranks.iter().copied().zip(classes.iter().copied())
    }

    /// The class that `rank` is in.
    pub(crate) fn of_rank(&self, rank: u32) -> Option<u32> {
        let (classes, ranks) = self.by_shard();
        // Where every rank has a shard, it is at its own number.
        let at = match ranks.get(rank as usize) {
            Some(&there) if there == rank => rank as usize,
            _ => ranks.binary_search(&rank).ok()?,
        };
        Some(classes[at])
    }
}

fn is_alike(one: &Shard, other: &Shard) -> bool {
    one.pieces == other.pieces && one.shape == other.shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dims::NdBox;

    /// A shard that holds row `row`.
    fn shard(rank: u32, row: u64) -> Shard {
        let dims = |values: [u64; 2]| Dims::from_slice(&values).unwrap();
        let (global, local) = (NdBox { start: dims([row, 0]), size: dims([1, 4]) }, dims([0, 0]));
        Shard { rank, shape: dims([1, 4]), pieces: vec![Piece { global, local }] }
    }

    #[test]
    fn classes_are_those_of_comparing_all() {
        syncline_testing::for_seeds("classes_are_those_of_comparing_all", 60, |rng| {
            // More rows than are compared one by one, some of the time.
            let rows = *rng.pick(&[1, 3, 60]);
            let ranks: Vec<u32> = (0..rng.below(90) as u32).filter(|_| rng.one_in(2)).collect();
            let cyclic = rng.one_in(2);
            let row = |at: usize, any: u64| if cyclic { at as u64 % rows } else { any };
            let shards: Vec<Shard> = (0..)
                .zip(&ranks)
                .map(|(at, &rank)| shard(rank, row(at, rng.range(0..rows))))
                .collect();
            let classes = Classes::new(&shards);
            let mut rows_seen: Vec<u64> = Vec::new();
            for (shard, (rank, class)) in shards.iter().zip(classes.iter()) {
                let row = shard.pieces[0].global.start[0];
                if !rows_seen.contains(&row) {
                    rows_seen.push(row);
                }
                assert_eq!((rank, rows_seen[class as usize]), (shard.rank, row));
                assert_eq!(classes.of_rank(rank), Some(class));
                assert!(is_alike(classes.shard(&shards, class), shard));
            }
            assert_eq!(classes.len(), rows_seen.len());
            assert_eq!(classes.of_rank(90), None);
            for (class, row) in (0..).zip(rows_seen) {
                let holds = |shard: &&Shard| shard.pieces[0].global.start[0] == row;
                let expected: Vec<u32> =
                    shards.iter().filter(holds).map(|shard| shard.rank).collect();
                assert_eq!(classes.ranks(class), expected);
            }
        });
    }
}
