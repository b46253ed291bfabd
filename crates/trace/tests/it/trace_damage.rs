//! Damaged captures and JSON: an error or a readable prefix, never a panic and never much memory.

use syncline_testing::{Rng, for_seeds};
use syncline_trace::capture::{CaptureEnd, CaptureReader};
use syncline_trace::{Trace, TraceError};

use crate::random;

fn capture(rng: &mut Rng) -> (Trace, Vec<u8>) {
    let trace = random::trace(rng);
    let bytes = trace.write_capture(Vec::new()).expect("memory");
    (trace, bytes)
}

#[test]
fn every_prefix_is_readable_and_says_that_it_is_one() {
    for_seeds("every_prefix_is_readable_and_says_that_it_is_one", 12, |rng| {
        let (trace, bytes) = capture(rng);
        for length in 12..bytes.len() {
            let read = CaptureReader::read(&bytes[..length]).expect("a prefix is readable");
            assert_ne!(read.end, CaptureEnd::Complete);
            let tasks = &read.trace.tasks;
            for (read, whole) in tasks.iter().zip(&trace.tasks) {
                assert_eq!((read.id, &read.args, &read.deps), (whole.id, &whole.args, &whole.deps));
            }
        }
        for length in 0..12 {
            CaptureReader::read(&bytes[..length]).expect_err("not even a head");
        }
    });
}

#[test]
fn one_wrong_byte_is_found_and_placed() {
    for_seeds("one_wrong_byte_is_found_and_placed", 12, |rng| {
        let (_, bytes) = capture(rng);
        for at in 0..bytes.len() {
            // The two bytes after the version are for later use, and ignored.
            if at == 10 || at == 11 {
                continue;
            }
            let mut wrong = bytes.clone();
            wrong[at] ^= 1 << rng.below(8);
            match CaptureReader::read(&wrong) {
                Err(TraceError::Corrupt { offset, .. }) => {
                    assert!(offset <= at, "{offset} for {at}")
                }
                Err(TraceError::NotACapture | TraceError::CaptureVersion { .. }) => {
                    assert!(at < 10)
                }
                other => panic!("byte {at} of {}: {other:?}", bytes.len()),
            }
        }
    });
}

/// What the fuzz target does, for inputs that are near enough to right ones to get far.
#[test]
fn any_bytes_are_refused_or_read() {
    for_seeds("any_bytes_are_refused_or_read", 6000, |rng| {
        let (trace, mut bytes) = capture(rng);
        if rng.one_in(3) {
            bytes = trace.to_json().into_bytes();
        }
        for _ in 0..rng.range(1..6) {
            mutate(rng, &mut bytes);
        }
        if rng.one_in(2) {
            repair_checksums(&mut bytes);
        }
        if let Ok(read) = Trace::from_bytes(&bytes) {
            read.trace.validate().expect("a read trace is valid");
            let again = Trace::from_json(read.trace.to_json().as_bytes());
            assert_eq!(again.expect("a read trace can be written"), read.trace);
        }
    });
}

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return bytes.push(rng.next_u64() as u8);
    }
    let at = rng.below(bytes.len());
    let other = rng.below(bytes.len());
    match rng.below(6) {
        0 => bytes[at] = rng.next_u64() as u8,
        1 => bytes[at] = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff, b'0', b'"', b'{', b'[']),
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at.min(other)..at.max(other).min(at.min(other) + 9))),
        4 => bytes.swap(at, other),
        _ => {
            let piece: Vec<u8> = bytes[at.min(other)..at.max(other)].to_vec();
            bytes.splice(at..at, piece);
        }
    }
}

/// Makes the checksums right again, as an attacker would: the records must stand on their
/// own.
fn repair_checksums(bytes: &mut [u8]) {
    let mut at = 12;
    while at + 9 <= bytes.len() {
        let kind = bytes[at];
        let length = [bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        bytes[at + 4] = length.iter().fold(kind ^ 0xa5, |check, byte| check.rotate_left(3) ^ byte);
        let end = at + 5 + u32::from_le_bytes([length[0], length[1], length[2], 0]) as usize;
        if end + 4 > bytes.len() {
            return;
        }
        let checksum = crc32fast::hash(&bytes[at..end]);
        bytes[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
        at = end + 4;
    }
}

#[test]
fn unknown_records_are_skipped_where_they_may_be() {
    let trace = random::trace(&mut Rng::new(3));
    let bytes = trace.write_capture(Vec::new()).expect("memory");
    let with = |kind: u8| {
        let mut record = vec![kind, 3, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0];
        let mut all = [&bytes[..12], record.as_mut_slice(), &bytes[12..]].concat();
        repair_checksums(&mut all);
        all
    };
    // A header must be the first record, so the trace has none here.
    let mut plain = trace.clone();
    plain.extra.clear();
    if trace.extra.is_empty() {
        assert_eq!(CaptureReader::read(&with(0xf0)).expect("skippable").trace, plain);
    }
    let error = CaptureReader::read(&with(0x70)).expect_err("must be known");
    assert!(
        matches!(error, TraceError::UnknownRecord { kind: 0x70, record: 0, offset: 12 }),
        "{error}"
    );
}
