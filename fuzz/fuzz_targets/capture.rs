//! Any records given to the reader of captures, with checksums that are right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncline_fuzz::seal_capture;
use syncline_trace::Trace;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    seal_capture(&mut bytes);
    if let Ok(read) = Trace::from_bytes(&bytes) {
        read.trace.validate().expect("a read trace is valid");
        let again = Trace::from_json(read.trace.to_json().as_bytes());
        assert_eq!(again.expect("a read form can be written"), read.trace);
    }
});
