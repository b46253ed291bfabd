//! `cargo xtask wheel`, and the tests of the Python package: in an environment of its own, as it
//! would be installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;
use crate::setup;

/// A wheel to build: the folder that it goes to, and the options of maturin.
#[derive(Clone, Copy, Debug)]
pub struct Build(&'static str, &'static [&'static str]);

/// The wheel that users install.
pub const RELEASE: Build = Build("target/wheels", &["--release"]);
/// The wheel of the tests: built as the program is in the other tests, so that they share it.
pub const TESTED: Build = Build("target/wheels-tested", &[]);

/// Where the wheel is installed for its tests.
const ENVIRONMENT: &str = "target/python-package";
/// What the tests use beside what the wheel asks for.
const PACKAGES: &[&str] = &[
    "pytest",
    "safetensors>=0.5",
    "ml_dtypes",
    "mypy",
    "auditwheel",
    "nbclient",
    "nbformat",
    "ipykernel",
];
const MATURIN: &str = "maturin>=1.9,<2";

/// Builds a wheel and returns its path.
pub fn wheel(Build(folder, options): Build) -> Result<PathBuf, String> {
    let python = setup::python().ok_or("no Python to build the wheel with")?;
    let module = |name: &str| {
        let mut command = Command::new(&python);
        command.args(["-m", name]);
        command
    };
    if !module("maturin").arg("--version").output().is_ok_and(|said| said.status.success()) {
        command::run(module("pip").args(["install", "--quiet", MATURIN]))?;
    }
    // Older versions lie there too, and only one is to be found below.
    let _ = fs::remove_dir_all(folder);
    let mut build = module("maturin");
    build.args(["build", "--locked", "--out", folder]).args(options);
    command::run(build.args(["--manifest-path", "python/Cargo.toml"]))?;
    let found = fs::read_dir(folder).map_err(|error| format!("{folder}: {error}"))?;
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|end| end == "whl");
    let wheel = found.filter_map(|file| Some(file.ok()?.path())).find(is_wheel);
    wheel.ok_or_else(|| format!("{folder}: maturin has left no wheel"))
}

/// Makes an environment at `folder` and installs the wheel there with `packages`; returns its
/// Python.
fn install(wheel: &Path, folder: &Path, packages: &[&str]) -> Result<PathBuf, String> {
    let python =
        std::path::absolute(folder).map_err(|error| error.to_string())?.join("bin/python3");
    if !python.exists() {
        command::run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    }
    command::run(pip(&python).args(packages))?;
    install_wheel(wheel, &python)?;
    Ok(python)
}

/// Installs the wheel for `python`, over one of the same version too.
pub fn install_wheel(wheel: &Path, python: &Path) -> Result<(), String> {
    command::run(pip(python).args(["--force-reinstall", "--no-deps"]).arg(wheel))
}

fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip
}

/// Builds the wheel, installs it into a new environment, and runs the package's tests there.
pub fn test() -> Result<(), String> {
    let wheel = wheel(TESTED)?;
    let _ = fs::remove_dir_all(ENVIRONMENT);
    let packages = [PACKAGES, &["numpy"]].concat();
    let python = install(&wheel, Path::new(ENVIRONMENT), &packages)?;
    let run = |arguments: &[&str]| {
        // Not from the package's own folder: the installed package is tested.
        let mut command = Command::new(&python);
        command.args(arguments).current_dir("python/tests").env_remove("PYTHONPATH");
        command::run(&mut command)
    };
    run(&["-m", "pytest", "-q", "-ra", "."])?;
    run(&["-m", "mypy", "--config-file", "../pyproject.toml", "-p", "syncline"])?;
    let wheel = std::path::absolute(&wheel).map_err(|error| error.to_string())?;
    run(&["-m", "auditwheel", "show", &wheel.display().to_string()])
}
