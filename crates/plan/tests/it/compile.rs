//! What holds for every compiled plan.

use syncline_plan::{
    BufferSpec, CompileError, CompileOptions, Copy, CostModel, DeviceIndex, DeviceModel,
    ExecutionPlan, LaneKind, Machine, MemoryIndex, Op, OpKind, Route, TaskGraph, TaskSpec,
};
use syncline_tensor::{Arg, View};
use syncline_testing::for_seeds;

use crate::program::{any_plan, stencil};

fn bytes(start: u64, end: u64) -> View {
    View::bytes_at(start, end - start).unwrap()
}

fn two_devices() -> Machine {
    Machine::new(vec![DeviceModel::new("cpu:0", 1), DeviceModel::new("cpu:1", 1)]).unwrap()
}

fn compile(graph: &TaskGraph, machine: &Machine) -> ExecutionPlan {
    let plan = ExecutionPlan::compile(graph, machine, &CompileOptions::default()).unwrap();
    plan.check().unwrap();
    plan
}

#[test]
fn every_plan_passes_the_checker() {
    for_seeds("every_plan_passes_the_checker", 600, |rng| {
        let (_, _, plan) = any_plan(rng, 40);
        if let Err(error) = plan.check() {
            panic!("{error}\n{}", plan.to_text());
        }
    });
}

#[test]
fn no_wait_can_be_dropped() {
    for_seeds("no_wait_can_be_dropped", 2_000, |rng| {
        let (_, _, plan) = any_plan(rng, 30);
        for wait in 0..plan.waits().len() {
            assert!(plan.reason_for(wait).is_some(), "wait {wait} of\n{}", plan.to_text());
        }
    });
}

#[test]
fn compiling_twice_gives_the_same_plan() {
    for_seeds("compiling_twice_gives_the_same_plan", 30, |rng| {
        let (graph, machine, plan) = any_plan(rng, 40);
        assert_eq!(plan.to_bytes(), compile(&graph, &machine).to_bytes());
        assert!(plan.is_of(&graph, &machine));
    });
}

#[test]
fn nothing_is_a_plan() {
    let plan = compile(&TaskGraph::new(), &Machine::cpu(3));
    assert_eq!((plan.ops().len(), plan.lanes().len(), plan.makespan_ns()), (0, 3, 0));
}

#[test]
fn independent_tasks_fill_all_lanes_evenly() {
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 1 << 16)).unwrap();
    for at in 0..100 {
        let arg = Arg::output_existing(a, bytes(at * 64, at * 64 + 64));
        graph.submit(&TaskSpec::new("fill", &[arg])).unwrap();
    }
    let plan = compile(&graph, &Machine::cpu(4));
    assert!(plan.lanes().iter().all(|lane| lane.count == 25), "{}", plan.to_text());
    assert!(plan.waits().is_empty());
}

#[test]
fn the_critical_path_goes_first() {
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 1024)).unwrap();
    for at in 1..8 {
        let arg = Arg::inout(a, bytes(at * 64, at * 64 + 64));
        graph.submit(&TaskSpec::new("short", &[arg]).cost_ns(900)).unwrap();
    }
    let arg = [Arg::inout(a, bytes(0, 64))];
    for _ in 0..7 {
        graph.submit(&TaskSpec::new("chain", &arg)).unwrap();
    }
    let plan = compile(&graph, &Machine::cpu(2).with_sync_ns(0));
    assert_eq!(plan.makespan_ns(), 7_000, "{}", plan.to_text());
    assert!(plan.waits().is_empty(), "the chain has a lane of its own");
}

#[test]
fn a_stencil_waits_across_the_seam_only() {
    let plan = compile(&stencil(64, 20), &Machine::cpu(2));
    let per_step = plan.waits().len() as f64 / 20.0;
    assert!(per_step <= 8.0, "{per_step} waits a step\n{}", plan.to_text());
}

