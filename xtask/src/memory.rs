//! Tests under checkers of memory: AddressSanitizer for what runs on the host, oclgrind for kernels
//! of OpenCL.

use std::fs;
use std::process::Command;

use crate::command::{self, TARGET, cargo_command, output};
use crate::{nextest, steps, test};

/// Whose code is unsafe, and whose callbacks meet it.
const PACKAGES: &[&str] = &[
    "syncline-copy",
    "syncline-device",
    "syncline-runtime",
    "syncline-transport",
    "syncline-reshard",
    "syncline-kernels",
];

/// Left out under AddressSanitizer: counters of allocations replace the allocator; measures of
/// memory count what the sanitizer keeps; long runs find nothing new; what drivers compile is not
/// instrumented. What must not compile is not run.
const FILTER: &str = "not (binary(allocations) or binary(ui) or test(ten_million_tasks) \
    or test(/takes_little_memory|no_more_memory_than_a|memory_of_one/) \
    or (package(syncline-kernels) and test(/_on_(vulkan|opencl)/)))";

const FOLDER: &str = "target/asan";

/// Threads of drivers set alternative stacks for signals, which the sanitizer would take for its
/// own and unmap.
const ASAN_OPTIONS: &str = "detect_leaks=0:detect_stack_use_after_return=1:use_sigaltstack=0";

/// Runs the tests of unsafe code under AddressSanitizer, `seeds` of each random one.
///
/// Leaks are not reported: drivers and the threads of devices keep memory to the end.
pub fn asan(seeds: u64) -> Result<(), String> {
    nextest_asan(&["-E", FILTER], seeds)
}

/// Builds what [`asan`] runs.
pub fn build() -> Result<(), String> {
    nextest_asan(&["--no-run"], 1)
}

fn nextest_asan(more: &[&str], seeds: u64) -> Result<(), String> {
    let seeds = seeds.to_string();
    let environment = [
        ("RUSTC_BOOTSTRAP", "1"),
        ("RUSTFLAGS", "-Zsanitizer=address"),
        ("CARGO_TARGET_DIR", FOLDER),
        ("SYNCLINE_SEEDS", &seeds),
        ("ASAN_OPTIONS", ASAN_OPTIONS),
    ];
    let mut arguments = [&["--target", TARGET], more].concat();
    PACKAGES.iter().for_each(|package| arguments.extend(["--package", package]));
    nextest::run("asan", FOLDER, &arguments, &environment)
}

/// Where Debian puts oclgrind's driver.
const OCLGRIND: &str = "/usr/lib/oclgrind/liboclgrind-rt-icd.so";

/// What oclgrind checks, as it names it.
pub const DATA_RACES: &str = "OCLGRIND_DATA_RACES";
/// Too slow for every change: a simulated load looks up who wrote the value.
pub const UNINITIALIZED: &str = "OCLGRIND_UNINITIALIZED";

/// Runs the OpenCL kernels on a simulated device that knows which work item wrote each byte, with
/// one of its checks.
pub fn oclgrind(check: &str) -> Result<(), String> {
    if !fs::exists(OCLGRIND).unwrap_or(false) {
        return steps::skip("no oclgrind to run the OpenCL kernels in; install oclgrind");
    }
    let mut race = Command::new("oclgrind-kernel");
    race.args(["--data-races", "race.sim"]).current_dir("xtask/data");
    let said = race.output().map_err(|error| format!("oclgrind-kernel: {error}"))?;
    if !String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).contains("data race") {
        return Err("oclgrind does not find the race of xtask/data/race.cl".to_owned());
    }
    let program = test_program("syncline-kernels")?;
    let folder = std::path::absolute("target/oclgrind").map_err(|error| error.to_string())?;
    // A fresh one: kept programs are of other options.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    fs::write(folder.join("oclgrind.icd"), OCLGRIND).map_err(|error| error.to_string())?;
    let log = folder.join("log");
    let mut tests = Command::new(program);
    // One at a time: its checks take kernels that run side by side for one.
    tests.args(["_on_opencl", "--test-threads", "1"]).current_dir("crates/kernels");
    // In CI every dtype is tried, which would take a simulator too long.
    tests.env_remove("CI").env_remove("SYNCLINE_CI").env("SYNCLINE_SEEDS", "1");
    tests.env("OCL_ICD_VENDORS", &folder).env("OCLGRIND_LOG", &log);
    tests.env(check, "1");
    // Its checker of uninitialised values does not know all that the optimiser makes.
    tests.env("OCLGRIND_BUILD_OPTIONS", "-cl-opt-disable");
    tests.env("XDG_CACHE_HOME", &folder);
    command::run(&mut tests)?;
    let found = fs::read_to_string(&log)
        .map_err(|error| format!("no kernel ran in oclgrind: {}: {error}", log.display()))?;
    match found.trim() {
        "" => Ok(()),
        found => Err(format!("oclgrind has found something ({}):\n{found}", log.display())),
    }
}

/// Returns the program of the integration tests of `package`, built with all of the workspace: that
/// is what the tests before have done.
fn test_program(package: &str) -> Result<String, String> {
    let mut build = cargo_command();
    build.args(["test", "--test", "it", "--no-run", "--quiet"]).args(test::workspace());
    let said = output(build.arg("--message-format=json"))?;
    let folder = std::path::absolute(format!("crates/{}", package.trim_start_matches("syncline-")));
    let manifest = folder.map_err(|error| error.to_string())?.join("Cargo.toml");
    let mut programs = said.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = message["manifest_path"].as_str().is_some_and(|path| manifest == *path)
            && message["target"]["name"] == "it";
        message["executable"].as_str().filter(|_| is_it).map(str::to_owned)
    });
    programs.next_back().ok_or(format!("cargo names no test program of {package}"))
}
