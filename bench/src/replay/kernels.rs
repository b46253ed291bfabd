//! What one kernel costs that is put on a lane by itself, without a plan.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{Deadline, Kernel, KernelArg};
use syncline_runtime::UnifiedExecutor;
use syncline_tensor::Dtype;

use crate::measure::figure;
use crate::row::Row;

/// `execute_kernel` of an empty closure, without arguments and with one, beside boxed closures
/// through a channel to a thread.
pub(super) fn run(count: u32, times: usize) -> Vec<Row> {
    let mut executor = UnifiedExecutor::new();
    let device = CpuDevice::open(CpuOptions::new(0).compute_lanes(1)).expect("a lane can be had");
    let buffer = device.buffer(64);
    let view = buffer.tensor(Dtype::F32, &[16]).expect("it is as large");
    let device = executor.add_device(device).expect("the first one");
    let empty = Kernel::cpu("empty", |_| ());
    let channel = figure((0..times).map(|_| through_a_channel(count)).collect()).median;
    let row = |work: &str, figure| {
        let row = Row::new("replay", work, "ns_per_kernel", u64::from(count), figure);
        row.beside("boxed closures, std::sync::mpsc", channel)
    };
    let mut rows = Vec::new();
    for (what, args) in [("no arguments", vec![]), ("one argument", vec![KernelArg::inout(view)])] {
        let (mut submits, mut totals) = (Vec::new(), Vec::new());
        for _ in 0..times {
            let began = Instant::now();
            for _ in 0..count {
                let point = executor.execute_kernel(device, &empty, args.clone(), vec![]);
                std::hint::black_box(point.expect("an empty kernel runs anywhere"));
            }
            submits.push(began.elapsed().as_nanos() as f64 / f64::from(count));
            executor.synchronize_all(Deadline::NEVER).expect("empty kernels do not fail");
            totals.push(began.elapsed().as_nanos() as f64 / f64::from(count));
        }
        rows.push(row(&format!("execute_kernel, {what}, submitted"), figure(submits)));
        rows.push(row(&format!("execute_kernel, {what}, submitted and run"), figure(totals)));
    }
    rows
}

fn through_a_channel(count: u32) -> f64 {
    let (sender, receiver) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
    let worker = thread::spawn(move || receiver.into_iter().for_each(|body| body()));
    let began = Instant::now();
    for at in 0..count {
        let body = Box::new(move || {
            std::hint::black_box(at);
        });
        sender.send(body).expect("the worker receives until the end");
    }
    drop(sender);
    worker.join().expect("bodies do not panic");
    began.elapsed().as_nanos() as f64 / f64::from(count)
}
