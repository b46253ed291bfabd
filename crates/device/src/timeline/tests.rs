use std::thread;
use std::time::{Duration, Instant};

use super::*;

const SOON: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(30);

fn failure(reason: &str) -> DeviceError {
    DeviceError::Cancelled { reason: reason.into() }
}

#[test]
fn values_grow_only() {
    let timeline = Timeline::new("t", 3);
    assert_eq!(timeline.value(), 3);
    timeline.signal(4).unwrap();
    for value in [0, 3, 4] {
        assert!(matches!(
            timeline.signal(value),
            Err(DeviceError::SignalBackwards { current: 4, .. })
        ));
    }
    timeline.signal(Timeline::MAX_VALUE).unwrap();
    assert!(timeline.has_reached(Timeline::MAX_VALUE));
    assert!(matches!(timeline.signal(u64::MAX), Err(DeviceError::ValueTooLarge { .. })));
}

#[test]
fn a_deadline_ends_a_wait_and_says_where_the_timeline_stands() {
    let timeline = Timeline::new("t", 2);
    for deadline in [Deadline::after(SOON), Deadline::at(Instant::now())] {
        let error = timeline.wait(5, deadline).unwrap_err();
        assert!(matches!(error, DeviceError::DeadlinePassed { value: 5, current: 2, .. }));
        let points = [timeline.point(1), timeline.point(5)];
        assert!(wait_all(&points, deadline).is_err());
    }
    assert_eq!(timeline.wait(2, Deadline::at(Instant::now())), Ok(()));
}

#[test]
fn a_failure_is_kept_and_reaches_everybody() {
    let timeline = Timeline::new("t", 0);
    let waiters: Vec<_> = (1..5)
        .map(|value| {
            let awaited = timeline.clone();
            thread::spawn(move || awaited.wait(value, Deadline::after(LONG)))
        })
        .collect();
    thread::sleep(SOON);
    timeline.signal(1).unwrap();
    timeline.fail(failure("first")).unwrap();
    timeline.fail(failure("second")).unwrap();
    for (value, waiter) in (1..5).zip(waiters) {
        let result = waiter.join().unwrap();
        assert!(result == Err(failure("first")) || (value == 1 && result == Ok(())));
    }
    assert_eq!(timeline.wait(2, Deadline::NEVER), Err(failure("first")));
    assert_eq!(timeline.signal(9), Err(failure("first")));
    assert_eq!(timeline.value(), 1);
}

struct Nothing;

impl Wake for Nothing {
    fn wake(&self) {}
}

#[test]
fn a_point_that_was_reached_never_becomes_an_error() {
    let (timeline, other) = (Timeline::new("t", 0), Timeline::new("other", 0));
    let [reached, missed] = [timeline.point(1), timeline.point(2)];
    let watch = reached.watch(Arc::new(Nothing));
    timeline.signal(1).unwrap();
    timeline.fail(failure("late")).unwrap();
    assert!(reached.is_reached());
    assert_eq!((reached.status(), watch.look()), (PointStatus::Reached, PointStatus::Reached));
    assert_eq!(reached.wait(Deadline::NEVER), Ok(()));
    assert_eq!(wait_all(&[reached.clone(), other.point(0)], Deadline::NEVER), Ok(()));
    // In any order, beside a point that failed.
    assert_eq!(wait_any(&[missed.clone(), reached.clone()], Deadline::NEVER), Ok(1));
    let both = [reached, missed, other.point(1)];
    assert_eq!(wait_all(&both, Deadline::NEVER), Err(failure("late")));
    assert_eq!(wait_any(&both[1..], Deadline::NEVER), Err(failure("late")));
}

#[test]
fn a_failure_ends_a_wait_for_all_though_another_point_is_never_reached() {
    let (never, fails) = (Timeline::new("never", 0), Timeline::new("fails", 0));
    let points = [never.point(1), fails.point(1)];
    let waiter = thread::spawn(move || wait_all(&points, Deadline::after(LONG)));
    thread::sleep(SOON);
    fails.fail(failure("cause")).unwrap();
    assert_eq!(waiter.join().unwrap(), Err(failure("cause")));
}

