//! Between APIs: a staged copy beside its slower leg alone.

use std::sync::Arc;
use std::time::Duration;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::registry::BackendProbe;
use syncline_device::{BufferView, Deadline, Device};
use syncline_runtime::UnifiedExecutor;

use crate::Effort;
use crate::measure::{Side, figure, interleaved};
use crate::row::Row;

pub(super) fn run(effort: Effort) -> Vec<Row> {
    let open = |probe: &dyn BackendProbe| match probe.open(0) {
        Ok(device) => Some(device),
        Err(reason) => {
            eprintln!("device: no rows between APIs: {reason}");
            None
        }
    };
    let opened = (open(&syncline_vulkan::Probe::new()), open(&syncline_opencl::Probe::new()));
    let (Some(vulkan), Some(opencl)) = opened else { return Vec::new() };
    let (times, bytes) = match effort {
        Effort::Smoke => (2, 1 << 20),
        Effort::Quick => (9, 256 << 20),
        Effort::Full => (21, 256 << 20),
    };
    staged(&vulkan, &opencl, times, bytes)
}

/// From Vulkan to OpenCL through the host, beside each of the two legs alone.
fn staged(
    vulkan: &Arc<dyn Device>,
    opencl: &Arc<dyn Device>,
    times: usize,
    bytes: u64,
) -> Vec<Row> {
    let cpu = CpuDevice::open(CpuOptions::new(0)).expect("threads");
    let mut executor = UnifiedExecutor::new();
    for device in [&cpu, vulkan, opencl] {
        executor.add_device(device.clone()).expect("each once");
    }
    let view = |device: &Arc<dyn Device>| {
        let buffer = device.buffer(bytes);
        buffer.write(0, &vec![1u8; bytes as usize]).expect("it fits");
        buffer.all()
    };
    let (source, middle, target) = (view(vulkan), view(&cpu), view(opencl));
    let transfer = |from: &BufferView, to: &BufferView| {
        let done = executor.execute_transfer(from, to).expect("there is a way");
        done.wait(Deadline::after(Duration::from_secs(60))).expect("nothing fails");
    };
    let mut sides = [
        Side::new("both legs", || transfer(&source, &target)),
        Side::new("the leg Vulkan -> host alone", || transfer(&source, &middle)),
        Side::new("the leg host -> OpenCL alone", || transfer(&middle, &target)),
    ];
    let samples = interleaved(times, &mut sides);
    let rate = |times: Vec<f64>| figure(times.into_iter().map(|ns| bytes as f64 / ns).collect());
    let rates: Vec<_> = samples.into_iter().map(rate).collect();
    let row = Row::new("device", "copy Vulkan -> OpenCL, staged", "gb_per_s", bytes, rates[0]);
    let slower = if rates[1].median < rates[2].median { 1 } else { 2 };
    vec![row.beside(sides[slower].name, rates[slower].median)]
}
