//! Fuzzing: every file of `fuzz/fuzz_targets`, two at a time, from the kept corpus and from what
//! earlier runs found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use crate::command::{TARGET, cargo};

/// Coverage and comparisons, as `cargo fuzz` asks for them, and checks of memory.
const FLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// As many as small machines have cores.
const AT_A_TIME: usize = 2;

/// Where everything of it lies.
const FOLDER: &str = "target/fuzz";

/// Builds all targets.
pub fn build() -> Result<(), String> {
    let environment =
        [("RUSTC_BOOTSTRAP", "1"), ("RUSTFLAGS", FLAGS), ("CARGO_TARGET_DIR", FOLDER)];
    let manifest = ["--manifest-path", "fuzz/Cargo.toml", "--target", TARGET];
    cargo(&[&["build", "--quiet", "--bins"][..], &manifest].concat(), &environment)
}

/// Builds all targets and runs each of `wanted` (all if empty) for `each`, after its corpus.
pub fn run(wanted: &[&str], each: Duration) -> Result<(), String> {
    build()?;
    let folder = Path::new(FOLDER);
    let mut targets = targets()?;
    if let Some(unknown) = wanted.iter().find(|name| !targets.iter().any(|of| of == *name)) {
        return Err(format!("no target `{unknown}`; there are {}", targets.join(", ")));
    }
    targets.retain(|name| wanted.is_empty() || wanted.contains(&name.as_str()));
    let (left, failed) = (Mutex::new(targets.into_iter()), Mutex::new(Vec::new()));
    let next = || left.lock().expect("nothing panics with it").next();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(target) = next() {
                    if let Err(message) = fuzz(folder, &target, each) {
                        eprintln!("{target}: {message}");
                        failed.lock().expect("nothing panics with it").push(target);
                    }
                }
            });
        }
    });
    match failed.into_inner().expect("nothing panics with it").as_slice() {
        [] => Ok(()),
        failed => Err(format!("inputs that crash {}: see above", failed.join(", "))),
    }
}

/// Returns the names of all targets, in order.
fn targets() -> Result<Vec<String>, String> {
    let entries = fs::read_dir("fuzz/fuzz_targets").map_err(|error| error.to_string())?;
    let stem = |path: PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    let mut names: Vec<_> = entries.filter_map(|entry| stem(entry.ok()?.path())).collect();
    names.sort();
    Ok(names)
}

/// Runs one target for `each`, and says in a line how far it came.
fn fuzz(folder: &Path, target: &str, each: Duration) -> Result<(), String> {
    let found = folder.join("corpus").join(target);
    fs::create_dir_all(&found).map_err(|error| error.to_string())?;
    let kept = format!("fuzz/corpus/{target}");
    let program = folder.join(TARGET).join("debug").join(target);
    let output = Command::new(program)
        // The first folder receives new inputs.
        .args([&found, Path::new(&kept)])
        .args(["-timeout=20", "-rss_limit_mb=2048", "-max_len=4096", "-print_final_stats=1"])
        .arg(format!("-max_total_time={}", each.as_secs().max(1)))
        .arg(format!("-artifact_prefix={}/crash-{target}-", folder.display()))
        // Its own exit handlers leak nothing that grows; leaks of an input would end in the limit
        // of memory.
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        // From the cause on: what came before is thousands of lines of progress.
        let cause = ["panicked at", "ERROR: "].iter().filter_map(|mark| said.find(mark)).min();
        return Err(format!("{}\n{}", output.status, &said[cause.unwrap_or(0)..]));
    }
    let stat = |name: &str| {
        let line = said.lines().find(|line| line.contains(name)).unwrap_or_default();
        line.rsplit(' ').next().unwrap_or_default().to_owned()
    };
    let last = said.lines().rfind(|line| line.contains(" cov: ")).unwrap_or_default();
    let covered = last.split_whitespace().skip_while(|word| *word != "cov:").nth(1);
    let covered = covered.ok_or("it reached nothing: is the corpus there?")?;
    eprintln!("{target:<12} {:>9} inputs, {covered:>6} edges", stat("number_of_executed_units"));
    Ok(())
}
