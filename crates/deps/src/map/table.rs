//! The hash table from a view of a buffer to its node.
//!
//! Linear probing over eight-byte slots; the keys themselves lie with the nodes. A tag of the hash
//! in the slot makes it unlikely that a wrong key is ever read, and the comparison of keys
//! makes it harmless.

use syncline_tensor::{BufferId, MAX_DIMS, View};

/// What a node is found by: all of a view that has few dimensions, in one cache line.
///
/// Of a view with more than [`Key::DIMS`] dimensions the rest lies elsewhere, and is compared
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct Key {
    buffer: BufferId,
    offset: u64,
    shape: [u64; Self::DIMS],
    strides: [i64; Self::DIMS],
    form: u64,
    hash: u64,
}

impl Key {
    /// Dimensions that are part of the key itself.
    pub(super) const DIMS: usize = 2;

    pub(super) fn of(buffer: BufferId, view: &View) -> Self {
        let ([a, b, ..], [c, d, ..]) = view.stored();
        Self {
            buffer,
            offset: view.offset(),
            shape: [*a, *b],
            strides: [*c, *d],
            form: Self::form(view),
            hash: hash(buffer, view),
        }
    }

    #[inline]
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns `true` if this may be the key of `view` in `buffer`; certainly, where the view has
    /// no more dimensions than a key.
    #[inline]
    pub(super) fn is(&self, buffer: BufferId, view: &View) -> bool {
        let (shape, strides) = view.stored();
        let mut differ = (self.buffer.0 ^ buffer.0) | (self.offset ^ view.offset());
        differ |= (self.shape[0] ^ shape[0]) | (self.shape[1] ^ shape[1]);
        differ |= ((self.strides[0] ^ strides[0]) | (self.strides[1] ^ strides[1])) as u64;
        (differ | (self.form ^ Self::form(view))) == 0
    }

    #[inline]
    fn form(view: &View) -> u64 {
        (view.rank() as u64) << 8 | view.dtype() as u64
    }
}

/// Sums of products with odd constants: the multiplications do not wait for one another, unlike in
/// a chain.
///
/// Dimensions that a view does not have are stored as zero, and add nothing.
#[inline]
pub(super) fn hash(buffer: BufferId, view: &View) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (shape, strides) = view.stored();
    let mut sum = (buffer.0 ^ ODD).wrapping_mul(0xd6e8_feb8_6659_fd93);
    sum = sum.wrapping_add(view.offset().wrapping_mul(0xa076_1d64_78bd_642f));
    sum = sum.wrapping_add(Key::form(view));
    let product = |dim: usize| {
        let pair = shape[dim].wrapping_add((strides[dim] as u64).rotate_left(32));
        pair.wrapping_mul(ODDS[dim])
    };
    sum = sum.wrapping_add(product(0)).wrapping_add(product(1));
    if view.rank() > Key::DIMS {
        sum = (Key::DIMS..MAX_DIMS).fold(sum, |sum, dim| sum.wrapping_add(product(dim)));
    }
    (sum ^ (sum >> 32)).wrapping_mul(ODD)
}

const ODDS: [u64; MAX_DIMS] = [
    0xe703_7ed1_a0b4_28db,
    0x8ebc_6af0_9c88_c6e3,
    0x5899_65cc_7537_4cc3,
    0x1d8e_4e27_c47d_124f,
    0xeb44_acca_b455_d165,
    0x9fb2_1c65_1e98_df25,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
];

const VACANT: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The upper half of the hash: its first bits give the slot's place.
    tag: u32,
    node: u32,
}

/// Node numbers by the hash of their keys.
#[derive(Debug)]
pub(super) struct Table {
    // A power of two, at most half full.
    slots: Vec<Slot>,
    /// From a tag to a place.
    shift: u32,
    len: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self::with_bits(6)
    }
}

