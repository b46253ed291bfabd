//! Many tasks, many plans, many threads, and the end of everything in any order.

use std::any::Any;
use std::sync::Arc;

use syncline_device::CancelToken;
use syncline_plan::Machine;
use syncline_runtime::replay::{Bindings, LoadOptions, LoadedPlan, Steal};
use syncline_testing::for_seeds;

use super::{compile, devices, increment, load, words, zeroed};

#[test]
fn a_plan_of_a_hundred_thousand_tasks_runs() {
    let plan = compile(&words(50, 2_000), &Machine::cpu(2));
    for steal in [Steal::Off, Steal::On] {
        let options = LoadOptions::default().with_steal(steal).with_verify(true);
        let load =
            LoadedPlan::load_with(Arc::clone(&plan), devices(), |_, _| Some(increment()), options);
        let mut loaded = load.unwrap();
        let buffer = zeroed(50 * 8);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        bound.run().unwrap();
        let tickets = [bound.start().unwrap(), bound.start().unwrap()];
        tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
        drop(bound);
        assert_eq!(buffer.read::<u64>(0, 50).unwrap(), [6_000; 50], "{steal:?}");
    }
}

/// One plan, loaded once for each thread; each has a buffer of its own, and all share another one
/// in turns.
#[test]
fn one_plan_runs_on_several_threads_at_once() {
    let plan = compile(&words(3, 20), &Machine::cpu(2));
    let shared = zeroed(24);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let own = zeroed(24);
                let mut loaded = load(&plan, |_| increment());
                for _ in 0..20 {
                    loaded.run(&Bindings::new().bind("words", &own)).unwrap();
                    loaded.run(&Bindings::new().bind("words", &shared)).unwrap();
                }
                assert_eq!(own.read::<u64>(0, 3).unwrap(), [400; 3]);
            });
        }
    });
    assert_eq!(shared.read::<u64>(0, 3).unwrap(), [1_200; 3]);
}

#[test]
fn two_plans_on_one_device_have_runs_under_way_at_the_same_time() {
    let plans = [words(2, 30), words(3, 10)].map(|graph| compile(&graph, &Machine::cpu(2)));
    let buffers = [zeroed(16), zeroed(24)];
    let bindings = buffers.each_ref().map(|buffer| Bindings::new().bind("words", buffer));
    let [mut one, mut other] = plans.each_ref().map(|plan| load(plan, |_| increment()));
    let (mut one, mut other) = (one.bind(&bindings[0]).unwrap(), other.bind(&bindings[1]).unwrap());
    let tickets: Vec<_> =
        (0..40).flat_map(|_| [one.start().unwrap(), other.start().unwrap()]).collect();
    tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
    drop((one, other));
    assert_eq!(buffers[0].read::<u64>(0, 2).unwrap(), [1_200; 2]);
    assert_eq!(buffers[1].read::<u64>(0, 3).unwrap(), [400; 3]);
}

#[test]
fn everything_can_be_dropped_in_any_order() {
    for_seeds("everything_can_be_dropped_in_any_order", 60, |rng| {
        let plan = compile(&words(2, 20), &Machine::cpu(2));
        let mut loaded = load(&plan, |_| increment());
        let token = CancelToken::new();
        loaded.set_cancel(&token);
        let buffer = zeroed(16);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        let tickets = [bound.start().unwrap(), bound.start().unwrap()];
        if rng.one_in(3) {
            // The runs go on with nobody to wait for them but the plan.
            std::mem::forget(bound);
        } else {
            drop(bound);
        }
        let [first, second] = tickets;
        let mut things: Vec<Box<dyn Any>> = vec![
            Box::new(plan),
            Box::new(loaded),
            Box::new(token),
            Box::new(buffer),
            Box::new(bindings),
            Box::new(first),
            Box::new(second),
        ];
        while !things.is_empty() {
            drop(things.swap_remove(rng.below(things.len())));
        }
    });
}