#[test]
fn a_byte_moves_once_however_often_it_is_used() {
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 1024)).unwrap();
    let b = graph.add_buffer(BufferSpec::external("b", 1024).on("cpu:1")).unwrap();
    // The second reads half of what the first read, the third half of it and as much again.
    for (start, end) in [(0, 512), (128, 384), (256, 768)] {
        let args = [Arg::input(a, bytes(start, end)), Arg::inout(b, bytes(0, 64))];
        graph.submit(&TaskSpec::new("read", &args).on("cpu:1")).unwrap();
    }
    let plan = compile(&graph, &two_devices());
    let moved: Vec<u64> = plan.copies().iter().map(|copy| copy.bytes()).collect();
    assert_eq!(moved, [512, 256], "{}", plan.to_text());
}

/// Bytes between two devices that do not reach each other go through the first, in pieces, each
/// byte once a leg; what stays there serves its own readers.
#[test]
fn a_byte_through_a_third_device_moves_once_a_leg() {
    let [host, one, other] = [0, 1, 2].map(DeviceIndex);
    let devices = [
        DeviceModel::new("cpu:0", 1).without_tasks(),
        DeviceModel::new("vulkan:0", 1),
        DeviceModel::new("opencl:0", 1),
    ];
    let mut machine = Machine::new(devices.to_vec()).unwrap().with_piece_bytes(256).unwrap();
    for (source, target, route) in [
        (one, host, Route::Push),
        (other, host, Route::Push),
        (one, other, Route::Through(host)),
        (other, one, Route::Through(host)),
    ] {
        machine = machine.with_route(source, target, route).unwrap();
    }
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 1024).on("vulkan:0")).unwrap();
    let b = graph.add_buffer(BufferSpec::external("b", 1024).on("cpu")).unwrap();
    let make = [Arg::output_existing(a, bytes(0, 1024))];
    graph.submit(&TaskSpec::new("make", &make).on("vulkan:0")).unwrap();
    for _ in 0..2 {
        let args = [Arg::input(a, bytes(0, 1024)), Arg::inout(b, bytes(0, 1024))];
        graph.submit(&TaskSpec::new("use", &args).on("opencl:0")).unwrap();
    }
    let plan = compile(&graph, &machine);
    let moved = |from: DeviceIndex, to: DeviceIndex| -> Vec<u64> {
        let device = |memory: MemoryIndex| plan.memories()[memory.index()].device;
        let between = |copy: &&Copy| device(copy.source) == from && device(copy.target) == to;
        plan.copies().iter().filter(between).map(Copy::bytes).collect()
    };
    assert_eq!(moved(one, host), [256; 4], "{}", plan.to_text());
    assert_eq!(moved(host, other), [256, 256, 256, 256, 1024], "{}", plan.to_text());
    assert_eq!(moved(other, host), [1024], "{}", plan.to_text());
    // Lanes of the host's device have nothing to do, and the two legs are on different lanes, at
    // the same time.
    assert!(plan.lanes().iter().all(|lane| lane.device != host || lane.count == 0));
    let leg = |from: DeviceIndex| -> Vec<&Op> {
        let is_leg = |op: &&Op| match op.kind {
            OpKind::Copy(copy) => {
                let copy = &plan.copies()[copy.index()];
                plan.memories()[copy.source.index()].device == from && copy.bytes() == 256
            }
            OpKind::Task(_) => false,
        };
        plan.ops().iter().filter(is_leg).collect()
    };
    let meets = |out: &Op, on: &Op| out.start_ns < on.end_ns && on.start_ns < out.end_ns;
    let overlap = leg(one).iter().any(|out| leg(host).iter().any(|on| meets(out, on)));
    assert!(overlap, "{}", plan.to_text());
}

