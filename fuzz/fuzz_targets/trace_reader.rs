//! Any bytes given to the trace reader: an error or a valid trace, never a panic, never unbounded memory.
//!
//! `cargo fuzz run trace_reader -- -rss_limit_mb=2048`. Captures are checksummed, which random changes do not survive;
//! the test `any_bytes_are_refused_or_read` does the same with checksums made right again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncline_deps::trace::Trace;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(read) = Trace::from_bytes(bytes) {
        read.trace.validate().expect("what is read is valid");
        let again = Trace::from_json(read.trace.to_json().as_bytes());
        assert_eq!(again.expect("what is read can be written"), read.trace);
    }
});
