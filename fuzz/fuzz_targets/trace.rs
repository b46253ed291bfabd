//! Any text given to the reader of traces: an error or a valid trace, never a panic, never
//! unbounded memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncline_trace::Trace;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(trace) = Trace::from_json(bytes) {
        trace.validate().expect("a read trace is valid");
        let again = Trace::from_json(trace.to_json().as_bytes());
        assert_eq!(again.expect("a read form can be written"), trace);
    }
});
