//! Vulkan: a chain of small kernels as one recording, beside plain `ash` and `wgpu`; copies beside memcpy.

use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use syncline_deps::Dtype;
use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::registry::BackendProbe;
use syncline_device::{
    Backend, Buffer, Command, Deadline, Device, Grid, Kernel, KernelArg, KernelSource, LaneKind,
    Recording,
};
use syncline_vulkan::Probe;

use super::ash_peer::ByHand;
use crate::Effort;
use crate::measure::{Figure, figure};
use crate::row::Row;

/// The kernel of all rows: adds one to `params[2]` elements, from `params[0]` on.
pub const SOURCE: &str = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> params: array<u32>;
@compute @workgroup_size(64)
fn bump(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params[2] { x[params[0] + id.x] += 1.0; }
}";
/// Elements, and work items of the only group.
pub const ITEMS: usize = 64;

pub fn run(effort: Effort) -> Vec<Row> {
    let probe = Probe::new();
    let device = match probe.probe() {
        Ok(_) => probe.open(0).expect("the driver lists it"),
        Err(reason) => {
            eprintln!("device: no Vulkan rows: {reason}");
            return Vec::new();
        }
    };
    let (times, dispatches, bytes) = match effort {
        Effort::Smoke => (2, 20, 1 << 20),
        Effort::Quick => (21, 1_000, 64 << 20),
        Effort::Full => (61, 1_000, 64 << 20),
    };
    let mut rows = chain(&device, times, dispatches);
    rows.extend(copies(&device, times, bytes));
    rows
}

/// A chain of kernels that each add one to the same elements.
fn chain(device: &Arc<dyn Device>, times: usize, dispatches: usize) -> Vec<Row> {
    let source = KernelSource::new(SOURCE, "bump", [ITEMS as u32, 1, 1]);
    let source = source.grid(Grid::Elements { arg: 0 });
    let kernel = Kernel::builder("bump").source(Backend::Vulkan, source).build();
    let buffer = device.buffer(4 * ITEMS as u64);
    buffer.write(0, &[0f32; ITEMS]).expect("it fits");
    let view = buffer.tensor(Dtype::F32, &[ITEMS as u64]).expect("it fits");
    let bump = || Command::dispatch(&kernel, vec![KernelArg::inout(view.clone())], vec![]);
    let recording = Recording::new((0..dispatches).map(|_| bump()).collect());
    let recording = Arc::new(recording.expect("dispatches can be recorded"));
    let lane = device.lane(LaneKind::Compute);
    let run = |command: Command| {
        let point = lane.submit(command.into()).expect("a sound lane");
        point.wait(Deadline::NEVER).expect("nothing fails");
    };
    let replay = || run(Command::recording(&recording));
    let hand = ByHand::new(dispatches);
    #[cfg(feature = "wgpu")]
    let wgpu = super::wgpu_peer::Wgpu::new();
    replay();
    hand.at_once();
    let [mut ours, mut each, mut at_once, mut one_by_one] = [const { Samples(Vec::new()) }; 4];
    #[cfg(feature = "wgpu")]
    let mut encoder = Samples(Vec::new());
    for _ in 0..times {
        ours.take(dispatches, replay);
        at_once.take(dispatches, || hand.at_once());
        #[cfg(feature = "wgpu")]
        encoder.take(dispatches, || wgpu.one_encoder(dispatches));
        each.take(dispatches, || (0..dispatches).for_each(|_| run(bump())));
        one_by_one.take(dispatches, || (0..dispatches).for_each(|_| hand.one()));
    }
    let row = Row::new(
        "device",
        "Vulkan: a chain of small kernels, one recording",
        "ns_per_dispatch",
        dispatches as u64,
        ours.figure(),
    );
    let mut rows = vec![
        row.beside("submit and wait each", each.figure().median),
        row.beside("ash, submit and wait each", one_by_one.figure().median),
        row.beside("limit:ash", at_once.figure().median),
    ];
    #[cfg(feature = "wgpu")]
    rows.push(row.beside("wgpu, one encoder", encoder.figure().median));
    rows.shrink_to_fit();
    rows
}

/// Copies between memory of the CPU and of the device.
fn copies(device: &Arc<dyn Device>, times: usize, bytes: u64) -> Vec<Row> {
    let cpu = CpuDevice::open(CpuOptions::new(0).compute_lanes(1)).expect("there is a CPU");
    let (here, there) = (cpu.buffer(bytes), device.buffer(bytes));
    let from = vec![1u8; bytes as usize];
    let mut to = vec![2u8; bytes as usize];
    here.write(0, &from).expect("it fits");
    there.write(0, &from).expect("it fits");
    let lane = device.lane(LaneKind::Copy);
    let copy = |source: &Buffer, target: &Buffer| {
        let point = lane.submit(Command::copy(source.all(), target.all()).into());
        point.expect("a sound lane").wait(Deadline::NEVER).expect("nothing fails");
    };
    let mut samples = [const { Samples(Vec::new()) }; 5];
    for _ in 0..times {
        samples[0].take(1, || {
            // SAFETY: both are vectors of `bytes` bytes.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), bytes as usize) };
            std::hint::black_box(&mut to);
        });
        samples[1].take(1, || copy(&here, &there));
        samples[2].take(1, || copy(&there, &here));
        samples[3].take(1, || there.write(0, &from).expect("it fits"));
        samples[4].take(1, || there.read_into(0, &mut to, Deadline::NEVER).expect("it fits"));
    }
    let rates = samples.map(|of| of.rate(bytes));
    let names = [
        "copied to the device",
        "copied from the device",
        "written by the host",
        "read by the host",
    ];
    let row = |name: &str, rate: &Figure| {
        let work = format!("Vulkan: {} MiB {name}", bytes >> 20);
        Row::new("device", work, "gb_per_s", bytes, *rate).beside("memcpy", rates[0].median)
    };
    names.iter().zip(&rates[1..]).map(|(name, rate)| row(name, rate)).collect()
}

/// Times of one kind, taken in turns with those of others.
struct Samples(Vec<f64>);

impl Samples {
    fn take(&mut self, count: usize, run: impl FnOnce()) {
        let start = Instant::now();
        run();
        self.0.push(start.elapsed().as_nanos() as f64 / count as f64);
    }

    fn figure(self) -> Figure {
        figure(self.0)
    }

    fn rate(self, bytes: u64) -> Figure {
        figure(self.0.into_iter().map(|ns| bytes as f64 / ns).collect())
    }
}
