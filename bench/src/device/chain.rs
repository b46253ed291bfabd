//! A chain of small kernels on one device, each behind the one before: as a recording, as a plan,
//! and one by one.

use std::sync::Arc;

use syncline_device::{
    Backend, Command, Deadline, Device, Grid, Kernel, KernelArg, KernelSource, LaneKind, Recording,
};
use syncline_plan::{BufferSpec, CompileOptions, ExecutionPlan, TaskGraph, TaskInfo, TaskSpec};
use syncline_runtime::executor::machine_of;
use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};
use syncline_tensor::{Arg, Dtype, View};

use crate::measure::{Figure, Side, figure, interleaved};
use crate::row::Row;

/// Elements that each kernel adds one to, and work items of its only group.
pub(super) const ITEMS: usize = 64;

/// The chain of `dispatches` kernels `text` (a function `bump` of one `f32` argument), in rounds
/// with what `peers` do.
pub(super) fn run(
    device: &Arc<dyn Device>,
    text: &'static str,
    dispatches: usize,
    times: usize,
    peers: Vec<Side<'_>>,
) -> Vec<Row> {
    let backend = device.spec().backend;
    let group = [ITEMS as u32, 1, 1];
    let source = match backend {
        Backend::Vulkan => KernelSource::wgsl(text, "bump", group),
        // SAFETY: it is called with as many elements as it has work items.
        _ => unsafe { KernelSource::native(backend, text, "bump", group) },
    };
    let source = source.grid(Grid::Elements { arg: 0 });
    let kernel = Kernel::builder("bump").source(source).build();
    let buffer = || {
        let buffer = device.buffer(4 * ITEMS as u64);
        buffer.write(0, &[0f32; ITEMS]).expect("it fits");
        buffer
    };

    let view = buffer().tensor(Dtype::F32, &[ITEMS as u64]).expect("it fits");
    let bump = || Command::dispatch(&kernel, vec![KernelArg::inout(view.clone())], vec![]);
    let recording = Recording::new((0..dispatches).map(|_| bump()).collect());
    let recording = Arc::new(recording.expect("dispatches can be recorded"));
    let lane = device.lane(LaneKind::Compute);
    let submit = |command: Command| {
        let point = lane.submit(command.into()).expect("a sound lane");
        point.wait(Deadline::NEVER).expect("nothing fails");
    };

    let mut loaded = load(device, &kernel, dispatches);
    let bindings = Bindings::new().bind("x", &buffer());
    let mut bound = loaded.bind(&bindings).expect("the right buffer");

    let mut sides = vec![
        Side::new("its recording", || submit(Command::recording(&recording))),
        Side::new("plan", || bound.run().expect("nothing fails")),
        Side::new("submit and wait each", || (0..dispatches).for_each(|_| submit(bump()))),
    ];
    sides.extend(peers);
    let samples = interleaved(times, &mut sides);
    let per_dispatch =
        |times: Vec<f64>| figure(times.into_iter().map(|ns| ns / dispatches as f64).collect());
    let figures: Vec<Figure> = samples.into_iter().map(per_dispatch).collect();
    let row = |how: &str, figure: Figure| {
        let work = format!("{backend}: a chain of small kernels, {how}");
        Row::new("device", work, "ns_per_dispatch", dispatches as u64, figure)
    };
    let (recorded, planned) =
        (row("one recording", figures[0]), row("a replayed plan", figures[1]));
    let beside = |row: &Row, from: usize| -> Vec<Row> {
        let others = sides.iter().zip(&figures).skip(from);
        others.map(|(side, figure)| row.beside(side.name, figure.median)).collect()
    };
    let mut rows = beside(&recorded, 2);
    rows.push(planned.beside(sides[0].name, figures[0].median));
    rows.extend(beside(&planned, 2));
    rows
}

/// The chain as a plan for `device`.
fn load(device: &Arc<dyn Device>, kernel: &Kernel, dispatches: usize) -> LoadedPlan {
    let mut graph = TaskGraph::new();
    let x = graph.add_buffer(BufferSpec::external("x", 4 * ITEMS as u64)).expect("a buffer");
    let view = View::contiguous(Dtype::F32, &[ITEMS as u64]).expect("a view");
    for _ in 0..dispatches {
        graph.submit(&TaskSpec::new("bump", &[Arg::inout(x, view)])).expect("a task");
    }
    let devices = [device.clone()];
    let machine = machine_of(&devices, &[]).expect("one device");
    let plan = ExecutionPlan::compile(&graph, &machine, &CompileOptions::default());
    let body = |_: TaskInfo<'_>, _| Some(TaskBody::kernel(kernel, []));
    LoadedPlan::load(Arc::new(plan.expect("it fits")), &devices, body).expect("kernels for it")
}
