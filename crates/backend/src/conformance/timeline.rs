//! Timelines as the host sees them.

use std::thread;
use std::time::{Duration, Instant};

use super::bench::{Bench, Fault, ensure, joined, refused};
use super::cases;
use syncline_device::{Batch, Deadline, DeviceError, PointStatus, Timeline, wait_all, wait_any};

cases!(
    initial_value_is_where_it_stands,
    signal_moves_forward,
    signal_backwards_is_refused,
    signal_of_the_same_value_is_refused,
    values_near_the_maximum,
    wait_for_a_reached_value_returns_at_once,
    wait_for_nothing_returns_at_once,
    wait_for_any_of_nothing_is_refused,
    wait_all_and_any_of_which_none_is_reached,
    wait_all_of_which_some_are_reached,
    wait_all_reached_later_from_a_thread,
    wait_any_of_which_one_is_reached,
    wait_any_reached_later_from_a_thread,
    points_of_lanes_and_of_the_host_awaited_together,
    many_threads_wait_for_one_value,
    many_threads_wait_for_one_point_of_a_lane,
    a_value_that_is_jumped_over_is_reached,
    one_value_awaited_again_and_again,
    a_deadline_that_passes,
    a_deadline_in_the_past,
    an_endless_wait_ended_by_a_thread,
    fail_then_wait,
    wait_then_fail,
    several_waiters_then_fail,
    a_failure_keeps_its_first_cause,
    values_reached_before_a_failure_stay_reached,
    a_failed_timeline_takes_no_signals,
    a_failure_ends_a_wait_for_all,
    a_lane_alone_signals_its_timeline,
    threads_ping_pong,
);

fn cause(reason: &str) -> DeviceError {
    DeviceError::Cancelled { reason: reason.into() }
}

/// Long enough for a thread to have begun to wait, most of the time: both orders must work.
fn a_moment() {
    thread::sleep(Duration::from_millis(2));
}

fn initial_value_is_where_it_stands(_: &Bench<'_>) -> Result<(), Fault> {
    for initial in [0, 1, 17, 1 << 40] {
        let timeline = Timeline::new("case", initial);
        ensure!(timeline.value() == initial, "stands at {}", timeline.value());
        ensure!(timeline.point(initial).is_reached(), "{initial} is not reached");
        ensure!(!timeline.point(initial + 1).is_reached(), "{} is reached", initial + 1);
    }
    Ok(())
}

fn signal_moves_forward(_: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 0);
    for value in [1, 2, 5, 100, 1 << 33] {
        timeline.signal(value)?;
        ensure!(timeline.value() == value, "stands at {} after {value}", timeline.value());
    }
    Ok(())
}

fn signal_backwards_is_refused(_: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 9);
    refused(timeline.signal(3), |error| {
        matches!(error, DeviceError::SignalBackwards { current: 9, value: 3, .. })
    })?;
    ensure!(timeline.value() == 9, "moved to {}", timeline.value());
    Ok(())
}

fn signal_of_the_same_value_is_refused(_: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 0);
    timeline.signal(4)?;
    refused(timeline.signal(4), |error| matches!(error, DeviceError::SignalBackwards { .. }))
}

fn values_near_the_maximum(bench: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", Timeline::MAX_VALUE - 2);
    let last = timeline.point(Timeline::MAX_VALUE);
    timeline.signal(Timeline::MAX_VALUE - 1)?;
    ensure!(!last.is_reached(), "reached one too early");
    timeline.signal(Timeline::MAX_VALUE)?;
    bench.wait(&last)?;
    refused(timeline.signal(u64::MAX), |error| matches!(error, DeviceError::ValueTooLarge { .. }))
}

fn wait_for_a_reached_value_returns_at_once(_: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 5);
    for value in 0..=5 {
        timeline.wait(value, Deadline::at(Instant::now()))?;
    }
    Ok(())
}

fn wait_for_nothing_returns_at_once(_: &Bench<'_>) -> Result<(), Fault> {
    Ok(wait_all(&[], Deadline::at(Instant::now()))?)
}

fn wait_for_any_of_nothing_is_refused(bench: &Bench<'_>) -> Result<(), Fault> {
    refused(wait_any(&[], bench.in_time()), |error| *error == DeviceError::NothingToWaitFor)
}

