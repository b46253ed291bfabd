//! `cargo xtask test`: format, lints, models, every test, sanitizers, and the documentation with
//! its examples.

use std::time::Duration;

use crate::command::{Environment, cargo};
use crate::steps::{Steps, skip};
use crate::{fuzz, memory, nextest, policy, setup};

/// Seeds of each random test under AddressSanitizer, and how long each fuzz target runs: minutes in
/// all.
const ASAN_SEEDS: u64 = 8;
const FUZZ_EACH: Duration = Duration::from_secs(10);

/// Everything, or with arguments only the tests that they name
/// (`cargo xtask test -p syncline-deps`).
pub fn run(filter: &[&str]) -> Result<(), String> {
    if filter.is_empty() {
        return steps(&[]);
    }
    cargo(&[&["nextest", "run"], filter].concat(), &[])
}

/// The steps of a whole test that are named in `only`; all if none are. A step that fails does not
/// stop the others.
pub fn steps(only: &[&str]) -> Result<(), String> {
    let mut steps = Steps::new(only);
    steps.step("format", || {
        cargo(&["fmt", "--all", "--check"], &[])?;
        cargo(&["fmt", "--check", "--manifest-path", "fuzz/Cargo.toml"], &[])
    });
    let lint = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    steps.step("lints", || cargo(&lint, &[]));
    steps.step("features", features);
    steps.step("policy", policy::check);
    steps.step("rust-version", policy::rust_version);
    let strict = [("RUSTDOCFLAGS", "-D warnings")];
    steps.step("documentation", || cargo(&["doc", "--workspace", "--no-deps", "--quiet"], &strict));
    steps.step("examples", || cargo(&["test", "--workspace", "--doc", "--quiet"], &[]));
    steps.step("models", || models(&[]));
    steps.step("mpi", with_mpi);
    steps.step("tests", || {
        let python = setup::python().map(|path| path.display().to_string());
        let environment: Vec<_> =
            python.iter().map(|path| ("SYNCLINE_PYTHON", path.as_str())).collect();
        nextest::run(nextest::profile(), "target", &["--workspace"], &environment)
    });
    steps.step("oclgrind", || memory::oclgrind(memory::DATA_RACES));
    steps.step("asan", || memory::asan(ASAN_SEEDS));
    steps.step("fuzz", || fuzz::run(&[], FUZZ_EACH));
    steps.finish()
}

/// Every crate without its features. Only the facade has default ones; the others are checked one
/// by one, so that none relies on features that another one asks for.
fn features() -> Result<(), String> {
    let facade = ["clippy", "--package", "syncline", "--all-targets", "--no-default-features"];
    cargo(&[&facade[..], &["--", "-D", "warnings"]].concat(), &[])?;
    let folders = std::fs::read_dir("crates").map_err(|error| error.to_string())?;
    let mut manifests: Vec<String> = folders
        .filter_map(|folder| Some(folder.ok()?.path().join("Cargo.toml").display().to_string()))
        .collect();
    manifests.sort();
    manifests.iter().try_for_each(|manifest| {
        cargo(&["check", "--quiet", "--no-default-features", "--manifest-path", manifest], &[])
    })
}

/// What needs MPI: everything else is built and tested without it.
fn with_mpi() -> Result<(), String> {
    if !setup::has_mpi() {
        return skip(
            "no MPI to build and test the transport with; install openmpi-bin libopenmpi-dev",
        );
    }
    let packages = ["--package", "syncline-mpi", "--package", "syncline-cli"];
    let features = ["--features", "syncline-mpi/mpi,syncline-cli/mpi"];
    let mut lint = vec!["clippy", "--all-targets"];
    lint.extend(packages.iter().chain(&features));
    lint.extend(["--", "-D", "warnings"]);
    cargo(&lint, &[])?;
    let mut all = vec!["-E", "package(syncline-mpi) or test(reshard_mpi)"];
    all.extend(packages.iter().chain(&features));
    nextest::run(nextest::profile(), "target", &all, &[])
}

/// The protocols of lanes under model checkers: the flag that puts one in, the packages, and which
/// of their tests.
const MODELS: &[(&str, &[&str], &[&str])] = &[
    ("loom", &["syncline-device", "syncline-runtime"], &["loom_", "stream::model"]),
    ("shuttle", &["syncline-runtime"], &["shuttle_"]),
];

/// Small models over all interleavings, and whole plans over random ones. Each checker has a folder
/// of its own, since its flag compiles every crate anew.
pub fn models(environment: Environment<'_>) -> Result<(), String> {
    for (checker, packages, filters) in MODELS {
        let mut arguments = vec!["test", "--quiet", "--lib"];
        packages.iter().for_each(|package| arguments.extend(["--package", package]));
        arguments.push("--");
        arguments.extend(*filters);
        let (flags, folder) = (format!("--cfg {checker}"), format!("target/{checker}"));
        let mut all = vec![("RUSTFLAGS", &*flags), ("CARGO_TARGET_DIR", &*folder)];
        all.extend(environment);
        cargo(&arguments, &all)?;
    }
    Ok(())
}
