//! In which order transfers fill slots, so that few of them are cut.
//!
//! Best fit: a slot takes the largest transfer that still fits whole; when none does, the smallest
//! of the pieces that are left is cut where the slot ends. Where that cuts no fewer than the order
//! given, the order given stays: it walks through memory from start to end.

use std::collections::{BTreeMap, VecDeque};

/// Puts the transfers of one pair, whose bytes in a slot are `padded`, in the order in which they
/// are packed.
pub(super) fn order(transfers: &mut [u32], padded: impl Fn(u32) -> u64, slot_bytes: u64) {
    let as_given = segments(transfers, &padded, slot_bytes);
    // A piece that is larger than a slot is cut in any order.
    let fewest: u64 = transfers.iter().map(|&at| padded(at).div_ceil(slot_bytes)).sum();
    if as_given == fewest {
        return;
    }
    let fitted = best_fit(transfers, &padded, slot_bytes);
    if segments(&fitted, &padded, slot_bytes) < as_given {
        transfers.copy_from_slice(&fitted);
    }
}

/// Segments of transfers that are laid end to end.
fn segments(transfers: &[u32], padded: impl Fn(u32) -> u64, slot_bytes: u64) -> u64 {
    let (mut start, mut count) = (0, 0);
    for &at in transfers {
        let end = start + padded(at);
        count += end.div_ceil(slot_bytes) - start / slot_bytes;
        start = end;
    }
    count
}

fn best_fit(transfers: &[u32], padded: impl Fn(u32) -> u64, slot_bytes: u64) -> Vec<u32> {
    // By size; those of one size in the order given.
    let mut waiting: BTreeMap<u64, VecDeque<u32>> = BTreeMap::new();
    for &at in transfers {
        waiting.entry(padded(at)).or_default().push_back(at);
    }
    let mut order = Vec::with_capacity(transfers.len());
    let mut end = 0;
    loop {
        let room = slot_bytes - end % slot_bytes;
        let fits = waiting.range(..=room).next_back();
        let Some((&bytes, _)) = fits.or_else(|| waiting.first_key_value()) else { return order };
        let alike = waiting.get_mut(&bytes).expect("it was just found");
        order.extend(alike.pop_front());
        if alike.is_empty() {
            waiting.remove(&bytes);
        }
        end += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(sizes: &[u64], slot_bytes: u64) -> Vec<u32> {
        let mut transfers: Vec<u32> = (0..sizes.len() as u32).collect();
        order(&mut transfers, |at| sizes[at as usize], slot_bytes);
        transfers
    }

    #[test]
    fn slots_are_filled_by_what_fits() {
        assert_eq!(ordered(&[3, 3, 1, 1], 4), [0, 2, 1, 3]);
        assert_eq!(ordered(&[64, 2944, 4160], 4096), [0, 1, 2]);
    }

    #[test]
    fn what_is_gained_nothing_by_stays_in_its_order() {
        assert_eq!(ordered(&[2, 2, 2, 2], 4), [0, 1, 2, 3]);
        assert_eq!(ordered(&[3, 3, 3], 4), [0, 1, 2]);
        assert_eq!(ordered(&[9], 4), [0]);
        assert!(ordered(&[], 4).is_empty());
    }
}
