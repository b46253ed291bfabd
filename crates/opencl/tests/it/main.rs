//! Integration tests of OpenCL devices, by what they exercise.
//!
//! - `conformance`: the suite that every backend passes, on whole devices, on parts, with and
//!   without shared memory
//! - `between`: devices of one context, devices of several, and the CPU
//! - `programs`: build errors, and the cache on disk
//! - `replay`: recordings, and when commands ran
//!
//! Without a driver these tests are skipped with a message, except in CI, where they fail. Tests
//! that need other devices than the usual ones start this program again with PoCL told to have
//! them.

mod between;
mod conformance;
mod programs;
mod replay;

use std::sync::Arc;

use syncline_device::Device;
use syncline_device::registry::BackendProbe;
use syncline_opencl::{OpenClOptions, Probe};
use syncline_testing::need;

/// A probe whose driver has at least `count` devices, or nothing where there is no driver.
fn probe(options: OpenClOptions, count: usize) -> Option<Probe> {
    let probe = Probe::with_options(options);
    let found = probe.probe().and_then(|devices| match devices.len() {
        found if found >= count => Ok(()),
        found => Err(format!("there are {found}")),
    });
    need(&format!("{count} OpenCL devices"), found)?;
    Some(probe)
}

/// `count` devices, the first ones.
fn devices(options: OpenClOptions, count: usize) -> Option<Vec<Arc<dyn Device>>> {
    let probe = probe(options, count)?;
    Some((0..count as u32).map(|index| probe.open(index).unwrap()).collect())
}

/// Whole devices that keep no programs on disk.
fn options() -> OpenClOptions {
    OpenClOptions::new().with_program_cache(None)
}

/// Runs `test` of this program again in a process in which PoCL has `devices`, and passes on how it
/// ended. In that process, returns true.
fn with_pocl_devices(devices: &str, test: &str) -> bool {
    const INSIDE: &str = "SYNCLINE_TEST_INSIDE";
    if std::env::var(INSIDE).is_ok_and(|inside| inside == test) {
        return true;
    }
    if probe(options(), 1).is_none() {
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program)
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, test)
        .env("POCL_DEVICES", devices)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}:\n{text}\n{errors}", output.status);
    assert!(text.contains("1 passed"), "{test} did not run:\n{text}\n{errors}");
    eprint!("{errors}");
    false
}
