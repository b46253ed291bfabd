//! One small program for every rule about accesses, scopes, explicit dependencies and retirement.

use syncline_deps::*;
use syncline_tensor::Access::{Commutative, InOut, Input, NoDep, Output, OutputExisting, Reduce};
use syncline_tensor::*;

use crate::support::*;

/// A task that uses bytes `start..end` of buffer 0.
fn on(access: Access, start: u64, end: u64) -> Step {
    task(&[bytes(access, 0, start, end)])
}

fn after(deps: &[u64], access: Access, start: u64, end: u64) -> Step {
    Step::Task { args: vec![bytes(access, 0, start, end)], deps: deps.to_vec() }
}

#[test]
fn readers_stay_parallel_and_the_next_writer_waits_for_them_alone() {
    let mut steps = vec![on(OutputExisting, 0, 64)];
    steps.extend((0..5).map(|_| on(Input, 0, 64)));
    steps.push(on(OutputExisting, 0, 64));
    let mut expected: Vec<(u64, u64)> = (1..6).map(|reader| (0, reader)).collect();
    expected.extend((1..6).map(|reader| (reader, 6)));
    assert_eq!(pairs(&steps), expected);
}

#[test]
fn every_write_is_ordered_against_earlier_writers_and_readers() {
    for write in [InOut, OutputExisting, Output, Commutative, Reduce] {
        assert_eq!(pairs(&[on(OutputExisting, 0, 64), on(write, 0, 64)]), [(0, 1)], "{write}");
        assert_eq!(pairs(&[on(Input, 0, 64), on(write, 0, 64)]), [(0, 1)], "{write}");
        assert_eq!(pairs(&[on(write, 0, 64), on(Input, 32, 33)]), [(0, 1)], "{write}");
    }
}

#[test]
fn touching_ranges_are_apart() {
    assert_eq!(pairs(&[on(InOut, 0, 64), on(InOut, 64, 128)]), []);
}

#[test]
fn a_covering_write_supersedes_and_a_partial_one_does_not() {
    let covering = [on(InOut, 16, 32), on(InOut, 0, 64), on(Input, 16, 32)];
    assert_eq!(pairs(&covering), [(0, 1), (1, 2)]);
    let partial = [on(InOut, 0, 64), on(InOut, 16, 32), on(Input, 0, 16), on(Input, 16, 32)];
    // The reader of the middle comes after task 0 by way of task 1.
    assert_eq!(pairs(&partial), [(0, 1), (0, 2), (1, 3)]);
}

#[test]
fn partial_writes_in_the_middle_split_an_older_one() {
    let steps = [
        on(OutputExisting, 0, 90),
        on(OutputExisting, 30, 60),
        on(OutputExisting, 40, 50),
        on(Input, 0, 30),
        on(Input, 30, 40),
        on(Input, 42, 44),
        on(Input, 60, 90),
    ];
    assert_eq!(pairs(&steps), [(0, 1), (0, 3), (0, 6), (1, 2), (1, 4), (2, 5)]);
}

#[test]
fn another_layout_of_the_same_bytes_is_the_same_region() {
    let matrix = View::contiguous(Dtype::F32, &[8, 8]).unwrap();
    let views = [matrix, matrix.transpose(0, 1).unwrap(), matrix.reshape(&[64]).unwrap()];
    let mut steps: Vec<Step> =
        views.iter().map(|&view| task(&[Arg::inout(BufferId(0), view)])).collect();
    steps.push(task(&[Arg::input(BufferId(0), matrix)]));
    assert_eq!(pairs(&steps), [(0, 1), (1, 2), (2, 3)]);
}

#[test]
fn spread_addresses_and_many_producers_are_all_found() {
    let mut steps = Vec::new();
    for at in 0..64 {
        steps.push(on(OutputExisting, 4096 * at, 4096 * at + 8));
    }
    for at in 0..64 {
        steps.push(on(Input, 4096 * at + 4, 4096 * at + 5));
    }
    assert_eq!(pairs(&steps), (0..64).map(|at| (at, 64 + at)).collect::<Vec<_>>());
    // Twenty producers of parts of one region.
    let mut steps: Vec<Step> = (0..20).map(|at| on(OutputExisting, 8 * at, 8 * at + 8)).collect();
    steps.push(on(Input, 0, 160));
    assert_eq!(pairs(&steps).len(), 20);
}

#[test]
fn aliasing_arguments_make_no_self_edge_and_one_edge_each() {
    let all =
        [Input, InOut, OutputExisting, Commutative, Reduce].map(|access| bytes(access, 0, 0, 64));
    let mut reversed = all;
    reversed.reverse();
    assert_eq!(pairs(&[task(&all), task(&reversed), task(&all)]), [(0, 1), (1, 2)]);
    let halves = [bytes(InOut, 0, 0, 32), bytes(InOut, 0, 16, 64), bytes(Input, 0, 0, 64)];
    assert_eq!(pairs(&[task(&halves), task(&halves)]), [(0, 1)]);
}

