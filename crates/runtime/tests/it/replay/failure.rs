//! Errors, panics, cancels and deadlines, and the run after them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use syncline_device::{CancelToken, Deadline};
use syncline_plan::{Machine, TaskIndex};
use syncline_runtime::replay::{Bindings, LoadOptions, LoadedPlan, RunError, Steal, TaskBody};
use syncline_testing::for_seeds;

use super::{compile, devices, increment, load, words, zeroed};

#[test]
fn a_failing_task_is_named_the_lanes_stop_and_the_next_run_works() {
    for_seeds("a_failing_task_is_named_the_lanes_stop_and_the_next_run_works", 40, |rng| {
        let (count, rounds) = (rng.range(1..6), rng.range(1..6));
        let culprit = rng.range(0..count * rounds) as u32;
        let panics = rng.one_in(2);
        let is_armed = Arc::new(AtomicBool::new(true));
        let plan = compile(&words(count, rounds), &Machine::cpu(rng.range(1..5) as u16));
        let mut loaded = load(&plan, |task| {
            if task.index() != TaskIndex(culprit) {
                return increment();
            }
            let is_armed = Arc::clone(&is_armed);
            TaskBody::new(move |args| {
                let armed = is_armed.load(Ordering::SeqCst);
                assert!(!(armed && panics), "on purpose");
                if armed {
                    return Err("on purpose".to_owned());
                }
                args.open().slice_mut::<u64>(0).map_err(|error| error.to_string())?[0] += 1;
                Ok(())
            })
        });
        let buffer = zeroed(count * 8);
        let bindings = Bindings::new().bind("words", &buffer);
        for _ in 0..2 {
            is_armed.store(true, Ordering::SeqCst);
            let error = loaded.run(&bindings).unwrap_err();
            let (task, index, cause) = match error {
                RunError::Failed { task, index, cause } if !panics => (task, index, cause),
                RunError::Panicked { task, index, cause } if panics => (task, index, cause),
                other => panic!("{other}"),
            };
            assert_eq!((&*task, index, &*cause), ("word", TaskIndex(culprit), "on purpose"));
            buffer.write(0, &vec![0u64; count as usize]).unwrap();
            is_armed.store(false, Ordering::SeqCst);
            loaded.run(&bindings).unwrap();
            assert_eq!(
                buffer.read::<u64>(0, count as usize).unwrap(),
                vec![rounds; count as usize]
            );
            buffer.write(0, &vec![0u64; count as usize]).unwrap();
        }
    });
}

#[test]
fn nothing_behind_a_failure_runs() {
    let behind = Arc::new(AtomicU64::new(0));
    let plan = compile(&words(1, 100), &Machine::cpu(1));
    let mut loaded = load(&plan, |task| {
        let (at, behind) = (task.index().0, Arc::clone(&behind));
        TaskBody::new(move |_| {
            if at == 10 {
                return Err("stop here");
            }
            behind.fetch_add(u64::from(at > 10), Ordering::SeqCst);
            Ok(())
        })
    });
    loaded.run(&Bindings::new().bind("words", &zeroed(8))).unwrap_err();
    assert_eq!(behind.load(Ordering::SeqCst), 0);
}

#[test]
fn a_cancel_stops_the_run_and_leaves_the_plan_usable() {
    for lanes in [1, 3] {
        let plan = compile(&words(3, 200), &Machine::cpu(lanes));
        let token = CancelToken::new();
        let mut loaded = load(&plan, |task| {
            let (at, token) = (task.index().0, token.clone());
            TaskBody::new(move |_| {
                if at == 100 {
                    token.cancel();
                }
            })
        });
        loaded.set_cancel(&token);
        let bindings = Bindings::new().bind("words", &zeroed(24)).clone();
        assert_eq!(loaded.run(&bindings), Err(RunError::Cancelled));
        // A token that was cancelled stays so, for runs that begin later too.
        assert_eq!(loaded.run(&bindings), Err(RunError::Cancelled));
        loaded.set_cancel(&CancelToken::new());
        loaded.run(&bindings).unwrap();
    }
}

/// The tasks of one lane wait for nothing between them: none may begin after the deadline all the
/// same.
#[test]
fn no_body_begins_after_the_deadline() {
    for (steal, lanes) in [(Steal::Off, 1), (Steal::On, 2)] {
        let deadline = Deadline::after(Duration::from_millis(30));
        let late = Arc::new(AtomicU64::new(0));
        let plan = compile(&words(1, 20), &Machine::cpu(lanes));
        let body = |task: TaskIndex| {
            let late = Arc::clone(&late);
            TaskBody::new(move |_| match task.0 {
                0 => {
                    while !deadline.has_passed() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                _ => {
                    late.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        let options = LoadOptions::default().with_steal(steal);
        let mut loaded =
            LoadedPlan::load_with(plan, devices(), |task, _| Some(body(task.index())), options)
                .unwrap();
        let bindings = Bindings::new().bind("words", &zeroed(8));
        assert_eq!(loaded.run_until(&bindings, deadline), Err(RunError::DeadlinePassed));
        assert_eq!(late.load(Ordering::SeqCst), 0, "{steal:?}");
        loaded.run(&bindings).unwrap();
        assert_eq!(late.load(Ordering::SeqCst), 19, "{steal:?}");
    }
}

#[test]
fn a_deadline_stops_the_run() {
    let plan = compile(&words(2, 400), &Machine::cpu(2));
    let mut loaded =
        load(&plan, |_| TaskBody::new(|_| std::thread::sleep(Duration::from_millis(1))));
    let bindings = Bindings::new().bind("words", &zeroed(16));
    let deadline = Deadline::after(Duration::from_millis(20));
    assert_eq!(loaded.run_until(&bindings, deadline), Err(RunError::DeadlinePassed));
    let passed = Deadline::at(std::time::Instant::now());
    assert_eq!(loaded.run_until(&bindings, passed), Err(RunError::DeadlinePassed));
}

#[test]
fn empty_plans_and_dropped_plans_are_fine() {
    let plan = compile(&syncline_plan::TaskGraph::new(), &Machine::cpu(3));
    load(&plan, |_| increment()).run(&Bindings::new()).unwrap();
    for lanes in 1..5 {
        drop(load(&compile(&words(4, 4), &Machine::cpu(lanes)), |_| increment()));
    }
}

#[test]
fn many_runs_of_many_lanes_never_lose_a_wake_up() {
    let plan = compile(&words(6, 3), &Machine::cpu(6).with_sync_ns(0));
    let mut loaded = load(&plan, |_| increment());
    let buffer = zeroed(48);
    let bindings = Bindings::new().bind("words", &buffer);
    let mut bound = loaded.bind(&bindings).unwrap();
    for _ in 0..300 {
        bound.run().unwrap();
    }
    drop(bound);
    assert_eq!(buffer.read::<u64>(0, 6).unwrap(), [900; 6]);
}
