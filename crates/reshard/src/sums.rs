//! Where the checksums of a message travel: the first segment's in its header, the others behind
//! its last byte.
//!
//! So the smallest slot still takes a segment, a message of one segment is as long as without
//! checksums, and transports know nothing of it.

use syncline_layout::SUM_BYTES;
use syncline_transport::Header;

/// Bytes that the checksums of so many segments take behind them.
pub(crate) fn bytes_behind(segments: usize) -> usize {
    SUM_BYTES * segments.saturating_sub(1)
}

/// The checksum of a segment.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Puts `sums` at the end of `slot`, but for the first, which is returned for the header.
pub(crate) fn seal(slot: &mut [u8], sums: &[u32]) -> u32 {
    let Some((&first, others)) = sums.split_first() else { return 0 };
    let behind = slot.len() - bytes_behind(sums.len());
    for (place, sum) in slot[behind..].as_chunks_mut().0.iter_mut().zip(others) {
        *place = sum.to_le_bytes();
    }
    first
}

/// The checksums that a message of so many segments was sent with.
pub(crate) fn sent(header: Header, slot: &[u8], segments: usize) -> impl Iterator<Item = u32> {
    let others = slot[slot.len() - bytes_behind(segments)..].as_chunks().0;
    let others = others.iter().map(|&sum| u32::from_le_bytes(sum));
    [header.checksum].into_iter().chain(others).take(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_arrive_as_they_were_sealed() {
        for count in 0..5u32 {
            let sums: Vec<u32> = (0..count).map(|at| at * 0x1234_5679).collect();
            let mut slot = vec![0xee; 64 + bytes_behind(sums.len())];
            let header = Header { tag: 0, checksum: seal(&mut slot, &sums) };
            assert_eq!(sent(header, &slot, sums.len()).collect::<Vec<_>>(), sums);
            assert_eq!(slot[..64], [0xee; 64]);
        }
    }
}