#[test]
fn empty_views_touch_nothing() {
    let empty = Arg::inout(BufferId(0), View::contiguous(Dtype::F32, &[4, 0]).unwrap());
    assert_eq!(pairs(&[on(InOut, 0, 64), task(&[empty]), task(&[empty]), on(NoDep, 0, 0)]), []);
}

#[test]
fn a_scalar_is_one_element() {
    let scalar = Arg::inout(BufferId(0), View::contiguous(Dtype::F64, &[]).unwrap());
    assert_eq!(pairs(&[task(&[scalar]), on(Input, 7, 8), on(Input, 8, 9)]), [(0, 1)]);
}

#[test]
fn broadcast_reads_are_reads_of_what_they_touch() {
    let row = View::strided(Dtype::F32, 0, &[8, 4], &[0, 4]).unwrap();
    let steps = [on(InOut, 0, 16), on(InOut, 16, 32), task(&[Arg::input(BufferId(0), row)])];
    assert_eq!(pairs(&steps), [(0, 2)]);
}

#[test]
fn group_members_are_unordered_and_stand_together() {
    for group in [Commutative, Reduce] {
        let steps = [
            on(OutputExisting, 0, 64),
            on(group, 0, 64),
            on(group, 0, 64),
            on(group, 0, 64),
            on(Input, 0, 64),
            on(group, 0, 64),
            on(group, 0, 64),
            on(InOut, 0, 64),
        ];
        let expected =
            [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4), (4, 5), (4, 6), (5, 7), (6, 7)];
        assert_eq!(pairs(&steps), expected, "{group}");
    }
}

#[test]
fn groups_of_two_kinds_are_ordered() {
    let steps =
        [on(Commutative, 0, 64), on(Commutative, 0, 64), on(Reduce, 0, 64), on(Reduce, 0, 64)];
    assert_eq!(pairs(&steps), [(0, 2), (0, 3), (1, 2), (1, 3)]);
    assert_eq!(described(&steps[1..3]), ["0->1 raw+waw+commutative wait"]);
}

#[test]
fn members_on_overlapping_views_are_unordered_too() {
    let steps = [on(Input, 0, 64), on(Reduce, 0, 40), on(Reduce, 20, 64), on(InOut, 0, 64)];
    assert_eq!(pairs(&steps), [(0, 1), (0, 2), (1, 3), (2, 3)]);
}

#[test]
fn a_member_elsewhere_still_waits_for_what_came_before_a_group_that_started_again() {
    let steps = [
        on(OutputExisting, 0, 64),
        on(Commutative, 0, 64),
        on(Input, 0, 8),
        on(Commutative, 0, 64),
        on(Commutative, 32, 128),
    ];
    assert_eq!(pairs(&steps), [(0, 1), (0, 4), (1, 2), (2, 3)]);
}

#[test]
fn no_dep_keeps_the_creator_alive_and_orders_nothing() {
    let steps = [on(Output, 0, 64), on(NoDep, 0, 64), on(InOut, 0, 64)];
    assert_eq!(described(&steps), ["0->1 creator retain", "0->2 creator+raw+waw wait+retain"]);
    assert_eq!(pairs(&[on(InOut, 0, 64), on(NoDep, 0, 64), on(InOut, 0, 64)]), [(0, 2)]);
}

#[test]
fn every_later_use_of_a_created_buffer_retains_its_creator() {
    let steps = [on(Output, 0, 64), on(InOut, 0, 64), on(Input, 0, 64)];
    let expected = ["0->1 creator+raw+waw wait+retain", "0->2 creator retain", "1->2 raw wait"];
    assert_eq!(described(&steps), expected);
}

#[test]
fn explicit_deps_merge_with_what_is_discovered() {
    let steps = [on(InOut, 0, 64), after(&[0, 0, 0], Input, 0, 64)];
    assert_eq!(described(&steps), ["0->1 raw+explicit wait"]);
    // Satisfied, because it has gone; and recognised however long ago that was.
    let mut steps = vec![on(InOut, 0, 64), Step::Retire(0)];
    steps.extend((0..500).map(|at| on(InOut, 64 + at, 65 + at)));
    steps.push(after(&[0, 7], InOut, 0, 64));
    assert_eq!(pairs(&steps), [(7, 501)]);
}

