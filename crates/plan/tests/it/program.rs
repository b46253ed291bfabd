//! Random programs: views of all kinds over a few buffers, all accesses, scopes and explicit deps.

use syncline_deps::ScopeKind;
use syncline_plan::{
    BufferSpec, CompileOptions, DeviceIndex, DeviceModel, ExecutionPlan, Machine, Route, TaskGraph,
    TaskSpec,
};
use syncline_tensor::{Access, Arg, BufferId, Dtype, TaskId, View};
use syncline_testing::Rng;

const BUFFER_BYTES: u64 = 96;

/// Any machine: one to three devices, one to four lanes, with and without copy lanes, with routes
/// of all kinds.
pub fn any_machine(rng: &mut Rng) -> Machine {
    let devices = (0..rng.range(1..4))
        .map(|at| {
            let device = DeviceModel::new(format!("cpu:{at}"), rng.range(1..5) as u16);
            if rng.one_in(2) { device.without_copy_lane() } else { device }
        })
        .collect();
    let machine = Machine::new(devices).unwrap().with_sync_ns(*rng.pick(&[0, 20, 150, 5_000]));
    with_any_routes(rng, machine)
}

/// The machine with any routes: bytes pulled, pushed, and through a third device in pieces of any
/// size.
pub fn with_any_routes(rng: &mut Rng, machine: Machine) -> Machine {
    let count = machine.devices().len() as u16;
    let mut machine = machine.with_piece_bytes(rng.range(1..100)).unwrap();
    for source in (0..count).map(DeviceIndex) {
        for target in (0..count).map(DeviceIndex).filter(|&target| target != source) {
            let through = DeviceIndex(rng.range(0..u64::from(count)) as u16);
            let route = *rng.pick(&[Route::Pull, Route::Push, Route::Through(through)]);
            // What would not be two direct copies is refused, and stays as it was.
            machine = machine.clone().with_route(source, target, route).unwrap_or(machine);
        }
    }
    machine
}

/// Any view of a buffer of [`BUFFER_BYTES`]: rows, columns, tiles, reversed, in elements of several
/// sizes.
pub fn any_view(rng: &mut Rng) -> View {
    let dtype = *rng.pick(&[Dtype::U8, Dtype::U16, Dtype::U32]);
    let columns = 8 / dtype.bytes();
    let matrix = View::contiguous(dtype, &[BUFFER_BYTES / 8, columns]).unwrap();
    let range = |rng: &mut Rng, size: u64| {
        let start = rng.range(0..size);
        start..rng.range(start..size) + 1
    };
    match rng.below(6) {
        0 => matrix,
        1 => {
            let (rows, columns) = (range(rng, BUFFER_BYTES / 8), range(rng, columns));
            matrix.slice(0, rows).unwrap().slice(1, columns).unwrap()
        }
        2 => matrix.index(1, rng.range(0..columns)).unwrap(),
        3 => matrix.split(0, 3, rng.range(0..3)).unwrap().transpose(0, 1).unwrap(),
        4 => {
            let last = BUFFER_BYTES - dtype.bytes();
            let stride = -(dtype.bytes() as i64 * 2);
            View::strided(dtype, last, &[rng.range(0..6)], &[stride]).unwrap()
        }
        _ => matrix.split(0, 2, rng.range(0..2)).unwrap(),
    }
}

