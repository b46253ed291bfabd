//! Every threshold of a copy, in one place.
//!
//! Measured by `cargo run --release -p syncline-copy --features execute --example thresholds`,
//! which prints a table for each. The figures below are gigabytes a second on two cores of an AMD
//! EPYC (family 26) that others shared: the best of 40 interleaved rounds.

/// A cache line, which streaming stores write whole at best.
///
/// Allocations and packed pieces are aligned to it: at other distances between source and target,
/// glibc's memcpy is up to 45 times slower between 4 KiB and 256 KiB.
pub(super) const LINE_BYTES: usize = 64;

/// Copies of fewer bytes go through the caches.
///
/// Repeated at one place, copies through the caches are ahead by 50 to 44 at 8 MiB, and behind by
/// 36 to 42 at 16 MiB, 23 to 29 at 64 MiB and 9 to 13 at 256 MiB. Their targets also displace other
/// data in the caches, so the bound is the lower one.
pub(super) const STREAM_BYTES: u64 = 8 << 20;

/// Shorter runs go through the caches, unless they are whole lines: partial lines at both ends
/// would cost more than streaming saves.
///
/// Half of every row of 128 MiB: 4.4 through the caches and 4.3 past them with runs of 257 bytes,
/// 7.5 and 9.7 with 513, 16.2 and 18.4 with 16,385. Whole lines: 11.3 with runs of 256.
pub(super) const STREAM_RUN_BYTES: usize = 512;

/// Boxes that are copied in one pass, at most.
///
/// Four boxes of one matrix, one after the other and in one pass: 2.9 and 13.8 with runs of 64
/// bytes, 7.4 and 27.2 with 1,024, 12.4 and 28.0 with 4,096.
pub const FAN_MAX: usize = 8;

/// Longer runs are read in order by themselves, and need no other box beside them.
pub(super) const FAN_RUN_BYTES_MAX: u64 = 4096;

/// Lines that are requested at the start of a box; the processor sees to the rest once it is read.
/// Six times as many take so many of the outstanding requests that the copy itself slows down.
///
/// Boxes of four rows at random places: 10.1 without and 10.4 with runs of 256 bytes, 39.6 and 43.2
/// with 1,024. Inside long runs, requests only cost: 30.3 without and 27.8 with them.
pub(super) const PREFETCH_LINES: u64 = 8;

/// Pages that are touched ahead. A box of more is long enough for the processor to keep up.
pub(super) const PREFETCH_PAGES_MAX: u64 = 4;
pub(super) const PAGE_BYTES: u64 = 4096;