fn wait_all_and_any_of_which_none_is_reached(bench: &Bench<'_>) -> Result<(), Fault> {
    let timelines: Vec<_> = (0..5).map(|_| Timeline::new("case", 0)).collect();
    let points: Vec<_> = timelines.iter().map(|of| of.point(1)).collect();
    let passed = |error: &DeviceError| matches!(error, DeviceError::DeadlinePassed { .. });
    refused(wait_all(&points, bench.soon()), passed)?;
    refused(wait_any(&points, bench.soon()), passed)?;
    timelines[2].signal(1)?;
    refused(wait_all(&points, bench.soon()), passed)?;
    let first = wait_any(&points, bench.in_time())?;
    ensure!(first == 2, "point {first} instead of 2");
    Ok(())
}

fn wait_all_of_which_some_are_reached(bench: &Bench<'_>) -> Result<(), Fault> {
    let (reached, pending) = (Timeline::new("reached", 3), Timeline::new("pending", 0));
    let points = [reached.point(2), pending.point(1), reached.point(3)];
    refused(wait_all(&points, bench.soon()), |error| {
        matches!(error, DeviceError::DeadlinePassed { .. })
    })?;
    pending.signal(1)?;
    Ok(wait_all(&points, bench.in_time())?)
}

fn wait_all_reached_later_from_a_thread(bench: &Bench<'_>) -> Result<(), Fault> {
    let timelines: Vec<_> = (0..8).map(|_| Timeline::new("case", 0)).collect();
    let points: Vec<_> = timelines.iter().zip(1..).map(|(of, value)| of.point(value)).collect();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_all(&points, bench.in_time()));
        for point in points.iter().rev() {
            a_moment();
            point.timeline().signal(point.value())?;
        }
        joined(waiter)
    })
}

fn wait_any_of_which_one_is_reached(bench: &Bench<'_>) -> Result<(), Fault> {
    let (reached, pending) = (Timeline::new("reached", 1), Timeline::new("pending", 0));
    let points = [pending.point(1), reached.point(1), pending.point(2)];
    let first = wait_any(&points, bench.in_time())?;
    ensure!(first == 1, "point {first} instead of 1");
    Ok(())
}

fn wait_any_reached_later_from_a_thread(bench: &Bench<'_>) -> Result<(), Fault> {
    let timelines: Vec<_> = (0..4).map(|_| Timeline::new("case", 0)).collect();
    let points: Vec<_> = timelines.iter().map(|of| of.point(1)).collect();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_any(&points, bench.in_time()));
        a_moment();
        timelines[3].signal(1)?;
        let first = joined(waiter)?;
        ensure!(first == 3, "point {first} instead of 3");
        Ok(())
    })
}

fn points_of_lanes_and_of_the_host_awaited_together(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let (gate, host) = (Timeline::new("gate", 0), Timeline::new("host", 0));
    let blocked = bench.lane().submit(Batch::new().wait(gate.point(1)))?;
    let points = [blocked, host.point(1)];
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_any(&points, bench.in_time()));
        a_moment();
        host.signal(1)?;
        let first = joined(waiter)?;
        ensure!(first == 1, "the blocked lane was taken for reached");
        let waiter = scope.spawn(|| wait_all(&points, bench.in_time()));
        a_moment();
        gate.signal(1)?;
        joined(waiter)
    })
}

fn many_threads_wait_for_one_value(bench: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 0);
    thread::scope(|scope| {
        let waiters: Vec<_> =
            (0..16).map(|_| scope.spawn(|| timeline.wait(1, bench.in_time()))).collect();
        a_moment();
        timeline.signal(1)?;
        waiters.into_iter().try_for_each(joined)
    })
}

fn many_threads_wait_for_one_point_of_a_lane(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let gate = Timeline::new("gate", 0);
    let point = bench.lane().submit(Batch::new().wait(gate.point(1)))?;
    thread::scope(|scope| {
        let waiters: Vec<_> =
            (0..16).map(|_| scope.spawn(|| point.wait(bench.in_time()))).collect();
        a_moment();
        gate.signal(1)?;
        waiters.into_iter().try_for_each(joined)
    })
}

fn a_value_that_is_jumped_over_is_reached(bench: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 0);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| timeline.wait(500, bench.in_time()));
        a_moment();
        timeline.signal(499)?;
        a_moment();
        timeline.signal(1 << 34)?;
        joined(waiter)
    })
}

fn one_value_awaited_again_and_again(bench: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 0);
    timeline.signal(7)?;
    (0..1000).try_for_each(|_| Ok(timeline.wait(7, bench.in_time())?))
}

fn a_deadline_that_passes(bench: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 0);
    let began = Instant::now();
    refused(timeline.wait(1, bench.soon()), |error| {
        matches!(error, DeviceError::DeadlinePassed { value: 1, current: 0, .. })
    })?;
    ensure!(began.elapsed() >= Duration::from_millis(10), "gave up after {:?}", began.elapsed());
    ensure!(timeline.status(1) == PointStatus::Pending, "a wait that gave up changed the timeline");
    Ok(())
}

