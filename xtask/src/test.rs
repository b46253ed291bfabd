//! `cargo xtask test`: format, lints, models, every test, and the documentation with its examples.

use crate::command::cargo;
use crate::setup;

/// Everything, or with arguments only the tests that they name (`cargo xtask test -p syncline-deps`).
pub fn run(filter: &[&str]) -> Result<(), String> {
    if !filter.is_empty() {
        let mut arguments = vec!["nextest", "run"];
        arguments.extend(filter);
        return cargo(&arguments, &[]);
    }
    cargo(&["fmt", "--all", "--check"], &[])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    cargo(&["doc", "--workspace", "--no-deps", "--quiet"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    cargo(&["test", "--workspace", "--doc", "--quiet"], &[])?;
    models(&[])?;
    let profile = if std::env::var_os("CI").is_some() { "ci" } else { "default" };
    let python = setup::python().map(|path| path.display().to_string());
    let environment: Vec<_> =
        python.iter().map(|path| ("SYNCLINE_PYTHON", path.as_str())).collect();
    with_mpi(profile)?;
    // Last, so that the runner's summary closes the output.
    cargo(&["nextest", "run", "--workspace", "--profile", profile], &environment)
}

/// What needs MPI: everything else is built and tested without it.
fn with_mpi(profile: &str) -> Result<(), String> {
    if !setup::has_mpi() {
        let missing =
            "no MPI to build and test the transport with; install openmpi-bin libopenmpi-dev";
        if std::env::var_os("CI").is_some() {
            return Err(missing.to_owned());
        }
        eprintln!("SKIPPED: {missing}");
        return Ok(());
    }
    let packages = ["--package", "syncline-mpi", "--package", "syncline-cli"];
    let features = ["--features", "syncline-mpi/mpi,syncline-cli/mpi"];
    let mut lint = vec!["clippy", "--all-targets"];
    lint.extend(packages.iter().chain(&features));
    lint.extend(["--", "-D", "warnings"]);
    cargo(&lint, &[])?;
    let filter = "package(syncline-mpi) or test(reshard_mpi)";
    let mut all = vec!["nextest", "run", "--profile", profile, "-E", filter];
    all.extend(packages.iter().chain(&features));
    cargo(&all, &[])
}

/// The protocols of lanes under model checkers: the flag that puts one in, the packages, and which of their tests.
const MODELS: &[(&str, &[&str], &[&str])] = &[
    ("loom", &["syncline-device", "syncline-runtime"], &["loom_", "stream::model"]),
    ("shuttle", &["syncline-runtime"], &["shuttle_"]),
];

/// Small models over all interleavings, and whole plans over random ones. Each checker has a folder of its own, since its
/// flag compiles every crate anew.
fn models(environment: &[(&str, &str)]) -> Result<(), String> {
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

/// What takes too long for every change, each with the size that it runs at here: package, example, arguments.
const SOAKS: &[(&str, &str, &[&str])] = &[
    ("syncline-device", "ping_pong", &["5000000"]),
    ("syncline", "conformance", &["--thorough"]),
    ("syncline", "conformance", &["--thorough", "--staged", "vulkan:0", "opencl:0"]),
    ("syncline", "conformance", &["--thorough", "--parts", "2", "opencl:0", "opencl:1"]),
    ("syncline-runtime", "stream_soak", &["100000000"]),
    ("syncline-reshard", "kill_soak", &["500"]),
];

/// Tests of random programs that run with more seeds than the others: package, test, seeds.
const SEEDS: &[(&str, &str, &str)] = &[("syncline-plan", "no_wait_can_be_dropped", "20000")];

/// The long tests: the soaks, then the random programs with thousands of seeds.
pub fn soak() -> Result<(), String> {
    for (package, example, arguments) in SOAKS {
        let mut all = vec!["run", "--release", "--package", package, "--example", example, "--"];
        all.extend(*arguments);
        cargo(&all, &[])?;
    }
    models(&[("SYNCLINE_SCHEDULES", "20000")])?;
    let all = ["nextest", "run", "--workspace", "--release", "--profile", "soak"];
    let ignored = [&all[..], &["--run-ignored", "only"]].concat();
    cargo(&ignored, &[])?;
    cargo(&all, &[("SYNCLINE_SEEDS", "5000")])?;
    for (package, test, seeds) in SEEDS {
        let one = ["nextest", "run", "--release", "--profile", "soak", "--package", package, test];
        cargo(&one, &[("SYNCLINE_SEEDS", seeds)])?;
    }
    Ok(())
}
