//! Any text given to the loader of programs, which checks kernels, scalars, arguments and contents
//! too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncline_program::{Program, ProgramOptions};

fuzz_target!(|bytes: &[u8]| {
    // Files are read from a folder that has none.
    let options = ProgramOptions::default().with_folder("/nonexistent");
    if let Ok(program) = Program::from_bytes(bytes, &options) {
        let text = program.trace().to_json();
        Program::from_bytes(text.as_bytes(), &options).expect("a read form can be written");
    }
});
