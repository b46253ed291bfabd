//! `cargo xtask test`: format, lints, models, every test, sanitizers, and the documentation with
//! its examples.

use std::time::Duration;

use crate::command::{Environment, cargo};
use crate::steps::{Steps, skip};
use crate::{fuzz, memory, nextest, policy, python, setup, tidy};

/// The whole workspace. Steps that compile it pass these arguments alike, so that they share one
/// build of each crate: another choice of packages would choose other features of dependencies.
const WORKSPACE: &[&str] = &["--workspace"];
/// The same where MPI can be had.
const WORKSPACE_MPI: &[&str] =
    &["--workspace", "--features", "syncline-mpi/mpi,syncline-cli/mpi,syncline-bench/mpi"];

/// Items behind features are documented too, and their examples run.
const GATED: &[&str] = &["--features", "syncline/conformance"];

/// Returns the arguments that choose all packages, with MPI where that can be had.
pub fn workspace() -> &'static [&'static str] {
    if setup::has_mpi() { WORKSPACE_MPI } else { WORKSPACE }
}

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
    steps.step("tidy", || tidy::run(&[]));
    let all = workspace();
    steps.step("lints", || {
        // Clippy knows since when each function of the standard library is there.
        let deny = ["--", "-D", "warnings", "-D", "clippy::incompatible_msrv"];
        cargo(&[&["clippy", "--all-targets"], all, &deny].concat(), &[])
    });
    steps.step("features", features);
    steps.step("policy", policy::check);
    steps.step("rust-version", policy::rust_version);
    let strict = [("RUSTDOCFLAGS", "-D warnings")];
    steps.step("documentation", || {
        cargo(&[&["doc", "--no-deps", "--quiet"], all, GATED].concat(), &strict)
    });
    steps.step("models", || models(&[]));
    steps.step("tests", || {
        let python = setup::python().map(|path| path.display().to_string());
        let node = setup::node().map(|path| path.display().to_string());
        let python = python.iter().map(|path| ("SYNCLINE_PYTHON", path.as_str()));
        let node = node.iter().map(|path| ("SYNCLINE_NODE", path.as_str()));
        let environment: Vec<_> = python.chain(node).collect();
        nextest::run(nextest::profile(), "target", all, &environment)
    });
    match all == WORKSPACE {
        true => steps.step("mpi", || {
            skip("no MPI to test with; install openmpi-bin libopenmpi-dev libclang-dev")
        }),
        false => steps.step("without-mpi", without_mpi),
    }
    steps.step("examples", || {
        let test = ["test", "--doc", "--quiet", "--no-fail-fast"];
        cargo(&[&test, all, GATED].concat(), &[])
    });
    steps.step("python", python::test);
    steps.step("oclgrind", || memory::oclgrind(memory::DATA_RACES));
    steps.step("asan", || memory::asan(ASAN_SEEDS));
    steps.step("fuzz", || fuzz::run(&[], FUZZ_EACH));
    steps.finish()
}

/// Folders of the crates that have features; those in one list are linted together.
const WITH_FEATURES: &[&[&str]] = &[&["syncline"], &["cli", "mpi"]];

/// Lints crates that have features without these, and every other crate by itself, so that
/// none relies on features of a dependency that another one asks for.
fn features() -> Result<(), String> {
    for folders in WITH_FEATURES {
        let mut lint = vec!["clippy", "--all-targets", "--no-default-features"];
        let packages: Vec<_> = folders.iter().map(|&name| package(name)).collect();
        packages.iter().for_each(|package| lint.extend(["--package", package]));
        cargo(&[&lint[..], &["--", "-D", "warnings"]].concat(), &[])?;
    }
    let folders = std::fs::read_dir("crates").map_err(|error| error.to_string())?;
    let is_linted = |name: &str| WITH_FEATURES.concat().contains(&name);
    let mut manifests: Vec<String> = folders
        .filter_map(|folder| Some(folder.ok()?.path()))
        .filter(|folder| !folder.file_name().and_then(|name| name.to_str()).is_some_and(is_linted))
        .map(|folder| folder.join("Cargo.toml").display().to_string())
        .collect();
    manifests.sort();
    manifests.iter().try_for_each(|manifest| {
        let lint = ["clippy", "--quiet", "--no-default-features", "--manifest-path", manifest];
        cargo(&[&lint[..], &["--", "-D", "warnings"]].concat(), &[])
    })
}

/// The package in `crates/folder`.
fn package(folder: &str) -> String {
    match folder {
        "syncline" => folder.to_owned(),
        _ => format!("syncline-{folder}"),
    }
}

/// What the program says where it was built without MPI.
fn without_mpi() -> Result<(), String> {
    let tests = ["-E", "package(syncline-cli) and test(reshard_mpi)"];
    let arguments = [WORKSPACE, &["--test", "it"], &tests].concat();
    nextest::run(nextest::profile(), "target", &arguments, &[])
}

/// The protocols of lanes under model checkers: the flag that puts one in, the packages, and which
/// of their tests.
const MODELS: &[(&str, &[&str], &[&str])] = &[
    (
        "loom",
        &["syncline-sync", "syncline-device", "syncline-runtime"],
        &["loom_", "stream::model"],
    ),
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
