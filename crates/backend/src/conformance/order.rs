//! Order: batches of one lane, waits between lanes and the host, and submissions to several lanes.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use syncline_sync::lock;

use super::bench::{Bench, Fault, ensure, joined, refused};
use super::cases;
use syncline_device::{
    Batch, Buffer, Command, DeviceError, Lane, Pattern, Point, SubmissionGuard, Timeline, wait_all,
};

cases!(
    an_idle_lane_is_synchronised,
    values_of_a_lane_follow_each_other,
    batches_complete_in_order,
    commands_of_a_batch_run_in_order,
    host_functions_run_in_order,
    an_intermediate_point_between_two_batches,
    a_batch_of_nothing_still_waits_and_signals,
    one_batch_signals_many_timelines,
    one_batch_waits_for_many_timelines,
    one_batch_waits_for_many_and_signals_many,
    batches_at_values_near_the_maximum,
    signals_come_before_the_lanes_own_point,
    a_wait_for_an_earlier_batch_of_the_same_lane,
    a_wait_for_a_later_batch_of_the_same_lane_is_refused,
    the_host_releases_a_lane,
    a_lane_waits_for_a_later_batch_of_another,
    a_waiting_lane_does_not_hold_up_another,
    fan_out_in_one_jump,
    fan_out_one_by_one,
    two_batches_wait_for_one_of_two_earlier_ones,
    a_smaller_value_after_a_larger_one,
    a_smaller_value_while_the_larger_ones_producer_is_blocked,
    device_host_device_host,
    lanes_ping_pong,
    host_and_lane_ping_pong,
    crossed_groups_under_a_guard,
    safe_submissions_from_two_threads_never_cross,
);

fn fill(buffer: &Buffer, byte: u8) -> Result<Command, Fault> {
    Ok(Command::fill(buffer.all(), Pattern::new(&[byte])?))
}

fn an_idle_lane_is_synchronised(bench: &Bench<'_>) -> Result<(), Fault> {
    Ok(bench.lane().synchronize(bench.in_time())?)
}

fn values_of_a_lane_follow_each_other(bench: &Bench<'_>) -> Result<(), Fault> {
    let first = bench.lane().submit(Batch::new())?;
    for step in 1..50 {
        let point = bench.lane().submit(Batch::new())?;
        let (is, should) = (point.value(), first.value() + step);
        ensure!(is == should, "value {is} instead of {should}");
        ensure!(point == bench.lane().last(), "the last point is another one");
    }
    Ok(bench.lane().synchronize(bench.in_time())?)
}

fn batches_complete_in_order(bench: &Bench<'_>) -> Result<(), Fault> {
    let buffer = bench.buffer(&[0u8; 4096])?;
    let mut points = Vec::new();
    for byte in 0..100 {
        points.push(bench.lane().submit(fill(&buffer, byte)?.into())?);
    }
    for (at, point) in points.iter().enumerate().rev() {
        bench.wait(point)?;
        ensure!(
            points[..at].iter().all(Point::is_reached),
            "an earlier point than {at} is pending"
        );
    }
    ensure!(buffer.read::<u8>(0, 4096)? == [99; 4096], "the buffer does not hold the last fill");
    Ok(())
}

fn commands_of_a_batch_run_in_order(bench: &Bench<'_>) -> Result<(), Fault> {
    let (first, second) = (bench.buffer(&[0u8; 256])?, bench.buffer(&[0u8; 256])?);
    let batch = Batch::new()
        .command(fill(&first, 1)?)
        .command(Command::copy(first.all(), second.all()))
        .command(fill(&first, 2)?);
    bench.wait(&bench.lane().submit(batch)?)?;
    ensure!(
        second.read::<u8>(0, 256)? == [1; 256],
        "copied at another time than between the fills"
    );
    ensure!(first.read::<u8>(0, 256)? == [2; 256], "the second fill is missing");
    Ok(())
}

fn host_functions_run_in_order(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_host_functions()?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    for number in 0..200 {
        let seen = seen.clone();
        bench.lane().submit(Batch::from(Command::host("note", move || {
            lock(&seen).push(number);
            Ok(())
        })))?;
    }
    bench.lane().synchronize(bench.in_time())?;
    let seen = lock(&seen);
    ensure!(seen.iter().copied().eq(0..200), "{seen:?}");
    Ok(())
}

