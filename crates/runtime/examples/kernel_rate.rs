//! What it costs to put kernels on a lane: an empty closure, and one with an argument.
//!
//! `cargo run --release -p syncline-runtime --example kernel_rate -- 1000000`

use std::hint::black_box;
use std::time::Instant;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{Deadline, Kernel, KernelArg};
use syncline_runtime::{ExecutorError, UnifiedExecutor};
use syncline_tensor::Dtype;

fn main() -> Result<(), ExecutorError> {
    let count: u32 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let mut executor = UnifiedExecutor::new();
    let device = executor.add_device(CpuDevice::open(CpuOptions::new(0).compute_lanes(1))?)?;
    let empty = Kernel::cpu("empty", |_| ());
    let buffer = executor.context(device)?.device().buffer(64);
    let view = buffer.tensor(Dtype::F32, &[16])?;

    for round in 0..5 {
        let began = Instant::now();
        for _ in 0..count {
            black_box(executor.execute_kernel(device, &empty, vec![], vec![])?);
        }
        let submitted = began.elapsed() / count;
        executor.synchronize_all(Deadline::NEVER)?;
        let done = began.elapsed() / count;

        let began = Instant::now();
        for _ in 0..count {
            let args = vec![KernelArg::inout(view.clone())];
            black_box(executor.execute_kernel(device, &empty, args, vec![])?);
        }
        executor.synchronize_all(Deadline::NEVER)?;
        let with_argument = began.elapsed() / count;
        println!(
            "{round}: empty {submitted:?} to submit, {done:?} in all; with an argument {with_argument:?}"
        );
    }
    Ok(())
}
