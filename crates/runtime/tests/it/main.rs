//! Integration tests of the runtime, by what they exercise.
//!
//! - `buffers`: one buffer in streams, plans, transfers, kernels and the host's hands
//! - `executor`: kernels on several devices, order, failure, dropping with work pending
//! - `replay`: plans on CPU lanes, against serial runs; failure; bindings
//! - `stream`: the stream runtime; its own map is at the top of `stream/mod.rs`
//! - `topology`: devices whose copies do not do what they claim, in transfers and plans
//! - `transfer`: copies between devices, direct and staged, against a loop over elements
//! - `workers`: plans and streams on the workers of one device

mod buffers;
mod executor;
mod replay;
mod stream;
mod topology;
mod transfer;
mod workers;

use std::time::Duration;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{Deadline, DeviceSpec};
use syncline_runtime::{ExecutorOptions, UnifiedExecutor};
use syncline_testing::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Long enough on any machine; finite, so that nothing can hang.
fn in_time() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// An executor with CPU devices `cpu:0` and `cpu:1`, two compute lanes each.
fn two_devices(options: ExecutorOptions) -> (UnifiedExecutor, DeviceSpec, DeviceSpec) {
    let mut executor = UnifiedExecutor::with_options(options);
    let mut add = |index| {
        let options = CpuOptions::new(index).compute_lanes(2).memory_bytes(64 << 20);
        executor.add_device(CpuDevice::open(options).unwrap()).unwrap()
    };
    let (first, second) = (add(0), add(1));
    (executor, first, second)
}