#[test]
fn the_owner_alone_signals_what_is_owned() {
    let owner = Timeline::owned("lane", 0, None);
    let timeline = owner.timeline().clone();
    assert!(matches!(timeline.signal(1), Err(DeviceError::NotTheOwner { .. })));
    assert!(matches!(timeline.fail(failure("x")), Err(DeviceError::NotTheOwner { .. })));
    owner.signal(1).unwrap();
    assert!(timeline.has_reached(1));
}

#[test]
fn waits_for_several_end_with_the_last_or_the_first() {
    let timelines: Vec<_> = (0..4).map(|_| Timeline::new("t", 0)).collect();
    let points: Vec<_> = timelines.iter().map(|timeline| timeline.point(1)).collect();
    assert_eq!(wait_all(&[], Deadline::NEVER), Ok(()));
    assert_eq!(wait_any(&[], Deadline::NEVER), Err(DeviceError::NothingToWaitFor));
    let (all, any) = (points.clone(), points.clone());
    let all = thread::spawn(move || wait_all(&all, Deadline::after(LONG)));
    let any = thread::spawn(move || wait_any(&any, Deadline::after(LONG)));
    thread::sleep(SOON);
    timelines[2].signal(1).unwrap();
    assert_eq!(any.join().unwrap(), Ok(2));
    timelines.iter().enumerate().filter(|(i, _)| *i != 2).for_each(|(_, t)| t.signal(1).unwrap());
    assert_eq!(all.join().unwrap(), Ok(()));
    assert!(timelines.iter().all(|timeline| lock(&timeline.0.watchers).is_empty()));
}

/// Two threads that take turns; a lost wake-up shows as a deadline that passes.
#[test]
fn ping_pong_loses_no_wake_up() {
    const ROUNDS: u64 = 20_000;
    let (ping, pong) = (Timeline::new("ping", 0), Timeline::new("pong", 0));
    let (there, back) = (ping.clone(), pong.clone());
    let other = thread::spawn(move || {
        for round in 1..=ROUNDS {
            there.wait(round, Deadline::after(LONG)).unwrap();
            back.signal(round).unwrap();
        }
    });
    for round in 1..=ROUNDS {
        ping.signal(round).unwrap();
        pong.wait(round, Deadline::after(LONG)).unwrap();
    }
    other.join().unwrap();
}

/// Many waiters for many values, while the timeline moves by steps of every size.
#[test]
fn every_waiter_wakes_when_values_are_jumped_over() {
    syncline_testing::for_seeds("every_waiter_wakes", 30, |rng| {
        let timeline = Timeline::new("t", 0);
        let waiters: Vec<_> = (0..6)
            .map(|_| {
                let (awaited, value) = (timeline.clone(), rng.range(1..400));
                thread::spawn(move || awaited.wait(value, Deadline::after(LONG)))
            })
            .collect();
        let mut value = 0;
        while value < 400 {
            value += rng.range(1..60);
            timeline.signal(value).unwrap();
        }
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap().unwrap());
    });
}

/// Calls a function when it is woken.
struct Calls<F>(F);

impl<F: Fn() + Send + Sync> Wake for Calls<F> {
    fn wake(&self) {
        (self.0)();
    }
}

/// Panics again when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            std::panic::panic_any(Bomb);
        }
    }
}

#[test]
fn every_waker_is_called_though_others_panic_or_call_back() {
    let (timeline, other) = (Timeline::new("t", 0), Timeline::new("other", 0));
    let woken = Arc::new(AtomicU64::new(0));
    let (again, answers, count) = (timeline.clone(), other.clone(), woken.clone());
    let watches = [
        timeline.point(1).watch(Arc::new(Calls(|| std::panic::panic_any(Bomb)))),
        // Watches the very timeline whose signal it is called by, and signals another one.
        timeline.point(1).watch(Arc::new(Calls(move || {
            drop(again.point(2).watch(Arc::new(Calls(|| ()))));
            let _ = answers.signal(1);
        }))),
        timeline.point(1).watch(Arc::new(Calls(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }))),
    ];
    assert!(watches.iter().all(|watch| watch.look() == PointStatus::Pending));
    timeline.signal(1).unwrap();
    assert_eq!((other.value(), woken.load(Ordering::Relaxed)), (1, 1));
    timeline.signal(2).unwrap();
    assert_eq!(woken.load(Ordering::Relaxed), 1, "nobody looked again");
}
