//! Random integer programs over CPU, Vulkan and OpenCL in one plan: every byte as a serial run of
//! plain code gives it.

use std::collections::HashMap;
use std::sync::Arc;

use syncline::device::{Buffer, Device, DeviceSpec, Scalar};
use syncline::kernels::Library;
use syncline::plan::{
    BufferSpec, CompileOptions, Copy, ExecutionPlan, Machine, OpKind, TaskGraph, TaskSpec,
};
use syncline::runtime::executor::machine_of;
use syncline::runtime::replay::{Bindings, LoadOptions, LoadedPlan, TaskBody};
use syncline::tensor::{Arg, BufferId, Dtype, View};
use syncline_testing::{Rng, for_seeds};

use crate::devices;

/// Elements of a buffer: a matrix of this side.
const SIDE: u64 = 12;

/// What a task does, in a form that plain code can follow.
struct Step {
    kernel: &'static str,
    scalar: i64,
    /// Buffer and view; the last one is written.
    args: Vec<(usize, View)>,
}

/// Any tile, its rows and columns of a fixed size; now and then transposed.
fn any_tile(rng: &mut Rng, size: u64) -> View {
    let matrix = View::contiguous(Dtype::I32, &[SIDE, SIDE]).unwrap();
    let matrix = if rng.one_in(4) { matrix.transpose(0, 1).unwrap() } else { matrix };
    let (row, column) = (rng.range(0..SIDE - size + 1), rng.range(0..SIDE - size + 1));
    matrix.slice(0, row..row + size).unwrap().slice(1, column..column + size).unwrap()
}

fn any_step(rng: &mut Rng, buffers: usize) -> Step {
    let kernel = *rng.pick(&["fill", "copy", "add", "sub", "mul", "scale", "axpy"]);
    let inputs = match kernel {
        "fill" => 0,
        "copy" | "scale" | "axpy" => 1,
        _ => 2,
    };
    let size = *rng.pick(&[1, 3, 5, SIDE]);
    let target = rng.below(buffers);
    // Kernels do not promise anything for an output that overlaps an input: the others are other
    // buffers.
    let other = |rng: &mut Rng| (target + 1 + rng.below(buffers - 1)) % buffers;
    let mut args: Vec<(usize, View)> =
        (0..inputs).map(|_| (other(rng), any_tile(rng, size))).collect();
    args.push((target, any_tile(rng, size)));
    Step { kernel, scalar: rng.range(0..9) as i64 - 4, args }
}

/// Runs a step on plain vectors, element by element.
fn run_plainly(step: &Step, buffers: &mut [Vec<i32>]) {
    let place = |view: &View, row: u64, column: u64| {
        let offset = row as i64 * view.strides()[0] + column as i64 * view.strides()[1];
        ((view.offset() as i64 + offset) / 4) as usize
    };
    let (target, target_view) = step.args.last().unwrap();
    let shape = target_view.shape();
    for row in 0..shape[0] {
        for column in 0..shape[1] {
            let read = |at: usize| {
                let (buffer, view) = &step.args[at];
                buffers[*buffer][place(view, row, column)]
            };
            let alpha = step.scalar as i32;
            let value = match step.kernel {
                "fill" => alpha,
                "copy" => read(0),
                "add" => read(0).wrapping_add(read(1)),
                "sub" => read(0).wrapping_sub(read(1)),
                "mul" => read(0).wrapping_mul(read(1)),
                "scale" => read(0).wrapping_mul(alpha),
                _ => read(1).wrapping_add(read(0).wrapping_mul(alpha)),
            };
            buffers[*target][place(target_view, row, column)] = value;
        }
    }
}

fn graph_of(steps: &[Step], homes: &[String], machine: &Machine, rng: &mut Rng) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let ids: Vec<BufferId> = (homes.iter().enumerate())
        .map(|(at, home)| {
            let name = format!("b{at}");
            let spec = BufferSpec::external(&name, SIDE * SIDE * 4).on(home);
            graph.add_buffer(spec).unwrap()
        })
        .collect();
    for step in steps {
        let last = step.args.len() - 1;
        let args: Vec<Arg> = (step.args.iter().enumerate())
            .map(|(at, &(buffer, view))| match (at == last, step.kernel) {
                (false, _) => Arg::input(ids[buffer], view),
                (true, "axpy") => Arg::inout(ids[buffer], view),
                (true, _) => Arg::output_existing(ids[buffer], view),
            })
            .collect();
        let device = &machine.devices()[rng.below(machine.devices().len())].name;
        graph.submit(&TaskSpec::new(step.kernel, &args).on(device)).unwrap();
    }
    graph
}

