//! How much moves between every two PEs.

use std::collections::HashMap;

/// Rounds `bytes` up to the alignment of pieces in a slot.
pub(crate) const fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(crate::schedule::SLOT_ALIGN)
}

/// Up to this many PEs a square table is smaller than what a map would need.
const TABLE_WORLD_MAX: u32 = 2048;

/// What one PE sends to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairTraffic {
    /// Sender.
    pub src: u32,
    /// Receiver.
    pub dst: u32,
    /// Bytes of all transfers.
    pub bytes: u64,
    /// Bytes of all transfers with each padded to its place in a slot.
    pub padded_bytes: u64,
}

/// What moves between every two different PEs, by sender, then receiver; pairs without traffic are
/// absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pairs: Vec<PairTraffic>,
}

impl Traffic {
    /// The pairs that exchange something.
    pub fn pairs(&self) -> &[PairTraffic] {
        &self.pairs
    }

    /// Bytes of all pairs.
    pub fn bytes(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.bytes).sum()
    }

    /// Bytes that each of `world` PEs sends, and that each receives.
    pub fn by_rank(&self, world: u32) -> (Vec<u64>, Vec<u64>) {
        let (mut sent, mut received) = (vec![0; world as usize], vec![0; world as usize]);
        for pair in &self.pairs {
            sent[pair.src as usize] += pair.bytes;
            received[pair.dst as usize] += pair.bytes;
        }
        (sent, received)
    }
}

/// Sums traffic up.
#[derive(Debug)]
pub(crate) enum TrafficCounter {
    Table { world: u32, sums: Vec<(u64, u64)> },
    Map(HashMap<(u32, u32), (u64, u64)>),
}

impl TrafficCounter {
    pub(crate) fn new(world: u32) -> Self {
        if world > TABLE_WORLD_MAX {
            return Self::Map(HashMap::new());
        }
        Self::Table { world, sums: vec![(0, 0); world as usize * world as usize] }
    }

    pub(crate) fn add(&mut self, src: u32, dst: u32, bytes: u64, padded_bytes: u64) {
        let sum = match self {
            Self::Table { world, sums } => &mut sums[(src * *world + dst) as usize],
            Self::Map(sums) => sums.entry((src, dst)).or_default(),
        };
        sum.0 += bytes;
        sum.1 += padded_bytes;
    }

    pub(crate) fn finish(self) -> Traffic {
        let pair = |src, dst, (bytes, padded_bytes)| PairTraffic { src, dst, bytes, padded_bytes };
        let mut pairs: Vec<PairTraffic> = match self {
            Self::Table { world, sums } => (0u32..)
                .zip(sums)
                .filter(|(_, sums)| sums.1 > 0)
                .map(|(at, sums)| pair(at / world, at % world, sums))
                .collect(),
            Self::Map(sums) => {
                sums.into_iter().map(|((src, dst), sums)| pair(src, dst, sums)).collect()
            }
        };
        pairs.sort_unstable_by_key(|pair| (pair.src, pair.dst));
        Traffic { pairs }
    }
}
