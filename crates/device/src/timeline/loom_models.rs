//! Models of the wake-up protocol, explored over all interleavings. `README.md` names the
//! scenarios.

use loom::thread;

use super::*;

fn failure(reason: &str) -> DeviceError {
    DeviceError::Cancelled { reason: reason.into() }
}

/// Every model ends only if no wake-up is lost: `loom` reports threads that sleep for ever.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn loom_a_signal_in_between_wakes_the_waiter() {
    explore(|| {
        let timeline = Timeline::new("model", 0);
        let awaited = timeline.clone();
        let waiter = thread::spawn(move || awaited.wait(1, Deadline::NEVER));
        timeline.signal(1).unwrap();
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn loom_a_waiter_survives_a_signal_that_decides_nothing() {
    explore(|| {
        let timeline = Timeline::new("model", 0);
        let awaited = timeline.clone();
        let waiter = thread::spawn(move || awaited.wait(2, Deadline::NEVER));
        timeline.signal(1).unwrap();
        timeline.signal(2).unwrap();
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn loom_two_waiters_one_of_whom_finds_it_armed() {
    explore(|| {
        let timeline = Timeline::new("model", 0);
        let waiters: Vec<_> = [1, 2]
            .map(|value| {
                let awaited = timeline.clone();
                thread::spawn(move || awaited.wait(value, Deadline::NEVER))
            })
            .into();
        timeline.signal(2).unwrap();
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
    });
}

#[test]
fn loom_a_failure_reaches_a_waiter_with_its_first_cause() {
    explore(|| {
        let timeline = Timeline::new("model", 0);
        let awaited = timeline.clone();
        let waiter = thread::spawn(move || awaited.wait(1, Deadline::NEVER));
        timeline.fail(failure("first")).unwrap();
        timeline.fail(failure("second")).unwrap();
        assert_eq!(waiter.join().unwrap(), Err(failure("first")));
    });
}

#[test]
fn loom_a_failure_at_the_same_time_as_a_signal_is_never_cleared() {
    explore(|| {
        let timeline = Timeline::new("model", 0);
        let (signalled, awaited) = (timeline.clone(), timeline.clone());
        let signaller = thread::spawn(move || signalled.signal(1));
        let waiter = thread::spawn(move || awaited.wait(1, Deadline::NEVER));
        timeline.fail(failure("cause")).unwrap();
        if let Err(cause) = signaller.join().unwrap() {
            assert_eq!(cause, failure("cause"));
        }
        if let Err(cause) = waiter.join().unwrap() {
            assert_eq!(cause, failure("cause"));
        }
        assert_eq!(timeline.failure(), Some(failure("cause")));
    });
}

#[test]
fn loom_work_before_a_signal_is_seen_after_the_wait() {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    explore(|| {
        let timeline = Timeline::new("model", 0);
        let work = Arc::new(UnsafeCell::new(0));
        let (awaited, seen) = (timeline.clone(), work.clone());
        let waiter = thread::spawn(move || {
            awaited.wait(1, Deadline::NEVER).unwrap();
            // SAFETY: `loom` checks it: the writer's access happens before the signal, this one
            // after the wait.
            seen.with(|value| unsafe { *value })
        });
        // SAFETY: as above.
        work.with_mut(|value| unsafe { *value = 7 });
        timeline.signal(1).unwrap();
        assert_eq!(waiter.join().unwrap(), 7);
    });
}

#[test]
fn loom_several_timelines_wake_one_watcher() {
    explore(|| {
        let (first, second) = (Timeline::new("first", 0), Timeline::new("second", 0));
        let points = [first.point(1), second.point(1)];
        let waiter = thread::spawn(move || wait_all(&points, Deadline::NEVER));
        first.signal(1).unwrap();
        second.signal(1).unwrap();
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn loom_any_of_several_timelines_ends_the_wait() {
    explore(|| {
        let (first, second) = (Timeline::new("first", 0), Timeline::new("second", 0));
        let points = [first.point(1), second.point(1)];
        let waiter = thread::spawn(move || wait_any(&points, Deadline::NEVER));
        second.signal(1).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(1));
    });
}