fn a_deadline_in_the_past(_: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 0);
    let past = Instant::now().checked_sub(Duration::from_secs(1)).unwrap_or_else(Instant::now);
    for _ in 0..100 {
        refused(timeline.wait(1, Deadline::at(past)), |error| {
            matches!(error, DeviceError::DeadlinePassed { .. })
        })?;
    }
    Ok(())
}

fn an_endless_wait_ended_by_a_thread(_: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 0);
    thread::scope(|scope| {
        let signaller = scope.spawn(|| {
            a_moment();
            timeline.signal(1)
        });
        timeline.wait(1, Deadline::NEVER)?;
        joined(signaller)
    })
}

fn fail_then_wait(bench: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 0);
    timeline.fail(cause("first"))?;
    for value in [1, 2] {
        refused(timeline.wait(value, bench.in_time()), |error| *error == cause("first"))?;
    }
    bench.wait(&timeline.point(0))
}

fn wait_then_fail(bench: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 0);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| Ok::<_, Fault>(timeline.wait(1, bench.in_time())));
        a_moment();
        timeline.fail(cause("first"))?;
        refused(joined(waiter)?, |error| *error == cause("first"))
    })
}

fn several_waiters_then_fail(bench: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 0);
    let wait = |value| Ok::<_, Fault>(timeline.wait(value, bench.in_time()));
    thread::scope(|scope| {
        let wait = &wait;
        let waiters: Vec<_> = (1..9).map(|value| scope.spawn(move || wait(value))).collect();
        a_moment();
        timeline.fail(cause("all"))?;
        for waiter in waiters {
            refused(joined(waiter)?, |error| *error == cause("all"))?;
        }
        Ok(())
    })
}

fn a_failure_keeps_its_first_cause(_: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 0);
    for reason in ["first", "second", "third"] {
        timeline.fail(cause(reason))?;
        ensure!(timeline.failure() == Some(cause("first")), "became {:?}", timeline.failure());
    }
    Ok(())
}

fn values_reached_before_a_failure_stay_reached(bench: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 0);
    timeline.signal(5)?;
    timeline.fail(cause("late"))?;
    refused(timeline.wait(6, bench.in_time()), |error| *error == cause("late"))?;
    ensure!(timeline.status(5) == PointStatus::Reached, "became {:?}", timeline.status(5));
    bench.wait(&timeline.point(3))
}

fn a_failed_timeline_takes_no_signals(_: &Bench<'_>) -> Result<(), Fault> {
    let timeline = Timeline::new("case", 1);
    timeline.fail(cause("gone"))?;
    refused(timeline.signal(2), |error| *error == cause("gone"))?;
    ensure!(timeline.value() == 1, "moved to {}", timeline.value());
    Ok(())
}

fn a_failure_ends_a_wait_for_all(bench: &Bench<'_>) -> Result<(), Fault> {
    let (never, fails) = (Timeline::new("never", 0), Timeline::new("fails", 0));
    let points = [never.point(1), fails.point(1)];
    thread::scope(|scope| {
        let waiter = scope.spawn(|| Ok::<_, Fault>(wait_all(&points, bench.in_time())));
        a_moment();
        fails.fail(cause("one of them"))?;
        refused(joined(waiter)?, |error| *error == cause("one of them"))
    })
}

fn a_lane_alone_signals_its_timeline(bench: &Bench<'_>) -> Result<(), Fault> {
    let point = bench.lane().submit(Batch::new())?;
    bench.wait(&point)?;
    let timeline = point.timeline();
    let not_ours = |error: &DeviceError| matches!(error, DeviceError::NotTheOwner { .. });
    refused(timeline.signal(point.value() + 10), not_ours)?;
    refused(timeline.fail(cause("not ours")), not_ours)?;
    let batch = Batch::new().signal(timeline.point(point.value() + 10));
    refused(bench.lane().submit(batch), not_ours)
}

fn threads_ping_pong(bench: &Bench<'_>) -> Result<(), Fault> {
    let rounds = bench.count(5_000, 1_000_000);
    let (ping, pong) = (Timeline::new("ping", 0), Timeline::new("pong", 0));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            (1..=rounds).try_for_each(|round| {
                ping.wait(round, bench.in_time())?;
                pong.signal(round)
            })
        });
        for round in 1..=rounds {
            ping.signal(round)?;
            pong.wait(round, bench.in_time())?;
        }
        joined(other)
    })
}