#[test]
fn implied_edges_are_left_out_unless_all_are_asked_for() {
    let steps = [on(InOut, 0, 64), after(&[0], InOut, 64, 128), after(&[0, 1], InOut, 128, 192)];
    assert_eq!(pairs(&steps), [(0, 1), (1, 2)]);
    let (edges, stats) =
        run(SubmitOptions { full: true, ring: 3, ..Default::default() }, 1, 192, &steps);
    assert_eq!(edges.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((stats.edges, stats.pruned, edges[2][0].pred.ring()), (3, 0, 3));
}

#[test]
fn inside_a_manual_scope_only_explicit_deps_count() {
    let steps = [
        on(InOut, 0, 64),
        Step::Enter(ScopeKind::Manual),
        on(InOut, 0, 64),
        Step::Enter(ScopeKind::Manual),
        after(&[1], InOut, 0, 64),
        Step::Leave,
        on(InOut, 0, 64),
        Step::Leave,
    ];
    assert_eq!(described(&steps), ["1->2 explicit wait"]);
}

#[test]
fn after_a_manual_scope_nothing_races_with_it() {
    let steps = [
        on(OutputExisting, 0, 64),
        Step::Enter(ScopeKind::Manual),
        on(OutputExisting, 0, 32),
        on(Input, 32, 64),
        Step::Leave,
        on(Input, 0, 64),
        on(OutputExisting, 0, 64),
        on(Input, 0, 64),
    ];
    let expected = [
        "0->3 raw wait",
        "1->3 raw+barrier wait",
        "2->4 war+barrier wait",
        "3->4 war wait",
        "4->5 raw wait",
    ];
    assert_eq!(described(&steps), expected);
}

#[test]
fn an_auto_scope_inside_a_manual_one_discovers() {
    let steps = [
        Step::Enter(ScopeKind::Manual),
        on(InOut, 0, 64),
        Step::Enter(ScopeKind::Auto),
        on(InOut, 0, 64),
        Step::Leave,
        on(InOut, 0, 64),
        Step::Leave,
        on(Input, 0, 64),
    ];
    assert_eq!(pairs(&steps), [(0, 1), (1, 3), (2, 3)]);
}

#[test]
fn eight_nested_scopes() {
    let mut steps = Vec::new();
    for _ in 0..8 {
        steps.extend([Step::Enter(ScopeKind::Auto), on(InOut, 0, 64)]);
    }
    for _ in 0..8 {
        steps.extend([on(InOut, 0, 64), Step::Leave]);
    }
    assert_eq!(pairs(&steps), (0..15).map(|at| (at, at + 1)).collect::<Vec<_>>());
}

#[test]
fn a_retired_task_is_not_waited_for_and_its_neighbours_are() {
    let steps = [
        on(Input, 0, 64),
        on(Input, 0, 64),
        on(Input, 0, 64),
        Step::Retire(1),
        on(InOut, 0, 64),
        Step::Retire(0),
        Step::Retire(2),
        Step::Retire(3),
        on(Input, 0, 64),
    ];
    assert_eq!(pairs(&steps), [(0, 3), (2, 3)]);
}

#[test]
fn rings_and_runs_are_distinct() {
    let (view, inputs) = (View::bytes_at(0, 64).unwrap(), |args| DepInputs { args, deps: &[] });
    let args = [Arg::inout(BufferId(0), view)];
    let mut map = TensorMap::new();
    map.add_buffer(BufferId(0), 64).unwrap();
    let preds = |map: &mut TensorMap| {
        let mut preds = Vec::new();
        let done = compute_task_fanin::<()>(&inputs(&args), map, ScopeKind::Auto, |edge| {
            preds.push(edge.pred);
            std::ops::ControlFlow::Continue(())
        });
        assert!(done.unwrap().is_continue());
        preds
    };
    for (ring, sequence) in [(0, 5), (1, 5)] {
        let task = TaskId::new(ring, sequence);
        register_task_outputs(&inputs(&args), task, &mut map, ScopeKind::Auto).unwrap();
        // The same number in another ring is another task.
        assert!(map.retire(TaskId::new(1 - ring, sequence + 1)) && map.is_live(task));
        assert_eq!(preds(&mut map), [task]);
        assert!(map.retire(task) && !map.retire(task));
        assert_eq!(preds(&mut map), []);
    }
}

#[test]
fn a_released_buffer_takes_its_history_along() {
    let mut submitter = Submitter::new(SubmitOptions::default());
    let whole = View::bytes_at(0, 64).unwrap();
    let mut preds = 0;
    for _ in 0..3 {
        let buffer = submitter.create_buffer(64);
        for _ in 0..2 {
            let args = [Arg::inout(buffer, whole)];
            submitter.submit(DepInputs { args: &args, deps: &[] }, |_| preds += 1).unwrap();
        }
        submitter.release_buffer(buffer).unwrap();
    }
    assert_eq!(preds, 3, "one inside each buffer's life");
    assert_eq!((submitter.stats().map.buffers, submitter.stats().map.views), (0, 0));
}
