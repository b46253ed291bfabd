//! Between APIs: a staged copy beside its slower leg alone; and a plan on Vulkan beside its recording by hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_deps::{Arg, Dtype, View};
use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::registry::BackendProbe;
use syncline_device::{
    Backend, BufferView, Command, Deadline, Device, Grid, Kernel, KernelArg, KernelSource,
    LaneKind, Recording,
};
use syncline_plan::{BufferSpec, CompileOptions, ExecutionPlan, TaskGraph, TaskSpec};
use syncline_runtime::UnifiedExecutor;
use syncline_runtime::executor::machine_of;
use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};

use crate::Effort;
use crate::measure::figure;
use crate::row::Row;

const SOURCE: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> params: array<u32>;
@compute @workgroup_size(64)
fn bump(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < params[2]) { x[params[0] + id.x] += 1.0; }
}";
const ITEMS: u64 = 64;

pub fn run(effort: Effort) -> Vec<Row> {
    let open = |probe: &dyn BackendProbe| match probe.open(0) {
        Ok(device) => Some(device),
        Err(reason) => {
            eprintln!("device: no rows between APIs: {reason}");
            None
        }
    };
    let opened = (open(&syncline_vulkan::Probe::new()), open(&syncline_opencl::Probe::new()));
    let (Some(vulkan), Some(opencl)) = opened else { return Vec::new() };
    let (times, bytes, dispatches) = match effort {
        Effort::Smoke => (2, 1 << 20, 20),
        Effort::Quick => (9, 256 << 20, 1_000),
        Effort::Full => (21, 256 << 20, 1_000),
    };
    let mut rows = staged(&vulkan, &opencl, times, bytes);
    rows.extend(planned(&vulkan, times, dispatches));
    rows
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
    let seconds = |from: &BufferView, to: &BufferView| {
        let began = Instant::now();
        let done = executor.execute_transfer(from, to).expect("there is a way");
        done.wait(Deadline::after(Duration::from_secs(60))).expect("nothing fails");
        began.elapsed().as_secs_f64()
    };
    let gb = bytes as f64 / 1e9;
    let (mut both, mut out, mut on) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=times {
        let taken =
            [seconds(&source, &target), seconds(&source, &middle), seconds(&middle, &target)];
        // The first round touches memory for the first time.
        if round > 0 {
            both.push(gb / taken[0]);
            out.push(gb / taken[1]);
            on.push(gb / taken[2]);
        }
    }
    let (out, on) = (figure(out).median, figure(on).median);
    let row = Row::new("device", "copy Vulkan -> OpenCL, staged", "gb_per_s", bytes, figure(both));
    let slower =
        if out < on { "the leg Vulkan -> host alone" } else { "the leg host -> OpenCL alone" };
    vec![row.beside(slower, out.min(on))]
}

/// A chain of dispatches as a plan: bound once, run often.
fn planned(vulkan: &Arc<dyn Device>, times: usize, dispatches: u64) -> Vec<Row> {
    let source = KernelSource::new(SOURCE, "bump", [64, 1, 1]).grid(Grid::Elements { arg: 0 });
    let kernel = Kernel::builder("bump").source(Backend::Vulkan, source).build();
    let mut graph = TaskGraph::new();
    let x = graph.add_buffer(BufferSpec::external("x", ITEMS * 4)).expect("a buffer");
    let view = View::contiguous(Dtype::F32, &[ITEMS]).expect("a view");
    for _ in 0..dispatches {
        graph.submit(&TaskSpec::new("bump", &[Arg::inout(x, view)])).expect("a task");
    }
    let devices = [vulkan.clone()];
    let machine = machine_of(&devices, &[]).expect("one device");
    let plan = ExecutionPlan::compile(&graph, &machine, &CompileOptions::default());
    let plan = Arc::new(plan.expect("it fits"));
    let body = |_: syncline_plan::TaskInfo<'_>, _| Some(TaskBody::kernel(&kernel, []));
    let mut loaded = LoadedPlan::load(plan, &devices, body).expect("a Vulkan device");
    let buffer = vulkan.buffer(ITEMS * 4);
    buffer.write(0, &[0f32; ITEMS as usize]).expect("it fits");
    let bindings = Bindings::new().bind("x", &buffer);
    let mut bound = loaded.bind(&bindings).expect("the right buffer");

    let other = vulkan.buffer(ITEMS * 4);
    other.write(0, &[0f32; ITEMS as usize]).expect("it fits");
    let other = other.view(view).expect("all of it");
    let bump = || Command::dispatch(&kernel, vec![KernelArg::inout(other.clone())], vec![]);
    let recording = Recording::new((0..dispatches).map(|_| bump()).collect());
    let recording = Arc::new(recording.expect("dispatches can be recorded"));
    let lane = vulkan.lane(LaneKind::Compute);
    let submit = |command: Command| {
        let point = lane.submit(command.into()).expect("a sound lane");
        point.wait(Deadline::NEVER).expect("nothing fails");
    };
    let (mut ours, mut by_hand, mut each) = (Vec::new(), Vec::new(), Vec::new());
    let ns = |began: Instant| began.elapsed().as_nanos() as f64 / dispatches as f64;
    for round in 0..=times {
        let began = Instant::now();
        bound.run().expect("nothing fails");
        let planned = ns(began);
        let began = Instant::now();
        submit(Command::recording(&recording));
        let recorded = ns(began);
        let began = Instant::now();
        (0..dispatches).for_each(|_| submit(bump()));
        // The first round compiles and records.
        if round > 0 {
            ours.push(planned);
            by_hand.push(recorded);
            each.push(ns(began));
        }
    }
    let row = Row::new(
        "device",
        "Vulkan dispatch in a plan that is replayed",
        "ns_per_dispatch",
        dispatches,
        figure(ours),
    );
    vec![
        row.beside("its recording submitted by hand", figure(by_hand).median),
        row.beside("submit and wait each", figure(each).median),
    ]
}