#[test]
fn what_was_written_elsewhere_comes_home() {
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 256)).unwrap();
    let args = [Arg::output_existing(a, bytes(64, 128))];
    graph.submit(&TaskSpec::new("write", &args).on("cpu:1")).unwrap();
    let plan = compile(&graph, &two_devices());
    // Nothing is read, so nothing goes there; the 64 bytes that were written come back.
    assert_eq!(plan.copies().len(), 1);
    assert_eq!(plan.copies()[0].bytes(), 64);
    let copy = plan.ops().iter().find(|op| matches!(op.kind, OpKind::Copy(_))).unwrap();
    assert_eq!(plan.waits_of(copy).len(), 1);
    let lane = plan.lanes().iter().find(|lane| lane.kind == LaneKind::Copy && lane.count == 1);
    assert_eq!(lane.unwrap().device, DeviceIndex(0), "on the target's copy lane");
}

#[test]
fn a_tile_moves_as_one_strided_view() {
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 64 * 64 * 4)).unwrap();
    let matrix = View::contiguous(syncline_tensor::Dtype::F32, &[64, 64]).unwrap();
    let tile = matrix.split(0, 4, 1).unwrap().split(1, 4, 2).unwrap();
    graph.submit(&TaskSpec::new("tile", &[Arg::inout(a, tile)]).on("cpu:1")).unwrap();
    let plan = compile(&graph, &two_devices());
    assert_eq!(plan.copies().len(), 2);
    assert!(plan.copies().iter().all(|copy| copy.views.len() == 1 && copy.bytes() == 16 * 16 * 4));
    assert_eq!(plan.copies()[0].views[0], tile);
}

#[test]
fn measured_costs_move_tasks() {
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 64)).unwrap();
    graph.submit(&TaskSpec::new("k", &[Arg::inout(a, bytes(0, 64))])).unwrap();
    let machine = two_devices();
    let plan = compile(&graph, &machine);
    assert_eq!(plan.device_of(syncline_plan::TaskIndex(0)), DeviceIndex(0), "where its data is");
    let mut costs = CostModel::default();
    costs.observe("k", "cpu:0", 64, 1_000_000);
    costs.observe("k", "cpu:1", 64, 1_000);
    let options = CompileOptions::default().with_costs(&costs);
    let plan = ExecutionPlan::compile(&graph, &machine, &options).unwrap();
    assert_eq!(plan.device_of(syncline_plan::TaskIndex(0)), DeviceIndex(1), "where it is fast");
    plan.check().unwrap();
}

#[test]
fn what_the_machine_lacks_is_named() {
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 64)).unwrap();
    graph.submit(&TaskSpec::new("k", &[Arg::inout(a, bytes(0, 64))]).on("cuda:0")).unwrap();
    let error = ExecutionPlan::compile(&graph, &Machine::cpu(1), &CompileOptions::default());
    let error = error.unwrap_err();
    assert!(matches!(error, CompileError::NoDevice { .. }));
    assert!(error.to_string().contains("cuda:0"), "{error}");

    let mut graph = TaskGraph::new();
    graph.add_buffer(BufferSpec::external("weights", 64).on("vulkan:0")).unwrap();
    let error = ExecutionPlan::compile(&graph, &Machine::cpu(1), &CompileOptions::default());
    assert!(error.unwrap_err().to_string().contains("weights"));
}

#[test]
fn reading_a_temporary_before_it_is_written_is_refused() {
    let mut graph = TaskGraph::new();
    let t = graph.add_buffer(BufferSpec::temporary("scratch", 128)).unwrap();
    graph.submit(&TaskSpec::new("half", &[Arg::output(t, bytes(0, 64))])).unwrap();
    graph.submit(&TaskSpec::new("more", &[Arg::input(t, bytes(32, 96))])).unwrap();
    let error = ExecutionPlan::compile(&graph, &Machine::cpu(1), &CompileOptions::default());
    assert_eq!(
        error.unwrap_err(),
        CompileError::Uninitialised {
            task: "more".into(),
            index: 1,
            buffer: "scratch".into(),
            start: 64,
            end: 96
        }
    );
}
