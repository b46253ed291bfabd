//! Choosing among replicas: the one that has sent the fewest bytes so far.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Up to this many replicas a scan beats a heap.
const SCAN_MAX: usize = 16;

/// Bytes that every rank sends, and the sets of ranks that choices are made among.
///
/// Heaps hold stale loads: loads only grow, so an entry that is up to date when it comes out on top
/// is the least.
#[derive(Debug)]
pub(super) struct Balance<'a> {
    sent: Vec<u64>,
    sets: &'a [Vec<u32>],
    heaps: Vec<BinaryHeap<Reverse<(u64, u32)>>>,
}

impl<'a> Balance<'a> {
    pub(super) fn new(world: u32, sets: &'a [Vec<u32>]) -> Self {
        let heap = |set: &Vec<u32>| {
            let ranks: &[u32] = if set.len() > SCAN_MAX { set } else { &[] };
            ranks.iter().map(|&rank| Reverse((0, rank))).collect()
        };
        Self { sent: vec![0; world as usize], sets, heaps: sets.iter().map(heap).collect() }
    }

    /// Counts bytes that `rank` has to send whatever is chosen.
    pub(super) fn add(&mut self, rank: u32, bytes: u64) {
        self.sent[rank as usize] += bytes;
    }

    /// The rank of the set that has sent least, the lowest of several; it is given `bytes` more.
    pub(super) fn choose(&mut self, set: u32, bytes: u64) -> u32 {
        let ranks = &self.sets[set as usize];
        let chosen = if ranks.len() <= SCAN_MAX {
            let least = ranks.iter().min_by_key(|&&rank| (self.sent[rank as usize], rank));
            *least.expect("a set of replicas has members")
        } else {
            self.top(set)
        };
        self.add(chosen, bytes);
        chosen
    }

    fn top(&mut self, set: u32) -> u32 {
        let heap = &mut self.heaps[set as usize];
        loop {
            let mut top = heap.peek_mut().expect("a set of replicas has members");
            let Reverse((load, rank)) = *top;
            let now = self.sent[rank as usize];
            if load == now {
                return rank;
            }
            *top = Reverse((now, rank));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_chooses_what_the_scan_would() {
        syncline_testing::for_seeds("the_heap_chooses_what_the_scan_would", 20, |rng| {
            let sets = [(0..40).collect::<Vec<u32>>(), (10..30).collect()];
            let mut balance = Balance::new(40, &sets);
            for _ in 0..400 {
                let set = rng.below(2);
                let sent = &balance.sent;
                let least = sets[set].iter().min_by_key(|&&rank| (sent[rank as usize], rank));
                let least = *least.unwrap();
                assert_eq!(balance.choose(set as u32, rng.range(0..1000)), least);
                balance.add(rng.below(40) as u32, rng.range(0..500));
            }
        });
    }
}
