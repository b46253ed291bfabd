//! Any bytes given to the reader of numpy's arrays.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use syncline_program::npy;

static FILE: LazyLock<PathBuf> = LazyLock::new(|| syncline_fuzz::folder("npy").join("fuzz.npy"));

fuzz_target!(|bytes: &[u8]| {
    std::fs::write(&*FILE, bytes).expect("memory has room");
    let _ = npy::read(&FILE);
});