fn an_intermediate_point_between_two_batches(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let gate = Timeline::new("gate", 0);
    let buffer = bench.buffer(&[0u8; 64])?;
    let first = bench.lane().submit(fill(&buffer, 1)?.into())?;
    let second = bench.lane().submit(Batch::new().wait(gate.point(1)))?;
    bench.wait(&first)?;
    ensure!(!second.is_reached(), "the second batch did not wait");
    gate.signal(1)?;
    bench.wait(&second)
}

fn a_batch_of_nothing_still_waits_and_signals(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let (gate, out) = (Timeline::new("gate", 0), Timeline::new("out", 0));
    let batch = Batch::new().wait(gate.point(1)).signal(out.point(7));
    let point = bench.lane().submit(batch)?;
    ensure!(out.value() == 0 && !point.is_reached(), "signalled before its wait");
    gate.signal(1)?;
    bench.wait(&out.point(7))?;
    bench.wait(&point)
}

fn one_batch_signals_many_timelines(bench: &Bench<'_>) -> Result<(), Fault> {
    let timelines: Vec<_> = (0..32).map(|_| Timeline::new("out", 0)).collect();
    let batch = timelines
        .iter()
        .zip(1..)
        .fold(Batch::new(), |batch, (timeline, value)| batch.signal(timeline.point(value)));
    bench.lane().submit(batch)?;
    let points: Vec<_> = timelines.iter().zip(1..).map(|(of, value)| of.point(value)).collect();
    Ok(wait_all(&points, bench.in_time())?)
}

fn one_batch_waits_for_many_timelines(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let timelines: Vec<_> = (0..32).map(|_| Timeline::new("in", 0)).collect();
    let batch = Batch::new().waits(timelines.iter().map(|timeline| timeline.point(1)));
    let point = bench.lane().submit(batch)?;
    for timeline in timelines.iter().rev() {
        ensure!(!point.is_reached(), "completed before all its waits");
        timeline.signal(1)?;
    }
    bench.wait(&point)
}

fn one_batch_waits_for_many_and_signals_many(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let timelines = || (0..64).map(|_| Timeline::new("case", 0)).collect::<Vec<_>>();
    let (gates, outs) = (timelines(), timelines());
    let batch = Batch::new().waits(gates.iter().map(|gate| gate.point(2)));
    let batch = outs.iter().fold(batch, |batch, out| batch.signal(out.point(3)));
    let point = bench.lane().submit(batch)?;
    gates.iter().try_for_each(|gate| gate.signal(1))?;
    ensure!(!point.is_reached() && outs.iter().all(|out| out.value() == 0), "it did not wait");
    gates.iter().rev().try_for_each(|gate| gate.signal(2))?;
    bench.wait(&point)?;
    ensure!(outs.iter().all(|out| out.value() == 3), "a signal is missing");
    Ok(())
}

fn batches_at_values_near_the_maximum(bench: &Bench<'_>) -> Result<(), Fault> {
    let [first, second] = bench.lanes()?;
    let timeline = Timeline::new("case", Timeline::MAX_VALUE - 3);
    let at = |below: u64| timeline.point(Timeline::MAX_VALUE - below);
    first.submit(Batch::new().wait(at(3)).signal(at(2)))?;
    bench.wait(&at(2))?;
    second.submit(Batch::new().wait(at(2)).signal(at(0)))?;
    bench.wait(&first.submit(Batch::new().wait(at(1)))?)?;
    bench.wait(&second.submit(Batch::new().wait(at(0)))?)?;
    let beyond = timeline.point(Timeline::MAX_VALUE + 1);
    let point = first.submit(Batch::new().signal(beyond));
    refused(point.and_then(|point| point.wait(bench.in_time())), |error| {
        matches!(error, DeviceError::ValueTooLarge { .. })
    })
}

fn signals_come_before_the_lanes_own_point(bench: &Bench<'_>) -> Result<(), Fault> {
    for _ in 0..200 {
        let out = Timeline::new("out", 0);
        bench.wait(&bench.lane().submit(Batch::new().signal(out.point(1)))?)?;
        ensure!(out.value() == 1, "the lane's point was reached first");
    }
    Ok(())
}

