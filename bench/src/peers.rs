//! Peers written in C and C++, compiled when they are needed, and the Python of peers that are
//! written in it.
//!
//! A peer is one file in `bench/peers`. It prints one number for each line of its result: what it
//! measured. Where the compiler or a library is missing, the rows beside that peer are left out,
//! and a line says why.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

static LEFT_OUT: AtomicBool = AtomicBool::new(false);

/// From here on no peer is compiled: rows beside them are left out.
pub fn leave_out() {
    LEFT_OUT.store(true, Ordering::Relaxed);
}

/// The first Python for which `statement` succeeds: the one that the tests use, or the system's.
/// `None`, with a word, where none has `what` is needed.
pub(crate) fn python(what: &str, statement: &str) -> Option<String> {
    if LEFT_OUT.load(Ordering::Relaxed) {
        return None;
    }
    let of_tests = std::env::var("SYNCLINE_PYTHON").ok();
    let systems = ["python3", "/usr/bin/python3"].map(str::to_owned);
    let has_it = |python: &String| {
        let tried = Command::new(python).args(["-c", statement]).output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    let found = of_tests.into_iter().chain(systems).find(has_it);
    if found.is_none() {
        eprintln!("no Python has {what}, which is left out: set SYNCLINE_PYTHON to one that has");
    }
    found
}

/// A peer that has been compiled.
pub(crate) struct Peer {
    program: PathBuf,
}

impl Peer {
    /// Compiles `bench/peers/{source}` with `compiler` and `flags` (libraries included).
    pub(crate) fn compile(source: &str, compiler: &str, flags: &[&str]) -> Option<Self> {
        if LEFT_OUT.load(Ordering::Relaxed) {
            return None;
        }
        let source_path = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(source);
        let folder = std::env::temp_dir().join(format!("syncline-peers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).ok()?;
        let program = folder.join(source.replace('.', "-"));
        let output = Command::new(compiler)
            .arg("-O2")
            .arg(&source_path)
            .arg("-o")
            .arg(&program)
            .args(flags)
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Self { program }),
            Ok(output) => {
                let log = String::from_utf8_lossy(&output.stderr);
                eprintln!(
                    "{source} does not compile, and is left out: {}",
                    log.lines().next().unwrap_or("")
                );
                None
            }
            Err(error) => {
                eprintln!("{compiler} cannot be run, and {source} is left out: {error}");
                None
            }
        }
    }

    /// Runs the peer and returns the numbers that it prints.
    pub(crate) fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Vec<f64> {
        let output = Command::new(&self.program)
            .args(arguments)
            .envs(environment.iter().copied())
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        assert!(
            output.status.success(),
            "{} {arguments:?}: {}",
            self.program.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8_lossy(&output.stdout);
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // A file left in the temporary folder does no harm.
        let _ = std::fs::remove_file(&self.program);
        let _ = self.program.parent().map(std::fs::remove_dir);
    }
}
