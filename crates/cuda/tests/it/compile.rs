use std::path::{Path, PathBuf};
use std::process::Command;

use syncline_cuda::{compile, conformance};

/// Where the Python of the tests keeps NVIDIA's compiler library, if it was installed there.
fn library_directory() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python/lib");
    let versions = std::fs::read_dir(python).ok()?;
    let library = |version: PathBuf| version.join("site-packages/nvidia/cuda_nvrtc/lib");
    versions.map(|version| library(version.unwrap().path())).find(|place| place.is_dir())
}

/// Runs `test` of this program again in a process that finds the library, and passes on how it
/// ended. In that process, and where the system has the library anyway, returns true.
fn with_library(test: &str) -> bool {
    if compile("", "compute_80").is_ok() {
        return true;
    }
    let Some(directory) = library_directory() else {
        eprintln!("SKIPPED: libnvrtc not found");
        return false;
    };
    let inside = std::env::var_os("SYNCLINE_TEST_INSIDE");
    assert!(inside.is_none(), "{} has no library that can be loaded", directory.display());
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env("SYNCLINE_TEST_INSIDE", test)
        .env("LD_LIBRARY_PATH", directory)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "{test} did not run:\n{text}\n{errors}");
    false
}

#[test]
fn the_kernels_of_the_suite_compile() {
    if !with_library("compile::the_kernels_of_the_suite_compile") {
        return;
    }
    for architecture in ["compute_52", "compute_80", "compute_90"] {
        let ptx = compile(conformance::SOURCE, architecture).unwrap();
        let ptx = ptx.to_str().unwrap();
        assert!(ptx.contains(".version"), "{ptx}");
        for entry in ["add_one", "scale", "add"] {
            assert!(ptx.contains(&format!(".entry {entry}(")), "{entry} is not in\n{ptx}");
        }
    }
}

#[test]
fn what_does_not_compile_is_refused_with_the_log() {
    if !with_library("compile::what_does_not_compile_is_refused_with_the_log") {
        return;
    }
    let wrong = "extern \"C\" __global__ void f(float *x) { x[0] = no_such_thing; }";
    let log = compile(wrong, "compute_80").unwrap_err();
    assert!(log.contains("no_such_thing"), "{log}");
    assert!(compile("\0", "compute_80").unwrap_err().contains("zero byte"));
    assert!(compile("", "compute_1").is_err());
}
