//! Changes between two versions of a message, as runs of units.
//!
//! A unit is an element as it is on the way. For each run of changed units there is a number, whose
//! lowest bit says whether the run has more than one unit and whose other bits count the unchanged
//! units before it; for longer runs a second number, the units of the run less two; then the units
//! themselves. Numbers have seven bits a byte, the lowest first, and the highest bit of a byte says
//! that another follows. A scattered change of a 16-bit element takes four to five bytes.

/// What comparing two versions has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::execute) struct Compared {
    /// Bytes of the units that have changed.
    pub changed_bytes: u64,
    /// Whether the encoding is no shorter than the message: what was written of it is useless.
    pub is_dense: bool,
}

/// Appends the changes from `old` to `new` to `encoded`, and makes `old` the same as `new`.
///
/// # Panics
/// If the two differ in length, or `unit_bytes` is none of 1, 2, 4 and 8 or does not divide it.
pub(super) fn take_changes(
    new: &[u8],
    old: &mut [u8],
    unit_bytes: usize,
    encoded: &mut Vec<u8>,
) -> Compared {
    assert_eq!(new.len(), old.len());
    assert!(new.len().is_multiple_of(unit_bytes), "{} in units of {unit_bytes}", new.len());
    match unit_bytes {
        1 => take::<1>(new, old, encoded),
        2 => take::<2>(new, old, encoded),
        4 => take::<4>(new, old, encoded),
        8 => take::<8>(new, old, encoded),
        _ => panic!("units of {unit_bytes} bytes"),
    }
}

/// Bytes that are compared at once while nothing differs.
const BLOCK_BYTES: usize = 128;

fn take<const UNIT: usize>(new: &[u8], old: &mut [u8], encoded: &mut Vec<u8>) -> Compared {
    let (start, limit) = (encoded.len(), new.len());
    let units = new.as_chunks::<UNIT>().0;
    let (mut at, mut written, mut changed) = (0, 0, 0);
    let mut is_dense = limit == 0;
    while let Some(first) = next_change::<UNIT>(new, old, at) {
        let known = old.as_chunks_mut::<UNIT>().0;
        let run = units[first..].iter().zip(&mut known[first..]);
        let mut count = 0;
        for (unit, known) in run.take_while(|(unit, known)| *unit != &**known) {
            *known = *unit;
            count += 1;
        }
        changed += count;
        if !is_dense {
            put(encoded, ((first - written) as u64) << 1 | u64::from(count > 1));
            if count > 1 {
                put(encoded, count as u64 - 2);
            }
            encoded.extend_from_slice(units[first..first + count].as_flattened());
            is_dense = encoded.len() - start >= limit;
        }
        (at, written) = (first + count, first + count);
    }
    Compared { changed_bytes: (changed * UNIT) as u64, is_dense }
}

/// Returns the first unit from `from` on that differs.
fn next_change<const UNIT: usize>(new: &[u8], old: &[u8], from: usize) -> Option<usize> {
    let mut at = from * UNIT;
    while at < new.len() {
        let end = (at + BLOCK_BYTES).min(new.len());
        let (new, old) = (&new[at..end], &old[at..end]);
        if new != old {
            let (new, old) = (new.as_chunks::<UNIT>().0, old.as_chunks::<UNIT>().0);
            let found = new.iter().zip(old).position(|(new, old)| new != old);
            return found.map(|found| at / UNIT + found);
        }
        at = end;
    }
    None
}

fn put(encoded: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        encoded.push(number as u8 | 0x80);
        number >>= 7;
    }
    encoded.push(number as u8);
}

/// Reads a number. Returns `None` if there is no whole one.
fn get(encoded: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = encoded.split_first()?;
        *encoded = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Makes the changes in `target`. Returns the bytes changed.
///
/// Returns `None`, with part of the changes made, where they are not those of a message of this
/// length: another process has written them.
pub(super) fn apply(mut encoded: &[u8], unit_bytes: usize, target: &mut [u8]) -> Option<u64> {
    let (mut rest, mut changed) = (target, 0u64);
    while !encoded.is_empty() {
        let word = get(&mut encoded)?;
        let count = if word & 1 == 0 { 1 } else { get(&mut encoded)?.checked_add(2)? };
        let bytes = |units: u64| usize::try_from(units).ok()?.checked_mul(unit_bytes);
        let (skipped, run) = (bytes(word >> 1)?, bytes(count)?);
        let (units, behind) = encoded.split_at_checked(run)?;
        encoded = behind;
        let (place, others) = rest.get_mut(skipped..)?.split_at_mut_checked(run)?;
        place.copy_from_slice(units);
        rest = others;
        changed += run as u64;
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use syncline_testing::{Rng, for_seeds};

    use super::*;

    /// A version of `old` in which about one of `one_in` units differs.
    fn changed(rng: &mut Rng, old: &[u8], unit_bytes: usize, one_in: u64) -> Vec<u8> {
        let mut new = old.to_vec();
        for unit in new.chunks_exact_mut(unit_bytes) {
            if one_in > 0 && rng.one_in(one_in) {
                unit[rng.below(unit_bytes)] ^= 1 << rng.below(8);
            }
        }
        new
    }

    #[test]
    fn changes_lead_from_one_version_to_the_next() {
        for_seeds("changes_lead_from_one_version_to_the_next", 400, |rng| {
            let unit_bytes = *rng.pick(&[1, 2, 4, 8]);
            let units = rng.below(3_000);
            let first: Vec<u8> = (0..units * unit_bytes).map(|_| rng.next_u64() as u8).collect();
            let one_in = *rng.pick(&[0, 1, 2, 30, 500, 5_000]);
            let new = changed(rng, &first, unit_bytes, one_in);
            let (mut old, mut encoded) = (first.clone(), Vec::new());
            let compared = take_changes(&new, &mut old, unit_bytes, &mut encoded);
            assert!(old == new);
            let pairs = first.chunks_exact(unit_bytes).zip(new.chunks_exact(unit_bytes));
            let count = pairs.filter(|(old, new)| old != new).count();
            assert_eq!(compared.changed_bytes, (count * unit_bytes) as u64);
            let mut got = first.clone();
            if !compared.is_dense {
                assert!(encoded.len() < new.len());
                let applied = apply(&encoded, unit_bytes, &mut got);
                assert!(applied == Some(compared.changed_bytes) && got == new);
            }
        });
    }

    #[test]
    fn a_scattered_change_of_two_bytes_takes_less_than_five() {
        let mut rng = Rng::new(7);
        let first = vec![0; 1 << 20];
        let new = changed(&mut rng, &first, 2, 5_000);
        let (mut old, mut encoded) = (first, Vec::new());
        let compared = take_changes(&new, &mut old, 2, &mut encoded);
        let changes = compared.changed_bytes as usize / 2;
        assert!(changes > 50 && encoded.len() < 5 * changes, "{} for {changes}", encoded.len());
    }

    #[test]
    fn changes_that_mean_nothing_are_refused() {
        for_seeds("changes_that_mean_nothing_are_refused", 2_000, |rng| {
            let encoded: Vec<u8> = (0..rng.below(40)).map(|_| rng.next_u64() as u8).collect();
            let (unit_bytes, mut target) = (*rng.pick(&[1, 2, 4, 8]), vec![0; 64]);
            // It does not panic, and changes no more than there is.
            assert!(apply(&encoded, unit_bytes, &mut target).is_none_or(|bytes| bytes <= 64));
        });
        let huge = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0];
        assert_eq!(apply(&huge, 8, &mut [0; 64]), None);
    }
}