fn a_wait_for_an_earlier_batch_of_the_same_lane(bench: &Bench<'_>) -> Result<(), Fault> {
    let mut last = bench.lane().submit(Batch::new())?;
    for _ in 0..50 {
        last = bench.lane().submit(Batch::new().wait(last))?;
    }
    bench.wait(&last)
}

fn a_wait_for_a_later_batch_of_the_same_lane_is_refused(bench: &Bench<'_>) -> Result<(), Fault> {
    let last = bench.lane().submit(Batch::new())?;
    let later = last.timeline().point(last.value() + 1);
    refused(bench.lane().submit(Batch::new().wait(later)), |error| {
        matches!(error, DeviceError::WaitsForItself { .. })
    })?;
    Ok(bench.lane().synchronize(bench.in_time())?)
}

fn the_host_releases_a_lane(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let gate = Timeline::new("gate", 0);
    let buffer = bench.buffer(&[0u8; 64])?;
    let batch = Batch::from(fill(&buffer, 5)?).wait(gate.point(3));
    let point = bench.lane().submit(batch)?;
    gate.signal(2)?;
    refused(point.wait(bench.soon()), |error| matches!(error, DeviceError::DeadlinePassed { .. }))?;
    gate.signal(4)?;
    bench.wait(&point)?;
    ensure!(buffer.read::<u8>(0, 64)? == [5; 64], "the fill is missing");
    Ok(())
}

fn a_lane_waits_for_a_later_batch_of_another(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let [first, second] = bench.lanes()?;
    let ready = Timeline::new("ready", 0);
    let (source, target) = (bench.buffer(&[0u8; 64])?, bench.buffer(&[9u8; 64])?);
    // The copy is queued before the fill that it waits for: the order by buffers cannot know of
    // that.
    let copied = first.submit(Batch::new().wait(ready.point(1)))?;
    second.submit(Batch::from(fill(&source, 4)?).signal(ready.point(1)))?;
    let copied =
        first.submit(Batch::from(Command::copy(source.all(), target.all())).wait(copied))?;
    bench.wait(&copied)?;
    ensure!(target.read::<u8>(0, 64)? == [4; 64], "copied before the fill");
    Ok(())
}

fn a_waiting_lane_does_not_hold_up_another(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let [blocked, free] = bench.lanes()?;
    let gate = Timeline::new("gate", 0);
    let waiting = blocked.submit(Batch::new().wait(gate.point(1)))?;
    let done = free.submit(Batch::new())?;
    bench.wait(&done)?;
    ensure!(!waiting.is_reached(), "it did not wait");
    gate.signal(1)?;
    bench.wait(&waiting)
}

fn fan_out(bench: &Bench<'_>, values: impl IntoIterator<Item = u64>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let lanes: [&dyn Lane; 3] = bench.lanes()?;
    let source = Timeline::new("source", 0);
    let mut points = Vec::new();
    for (lane, value) in lanes.into_iter().zip([3, 1, 2]) {
        points.push((value, lane.submit(Batch::new().wait(source.point(value)))?));
    }
    for value in values {
        source.signal(value)?;
        for (awaited, point) in &points {
            match *awaited <= value {
                true => bench.wait(point)?,
                false => ensure!(!point.is_reached(), "{awaited} is reached at {value}"),
            }
        }
    }
    Ok(())
}

fn fan_out_in_one_jump(bench: &Bench<'_>) -> Result<(), Fault> {
    fan_out(bench, [3])
}

fn fan_out_one_by_one(bench: &Bench<'_>) -> Result<(), Fault> {
    fan_out(bench, [1, 2, 3])
}

fn two_batches_wait_for_one_of_two_earlier_ones(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let [producer, one, other] = bench.lanes()?;
    let gate = Timeline::new("gate", 0);
    let first = producer.submit(Batch::new())?;
    let second = producer.submit(Batch::new().wait(gate.point(1)))?;
    let early =
        [one.submit(Batch::new().wait(first.clone()))?, other.submit(Batch::new().wait(first))?];
    wait_all(&early, bench.in_time())?;
    ensure!(!second.is_reached(), "the second batch did not wait");
    gate.signal(1)?;
    bench.wait(&second)
}

fn a_smaller_value_after_a_larger_one(bench: &Bench<'_>) -> Result<(), Fault> {
    let source = Timeline::new("source", 0);
    source.signal(10)?;
    for value in [10, 5, 1] {
        bench.wait(&bench.lane().submit(Batch::new().wait(source.point(value)))?)?;
    }
    Ok(())
}

