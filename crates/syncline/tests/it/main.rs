//! Integration tests over all backends at once, by what they exercise.
//!
//! - `found`: which devices there are, and how they work together
//! - `transfers`: bytes between devices of every pair, flat and strided, whole and staged
//! - `random`: random integer programs over CPU, Vulkan and OpenCL in one plan, against a serial
//!   run of plain code
//! - `programs`: Cholesky, a layer of a network and attention, over all three
//! - `ops`: the operations of the front end in every mode, against loops
//! - `doors`: every way to launch a kernel refuses calls that the kernel could not work with
//! - `faults`: failures, cancels, many runs, and plans dropped half way
//! - `threads`: which public types are `Send` and `Sync`
//!
//! Where `CI` is set, a missing driver is a failure; elsewhere the tests say what they leave out.
//! Each test is over in seconds on two cores; those marked `ignore` are for `cargo xtask soak`.

#![cfg(all(feature = "vulkan", feature = "opencl"))]

mod doors;
mod faults;
mod found;
mod ops;
mod programs;
mod random;
mod threads;
mod transfers;

use std::sync::Arc;

use syncline::device::cpu::{CpuDevice, CpuOptions};
use syncline::device::registry::BackendProbe;
use syncline::device::{Device, DeviceSpec};
use syncline::opencl::OpenClOptions;
use syncline::runtime::{ExecutorOptions, UnifiedExecutor};
use syncline_testing::need;

/// CPU, Vulkan, and an OpenCL device in two parts; nothing, with a word, where there is no driver.
fn devices() -> Option<Vec<Arc<dyn Device>>> {
    let cpu = CpuDevice::open(CpuOptions::new(0).compute_lanes(2)).unwrap();
    let opencl = syncline::opencl::Probe::with_options(OpenClOptions::new().with_parts(2));
    let vulkan = syncline::vulkan::Probe::new();
    let mut devices = vec![cpu, open(&vulkan, 0)?, open(&opencl, 0)?];
    // A machine with one processor has nothing to divide.
    if opencl.probe().is_ok_and(|found| found.len() > 1) {
        devices.push(open(&opencl, 1)?);
    }
    Some(devices)
}

fn open(probe: &dyn BackendProbe, index: u32) -> Option<Arc<dyn Device>> {
    need(&format!("a {} device", probe.backend()), probe.open(index))
}

fn executor(options: ExecutorOptions) -> Option<UnifiedExecutor> {
    let mut executor = UnifiedExecutor::with_options(options);
    for device in devices()? {
        executor.add_device(device).unwrap();
    }
    Some(executor)
}

fn specs(executor: &UnifiedExecutor) -> Vec<DeviceSpec> {
    executor.contexts().iter().map(|context| context.spec()).collect()
}
