//! Random programs: every plan run equals the serial run, bit for bit.

use std::collections::HashMap;
use std::sync::Arc;

use syncline_device::Buffer;
use syncline_plan::{BufferKind, DeviceModel, Machine, TaskGraph, TaskInfo};
use syncline_runtime::replay::{Bindings, LoadOptions, LoadedPlan, RunTicket, Steal};
use syncline_tensor::BufferId;
use syncline_testing::{Rng, for_seeds};

use super::{compile, devices, serial};

#[allow(dead_code)]
#[path = "../../../../plan/tests/it/program.rs"]
mod program;

/// Runs `graph` a few times on `machine` and beside it serially, and compares all that the caller
/// can see.
fn compare(rng: &mut Rng, graph: &TaskGraph, machine: &Machine) {
    compare_with(rng, graph, machine, LoadOptions::default());
}

fn compare_with(rng: &mut Rng, graph: &TaskGraph, machine: &Machine, options: LoadOptions) {
    let plan = compile(graph, machine);
    let mut expected: HashMap<BufferId, Vec<u8>> = HashMap::new();
    let mut bound: Vec<(BufferId, Buffer)> = Vec::new();
    let mut bindings = Bindings::new();
    for (_, memory) in plan.bound_memories() {
        let bytes: Vec<u8> = (0..memory.bytes).map(|_| rng.next_u64() as u8).collect();
        let buffer = devices()[memory.device.index()].buffer(memory.bytes);
        buffer.write(0, &bytes).unwrap();
        expected.insert(memory.buffer, bytes);
        bindings = bindings.bind_id(memory.buffer, &buffer);
        bound.push((memory.buffer, buffer));
    }
    let steal = *rng.pick(&[Steal::Off, Steal::On]);
    let body = |task: TaskInfo<'_>, _| {
        Some(match options.on_device_lanes.is_empty() {
            true => serial::body(task),
            false => serial::kernel(task),
        })
    };
    let options = options.clone().with_steal(steal);
    let mut loaded = LoadedPlan::load_with(Arc::clone(&plan), devices(), body, options).unwrap();
    for _ in 0..2 {
        // One run after the other, or several that overlap.
        let runs = *rng.pick(&[1, 1, 3, 6]);
        let mut on_buffers = loaded.bind(&bindings).unwrap();
        match runs {
            1 => on_buffers.run().unwrap(),
            _ => {
                let tickets: Vec<RunTicket> =
                    (0..runs).map(|_| on_buffers.start().unwrap()).collect();
                tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
            }
        }
        drop(on_buffers);
        (0..runs).for_each(|_| serial::run(graph, &mut expected));
        for (id, buffer) in &bound {
            let found: Vec<u8> = buffer.read(0, buffer.bytes() as usize).unwrap();
            let plan = plan.to_text();
            assert_eq!(found, expected[id], "buffer {id}, {steal:?}, {runs} runs of\n{plan}");
        }
    }
    assert!(graph.buffers().all(|buffer| {
        buffer.kind == BufferKind::Temporary || bound.iter().any(|(id, _)| *id == buffer.id)
    }));
}

fn on_lanes(test: &str, lanes: u16) {
    for_seeds(test, 60, |rng| {
        let machine = Machine::cpu(lanes).with_sync_ns(*rng.pick(&[0, 50, 2_000]));
        let graph = program::any_graph(rng, &machine, 40);
        compare(rng, &graph, &machine);
    });
}

#[test]
fn one_lane_equals_the_serial_run() {
    on_lanes("one_lane_equals_the_serial_run", 1);
}

#[test]
fn two_lanes_equal_the_serial_run() {
    on_lanes("two_lanes_equal_the_serial_run", 2);
}

#[test]
fn four_lanes_equal_the_serial_run() {
    on_lanes("four_lanes_equal_the_serial_run", 4);
}

#[test]
fn two_devices_equal_the_serial_run() {
    for_seeds("two_devices_equal_the_serial_run", 60, |rng| {
        let device = |at: u16| DeviceModel::new(format!("cpu:{at}"), 1 + at);
        let mut models = vec![device(0), device(1)];
        if rng.one_in(2) {
            models = models.into_iter().map(DeviceModel::without_copy_lane).collect();
        }
        let machine = Machine::new(models).unwrap().with_sync_ns(*rng.pick(&[0, 50, 2_000]));
        let graph = program::any_graph(rng, &machine, 40);
        compare(rng, &graph, &machine);
    });
}

#[test]
fn any_machine_equals_the_serial_run() {
    for_seeds("any_machine_equals_the_serial_run", 25, |rng| {
        let machine = program::any_machine(rng);
        let graph = program::any_graph(rng, &machine, 60);
        compare(rng, &graph, &machine);
    });
}

/// Any of the devices on lanes of their own, the others on threads, over routes of all kinds.
#[test]
fn plans_over_threads_and_device_lanes_equal_the_serial_run() {
    for_seeds("plans_over_threads_and_device_lanes_equal_the_serial_run", 150, |rng| {
        let device = |at: u64| {
            let device = DeviceModel::new(format!("cpu:{at}"), rng.range(1..3) as u16);
            if rng.one_in(2) { device.without_copy_lane() } else { device }
        };
        let machine = Machine::new((0..3).map(device).collect()).unwrap();
        let machine = program::with_any_routes(rng, machine);
        let graph = program::any_graph(rng, &machine, 40);
        let mut options = LoadOptions::default();
        for device in devices().iter().filter(|_| rng.one_in(2)) {
            options = options.on_lanes_of(device.spec());
        }
        options.is_split = rng.one_in(4);
        compare_with(rng, &graph, &machine, options);
    });
}