fn a_smaller_value_while_the_larger_ones_producer_is_blocked(
    bench: &Bench<'_>,
) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let [producer, consumer] = bench.lanes()?;
    let (gate, source) = (Timeline::new("gate", 0), Timeline::new("source", 0));
    producer.submit(Batch::new().signal(source.point(1)))?;
    let blocked = producer.submit(Batch::new().wait(gate.point(1)).signal(source.point(2)))?;
    let small = consumer.submit(Batch::new().wait(source.point(1)))?;
    bench.wait(&small)?;
    ensure!(!blocked.is_reached(), "the producer of 2 did not wait");
    let large = consumer.submit(Batch::new().wait(source.point(2)))?;
    gate.signal(1)?;
    bench.wait(&large)
}

fn device_host_device_host(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let (to_device, to_host) = (Timeline::new("to device", 0), Timeline::new("to host", 0));
    for round in 1..=20 {
        let batch = Batch::new().wait(to_device.point(round)).signal(to_host.point(round));
        bench.lane().submit(batch)?;
    }
    for round in 1..=20 {
        ensure!(to_host.value() == round - 1, "the device ran ahead to {}", to_host.value());
        to_device.signal(round)?;
        bench.wait(&to_host.point(round))?;
    }
    Ok(())
}

fn lanes_ping_pong(bench: &Bench<'_>) -> Result<(), Fault> {
    let [ping, pong] = bench.lanes()?;
    let mut last = ping.submit(Batch::new())?;
    for _ in 0..bench.count(1_000, 100_000) {
        let there = pong.submit(Batch::new().wait(last))?;
        last = ping.submit(Batch::new().wait(there))?;
    }
    Ok(last.wait(syncline_device::Deadline::after(Duration::from_secs(120)))?)
}

fn host_and_lane_ping_pong(bench: &Bench<'_>) -> Result<(), Fault> {
    for _ in 0..bench.count(1_000, 100_000) {
        bench.wait(&bench.lane().submit(Batch::new())?)?;
    }
    Ok(())
}

/// Two threads queue pairs of batches that wait for each other, in opposite order. Without the
/// guard, the first halves of two pairs can be queued before both second halves, and nothing ever
/// runs again.
fn crossed_groups_under_a_guard(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let lanes: [&dyn Lane; 2] = bench.lanes()?;
    let group = |first: &dyn Lane, second: &dyn Lane| {
        let turn = Timeline::new("turn", 0);
        let _guard = SubmissionGuard::lock(lanes);
        let waits = first.submit(Batch::new().wait(turn.point(1)))?;
        thread::yield_now();
        let signals = second.submit(Batch::new().signal(turn.point(1)))?;
        Ok::<_, DeviceError>([waits, signals])
    };
    let groups = bench.count(300, 10_000);
    thread::scope(|scope| {
        let submit = |first, second| {
            let group = &group;
            scope.spawn(move || {
                let mut last = Vec::new();
                for _ in 0..groups {
                    last = group(first, second)?.to_vec();
                }
                Ok::<_, DeviceError>(last)
            })
        };
        let threads = [submit(lanes[0], lanes[1]), submit(lanes[1], lanes[0])];
        for thread in threads {
            wait_all(&joined(thread)?, bench.in_time())?;
        }
        Ok(())
    })
}

/// As above with buffers: two threads whose batches on different lanes share two buffers, named in
/// opposite order.
fn safe_submissions_from_two_threads_never_cross(bench: &Bench<'_>) -> Result<(), Fault> {
    let lanes: [&dyn Lane; 2] = bench.lanes()?;
    let buffers = [bench.buffer(&[0u8; 64])?, bench.buffer(&[0u8; 64])?];
    let rounds = bench.count(300, 10_000);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|which| {
                let buffers = &buffers;
                let (one, other) = (&buffers[which], &buffers[1 - which]);
                scope.spawn(move || {
                    for _ in 0..rounds {
                        let batch = Batch::new()
                            .command(Command::copy(one.all(), other.all()))
                            .command(Command::copy(other.all(), one.all()));
                        lanes[which].submit(batch)?;
                    }
                    Ok::<_, DeviceError>(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(joined)
    })?;
    wait_all(&lanes.map(|lane| lane.last()), bench.in_time())?;
    Ok(())
}