/// No byte goes twice from one memory to another between two writes of it: every copy has a use of
/// its own.
fn check_copies(plan: &ExecutionPlan) {
    let mut last: HashMap<(u32, u32, u64), u32> = HashMap::new();
    let mut writes: HashMap<(u64, u64), u32> = HashMap::new();
    let bytes = |view: &View| -> Vec<u64> {
        let mut places = vec![view.offset() as i64];
        for (&size, &stride) in view.shape().iter().zip(view.strides()) {
            places = (places.iter())
                .flat_map(|&place| (0..size as i64).map(move |at| place + at * stride))
                .collect();
        }
        let size = view.dtype().bytes();
        places.iter().flat_map(|&place| place as u64..place as u64 + size).collect()
    };
    for op in serial_order(plan) {
        match plan.ops()[op].kind {
            OpKind::Task(task) => {
                for arg in plan.args_of(task).filter(|arg| arg.access.writes()) {
                    let buffer = plan.memories()[arg.memory.index()].buffer.0;
                    for byte in bytes(arg.view) {
                        *writes.entry((buffer, byte)).or_insert(0) += 1;
                    }
                }
            }
            OpKind::Copy(copy) => {
                let Copy { source, target, views } = &plan.copies()[copy.index()];
                let buffer = plan.memories()[source.index()].buffer.0;
                for byte in views.iter().flat_map(bytes) {
                    let version = writes.get(&(buffer, byte)).copied().unwrap_or(0);
                    let before = last.insert((source.0, target.0, byte), version);
                    assert!(before != Some(version), "byte {byte} moved twice\n{}", plan.to_text());
                }
            }
        }
    }
}

/// The ops in an order in which they could run one by one.
fn serial_order(plan: &ExecutionPlan) -> Vec<usize> {
    let mut done = vec![0usize; plan.lanes().len()];
    let mut order = Vec::new();
    while order.len() < plan.ops().len() {
        for (lane, record) in plan.lanes().iter().enumerate() {
            while done[lane] < record.count as usize {
                let op = record.first.index() + done[lane];
                let waits = plan.waits_of(&plan.ops()[op]);
                if waits.iter().any(|wait| done[wait.lane.index()] < wait.count as usize) {
                    break;
                }
                order.push(op);
                done[lane] += 1;
            }
        }
    }
    order
}

fn run_random(rng: &mut Rng, devices: &[Arc<dyn Device>], machine: &Machine, library: &Library) {
    let count = 2 + rng.below(3);
    let steps: Vec<Step> = (0..rng.range(1..40)).map(|_| any_step(rng, count)).collect();
    let home = |rng: &mut Rng| machine.devices()[rng.below(machine.devices().len())].name.clone();
    let homes: Vec<String> = (0..count).map(|_| home(rng)).collect();
    let graph = graph_of(&steps, &homes, machine, rng);
    let plan = ExecutionPlan::compile(&graph, machine, &CompileOptions::default()).unwrap();
    plan.check().unwrap();
    check_copies(&plan);
    let plan = Arc::new(plan);
    let body = |task: syncline::plan::TaskInfo<'_>, _: DeviceSpec| {
        let step = &steps[task.index().index()];
        let kernel = &library.get(step.kernel).unwrap().kernel;
        let scalars: &[Scalar] = match step.kernel {
            "fill" | "scale" | "axpy" => &[Scalar::I64(step.scalar)],
            _ => &[],
        };
        Some(TaskBody::kernel(kernel, scalars))
    };
    let options = LoadOptions::default();
    let options = if rng.one_in(3) { options.split() } else { options };
    let mut loaded = LoadedPlan::load_with(plan.clone(), devices, body, options).unwrap();
    let mut expected: Vec<Vec<i32>> = Vec::new();
    let mut buffers: Vec<Buffer> = Vec::new();
    let mut bindings = Bindings::new();
    for (_, memory) in plan.bound_memories() {
        let contents: Vec<i32> = (0..SIDE * SIDE).map(|_| rng.next_u64() as i32).collect();
        let buffer = devices[memory.device.index()].buffer(memory.bytes);
        buffer.write(0, &contents).unwrap();
        bindings = bindings.bind_id(memory.buffer, &buffer);
        buffers.push(buffer);
        expected.push(contents);
    }
    for run in 0..2 {
        steps.iter().for_each(|step| run_plainly(step, &mut expected));
        loaded.run(&bindings).unwrap();
        for (at, (buffer, expected)) in buffers.iter().zip(&expected).enumerate() {
            let found: Vec<i32> = buffer.read(0, expected.len()).unwrap();
            assert_eq!(&found, expected, "buffer {at}, run {run} of\n{}", plan.to_text());
        }
    }
}

#[test]
fn random_programs_over_all_devices_equal_the_serial_run() {
    let Some(devices) = devices() else { return };
    let machine = machine_of(&devices, &[]).unwrap().with_piece_bytes(100).unwrap();
    let library = Library::builtin();
    for_seeds("random_programs_over_all_devices_equal_the_serial_run", 25, |rng| {
        run_random(rng, &devices, &machine, &library);
    });
}
