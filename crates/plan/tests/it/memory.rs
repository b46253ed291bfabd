//! Arenas: memory is reused by lifetime, and what cannot fit is refused before anything runs.

use syncline_plan::{
    BufferSpec, CompileError, CompileOptions, DeviceModel, ExecutionPlan, Machine, MemoryPlace,
    TaskGraph, TaskSpec,
};
use syncline_tensor::{Arg, BufferId, View};
use syncline_testing::for_seeds;

const BYTES: u64 = 4096;

fn all() -> View {
    View::bytes_at(0, BYTES).unwrap()
}

/// `chains` chains of `length` temporaries, each made from the one before; ends in an external
/// buffer.
fn chains(chains: usize, length: usize) -> TaskGraph {
    let mut graph = TaskGraph::new();
    for chain in 0..chains {
        let name = format!("out{chain}");
        let end = graph.add_buffer(BufferSpec::external(&name, BYTES)).unwrap();
        let mut last: BufferId = end;
        for step in 0..length {
            let name = format!("t{chain}.{step}");
            let next = graph.add_buffer(BufferSpec::temporary(&name, BYTES)).unwrap();
            let args = [Arg::input(last, all()), Arg::output(next, all())];
            graph.submit(&TaskSpec::new("step", &args)).unwrap();
            last = next;
        }
        let args = [Arg::input(last, all()), Arg::output_existing(end, all())];
        graph.submit(&TaskSpec::new("end", &args)).unwrap();
    }
    graph
}

fn compile(graph: &TaskGraph, lanes: u16, memory: u64) -> Result<ExecutionPlan, CompileError> {
    let device = DeviceModel::new("cpu", lanes).without_copy_lane().with_memory(memory);
    let machine = Machine::new(vec![device]).unwrap();
    let plan = ExecutionPlan::compile(graph, &machine, &CompileOptions::default())?;
    plan.check().unwrap();
    Ok(plan)
}

#[test]
fn a_chain_of_temporaries_needs_two() {
    let plan = compile(&chains(1, 100), 1, u64::MAX).unwrap();
    assert_eq!(plan.arena_bytes(), [2 * BYTES]);
    assert!(plan.waits().is_empty());
    let bound = plan.bound_memories().count();
    assert_eq!((bound, plan.memories().len()), (1, 101));
}

#[test]
fn reuse_across_lanes_waits_and_every_wait_is_needed() {
    for_seeds("reuse_across_lanes_waits_and_every_wait_is_needed", 20, |rng| {
        let graph = chains(rng.range(2..5) as usize, rng.range(2..8) as usize);
        let wide = compile(&graph, 2, u64::MAX).unwrap();
        // Just enough for one chain at a time besides the bound buffers.
        let bound: u64 = wide.bound_memories().map(|(_, memory)| memory.bytes).sum();
        let tight = compile(&graph, 2, bound + 2 * BYTES).unwrap();
        assert!(tight.arena_bytes()[0] <= 2 * BYTES);
        for wait in 0..tight.waits().len() {
            assert!(tight.reason_for(wait).is_some(), "wait {wait} of\n{}", tight.to_text());
        }
    });
}

#[test]
fn offsets_are_aligned_and_inside() {
    let plan = compile(&chains(3, 5), 3, u64::MAX).unwrap();
    for memory in plan.memories() {
        if let MemoryPlace::Arena { offset } = memory.place {
            assert_eq!(offset % 64, 0);
            assert!(offset + memory.bytes <= plan.arena_bytes()[memory.device.index()]);
        }
    }
}

#[test]
fn what_cannot_fit_is_refused_with_the_peak_and_the_culprit() {
    let error = compile(&chains(1, 3), 2, 3 * BYTES - 1).unwrap_err();
    let CompileError::DoesNotFit { peak_bytes, lower_bound_bytes, ref task, memory_bytes, .. } =
        error
    else {
        panic!("{error}")
    };
    assert_eq!((peak_bytes, lower_bound_bytes), (3 * BYTES, 3 * BYTES));
    assert_eq!((memory_bytes, &**task), (3 * BYTES - 1, "step"));
    compile(&chains(1, 3), 2, 3 * BYTES).unwrap();
}

#[test]
fn temporaries_of_no_bytes_are_fine() {
    let mut graph = TaskGraph::new();
    let none = graph.add_buffer(BufferSpec::temporary("none", 0)).unwrap();
    let view = View::bytes_at(0, 0).unwrap();
    graph.submit(&TaskSpec::new("k", &[Arg::output(none, view)])).unwrap();
    graph.submit(&TaskSpec::new("k", &[Arg::input(none, view)])).unwrap();
    assert_eq!(compile(&graph, 2, 0).unwrap().arena_bytes(), [0]);
}
