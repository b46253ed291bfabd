//! Any words where a PE expects a message of another: a message that can be written again, or none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncline_transport::{Failure, RECORD_WORDS};

fuzz_target!(|bytes: &[u8]| {
    syncline_mpi::fuzz_control(bytes);
    let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    let mut record = [0; RECORD_WORDS];
    record.iter_mut().zip(words).for_each(|(place, word)| *place = word);
    let failure = Failure::decode(&record);
    let _ = failure.to_string();
    // Text that was not UTF-8 or is too long is changed once.
    let again = Failure::decode(&failure.encode());
    assert_eq!(Failure::decode(&again.encode()), again);
});