/// A program of up to `tasks_max` tasks on any of the machine's devices.
pub fn any_graph(rng: &mut Rng, machine: &Machine, tasks_max: u64) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let names: Vec<&str> = machine.devices().iter().map(|device| &*device.name).collect();
    let externals: Vec<BufferId> = (0..rng.range(1..4))
        .map(|at| {
            let name = format!("x{at}");
            let spec = BufferSpec::external(&name, BUFFER_BYTES).on(names[rng.below(names.len())]);
            graph.add_buffer(spec).unwrap()
        })
        .collect();
    let mut temporaries: Vec<BufferId> = Vec::new();
    let mut ids: Vec<TaskId> = Vec::new();
    for at in 0..rng.range(1..tasks_max + 1) {
        if rng.one_in(12) && temporaries.len() < 6 {
            // A temporary that is whole from its first task on.
            let name = format!("t{at}");
            let buffer = graph.add_buffer(BufferSpec::temporary(&name, BUFFER_BYTES)).unwrap();
            let all = View::bytes_at(0, BUFFER_BYTES).unwrap();
            let args = [Arg::output(buffer, all)];
            ids.push(submit(rng, &mut graph, &names, &args, &[]));
            temporaries.push(buffer);
            continue;
        }
        let mut args: Vec<Arg> = Vec::new();
        for _ in 0..rng.range(1..4) {
            let buffer = match temporaries.is_empty() || rng.one_in(2) {
                true => *rng.pick(&externals),
                false => *rng.pick(&temporaries),
            };
            let access = *rng.pick(&[
                Access::Input,
                Access::Input,
                Access::InOut,
                Access::OutputExisting,
                Access::Commutative,
                Access::Reduce,
                Access::NoDep,
            ]);
            args.push(Arg::new(access, buffer, any_view(rng)));
        }
        let deps: Vec<TaskId> = match ids.is_empty() || !rng.one_in(5) {
            true => vec![],
            false => vec![*rng.pick(&ids)],
        };
        ids.push(submit(rng, &mut graph, &names, &args, &deps));
        if rng.one_in(25) {
            manual_chain(rng, &mut graph, &names, &externals, &mut ids);
        }
    }
    graph
}

/// A manual scope whose tasks are ordered by explicit deps, each after all that came before.
fn manual_chain(
    rng: &mut Rng,
    graph: &mut TaskGraph,
    names: &[&str],
    externals: &[BufferId],
    ids: &mut Vec<TaskId>,
) {
    graph.enter_scope(ScopeKind::Manual);
    for _ in 0..rng.range(1..4) {
        let deps = ids.clone();
        let args = [
            Arg::input(*rng.pick(externals), any_view(rng)),
            Arg::inout(*rng.pick(externals), any_view(rng)),
        ];
        ids.push(submit(rng, graph, names, &args, &deps));
    }
    graph.leave_scope().unwrap();
}

fn submit(
    rng: &mut Rng,
    graph: &mut TaskGraph,
    names: &[&str],
    args: &[Arg],
    deps: &[TaskId],
) -> TaskId {
    let name = format!("k{}", rng.below(4));
    let cost_ns = *rng.pick(&[0, 5, 200, 1_000, 30_000]);
    let priority = *rng.pick(&[0, 0, 0, 1, -1]);
    let spec = TaskSpec::new(&name, args).deps(deps).cost_ns(cost_ns).priority(priority);
    let spec = match rng.below(3) {
        0 => spec,
        1 => spec.on(names[rng.below(names.len())]),
        _ => spec.on_one_of(&names[rng.below(names.len())..]),
    };
    graph.submit(&spec).unwrap()
}

/// The plan of any program on any machine.
pub fn any_plan(rng: &mut Rng, tasks_max: u64) -> (TaskGraph, Machine, ExecutionPlan) {
    let machine = any_machine(rng);
    let graph = any_graph(rng, &machine, tasks_max);
    let plan = ExecutionPlan::compile(&graph, &machine, &CompileOptions::default()).unwrap();
    (graph, machine, plan)
}

/// `width` columns by `steps` rows; each task reads its neighbours of the row before.
pub fn stencil(width: u64, steps: u64) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let rows: Vec<BufferId> = ["even", "odd"]
        .iter()
        .map(|name| graph.add_buffer(BufferSpec::external(name, width * 64)).unwrap())
        .collect();
    let cell = |at: u64| View::bytes_at(at * 64, 64).unwrap();
    for step in 0..steps {
        let (from, to) = (rows[step as usize % 2], rows[(step as usize + 1) % 2]);
        for at in 0..width {
            let near = at.saturating_sub(1)..(at + 2).min(width);
            let mut args: Vec<Arg> = near.map(|at| Arg::input(from, cell(at))).collect();
            args.push(Arg::output_existing(to, cell(at)));
            graph.submit(&TaskSpec::new("stencil", &args)).unwrap();
        }
    }
    graph
}