/// Returns the part of a hash that a slot keeps.
#[inline]
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl Table {
    /// There are at most half as many nodes as there are tags.
    fn with_bits(bits: u32) -> Self {
        assert!(bits <= u32::BITS, "a table of 2^{bits} slots");
        Self {
            slots: vec![Slot { tag: 0, node: VACANT }; 1 << bits],
            shift: u32::BITS - bits,
            len: 0,
        }
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        (tag >> self.shift) as usize
    }

    /// Returns the node under `hash` that `is_it` is true of.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let tag = tag(hash);
        let mut at = self.home(tag);
        loop {
            let slot = self.slots[at & mask];
            if slot.node == VACANT {
                return None;
            }
            if slot.tag == tag && is_it(slot.node) {
                return Some(slot.node);
            }
            at += 1;
        }
    }

    /// Adds a node that is not in the table.
    pub(super) fn insert(&mut self, hash: u64, node: u32) {
        if 2 * (self.len + 1) > self.slots.len() {
            let mut larger = Self::with_bits(u32::BITS - self.shift + 1);
            for &slot in self.slots.iter().filter(|slot| slot.node != VACANT) {
                larger.place(slot);
            }
            *self = larger;
        }
        self.place(Slot { tag: tag(hash), node });
    }

    fn place(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(slot.tag);
        while self.slots[at].node != VACANT {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
        self.len += 1;
    }

    /// Takes out a node that is in the table, moving back what had to pass its slot.
    pub(super) fn remove(&mut self, hash: u64, node: u32) {
        let mask = self.slots.len() - 1;
        let mut hole = self.home(tag(hash));
        while self.slots[hole].node != node {
            assert_ne!(self.slots[hole].node, VACANT, "node {node} is not in the table");
            hole = (hole + 1) & mask;
        }
        let mut at = (hole + 1) & mask;
        while self.slots[at].node != VACANT {
            let home = self.home(self.slots[at].tag);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.slots[hole].node = VACANT;
        self.len -= 1;
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
    fn the_table_agrees_with_a_map_however_hashes_collide() {
        for_seeds("the_table_agrees_with_a_map_however_hashes_collide", 30, |rng| {
            let spread = *rng.pick(&[2u64, 20, 1 << 20]);
            let hash_of =
                |node: u32| (u64::from(node) % spread).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (mut table, mut model) = (Table::default(), HashMap::new());
            for _ in 0..600 {
                let node = rng.range(0..300) as u32;
                let hash = hash_of(node);
                match model.remove(&node) {
                    Some(()) => table.remove(hash, node),
                    None => {
                        table.insert(hash, node);
                        model.insert(node, ());
                    }
                }
                let probe = rng.range(0..300) as u32;
                let found = table.find(hash_of(probe), |node| node == probe);
                assert_eq!(found.is_some(), model.contains_key(&probe));
            }
        });
    }

    #[test]
    fn views_that_differ_in_one_number_hash_apart() {
        use syncline_tensor::Dtype::{F32, I32};
        let views = [
            View::strided(F32, 0, &[4, 8], &[64, 4]),
            View::strided(F32, 0, &[8, 4], &[64, 4]),
            View::strided(F32, 0, &[4, 8], &[4, 64]),
            View::strided(F32, 4, &[4, 8], &[64, 4]),
            View::strided(I32, 0, &[4, 8], &[64, 4]),
            View::strided(F32, 0, &[4, 8, 1], &[64, 4, 0]),
        ]
        .map(Result::unwrap);
        let mut hashes = views.map(|view| hash(BufferId(1), &view)).to_vec();
        hashes.push(hash(BufferId(2), &views[0]));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), views.len() + 1);
        let key = Key::of(BufferId(1), &views[0]);
        assert!(key.is(BufferId(1), &views[0]) && !key.is(BufferId(2), &views[0]));
        assert!(views[1..].iter().all(|view| !key.is(BufferId(1), view)));
    }
}
