//! Failure: where it goes, what it stops, and what comes after.

use std::time::{Duration, Instant};

use syncline_tensor::Dtype;

use super::bench::{Bench, Fault, ensure, refused};
use super::cases;
use syncline_device::{Batch, Command, DeviceError, KernelArg, Lane, Pattern, Point, Timeline};

cases!(
    a_failed_wait_fails_the_batch,
    a_wait_that_fails_while_the_lane_waits,
    work_behind_a_failure_never_runs,
    a_failure_crosses_from_lane_to_lane,
    a_failure_reaches_the_timelines_of_its_signals,
    an_independent_lane_is_not_concerned,
    a_failed_lane_takes_no_work,
    a_recovered_lane_works_again,
    old_points_stay_failed_after_recovery,
    recovering_a_sound_lane_changes_nothing,
    buffers_are_released_after_a_failure,
    what_failed_work_should_have_written_cannot_be_read,
    writing_anew_makes_a_buffer_readable,
    what_was_written_before_the_failure_can_be_read,
    a_kernel_that_fails,
    a_kernel_that_panics,
    a_host_function_that_fails,
    a_signal_that_goes_backwards_fails_the_batch,
    a_lane_closed_with_work_pending,
);

fn cause() -> DeviceError {
    DeviceError::Cancelled { reason: "on purpose".into() }
}

/// Fails `lane` by a wait for a timeline that has failed; returns the point of the failed batch.
fn fail(lane: &dyn Lane, batch: Batch) -> Result<Point, Fault> {
    let broken = Timeline::new("broken", 0);
    let point = lane.submit(batch.wait(broken.point(1)))?;
    broken.fail(cause())?;
    Ok(point)
}

fn fails_with_cause(bench: &Bench<'_>, point: &Point) -> Result<(), Fault> {
    refused(point.wait(bench.in_time()), |error| *error.root_cause() == cause())
}

fn a_failed_wait_fails_the_batch(bench: &Bench<'_>) -> Result<(), Fault> {
    let broken = Timeline::new("broken", 0);
    broken.fail(cause())?;
    let point = bench.lane().submit(Batch::new().wait(broken.point(1)).task("unlucky"))?;
    let error = point.wait(bench.in_time()).expect_err("its wait failed");
    ensure!(*error.root_cause() == cause(), "{error}");
    ensure!(error.to_string().contains("unlucky"), "the task is not named: {error}");
    Ok(())
}

fn a_wait_that_fails_while_the_lane_waits(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let broken = Timeline::new("broken", 0);
    let point = bench.lane().submit(Batch::new().wait(broken.point(1)))?;
    std::thread::sleep(Duration::from_millis(3));
    broken.fail(cause())?;
    fails_with_cause(bench, &point)
}

fn work_behind_a_failure_never_runs(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let gate = Timeline::new("gate", 0);
    let buffer = bench.buffer(&[1u8; 64])?;
    let first = bench.lane().submit(Batch::new().wait(gate.point(1)))?;
    let mut points = Vec::new();
    for byte in 2..10 {
        points
            .push(bench.lane().submit(Command::fill(buffer.all(), Pattern::new(&[byte])?).into())?);
    }
    gate.fail(cause())?;
    points.insert(0, first);
    points.iter().try_for_each(|point| fails_with_cause(bench, point))?;
    if bench.device.info().capabilities.host_visible {
        // A map for writing shows the bytes as they are, whatever should have been written.
        ensure!(*buffer.map_mut(bench.in_time())? == [1; 64], "a fill behind the failure ran");
    }
    Ok(())
}

fn a_failure_crosses_from_lane_to_lane(bench: &Bench<'_>) -> Result<(), Fault> {
    let [first, second, third] = bench.lanes()?;
    let one = fail(first, Batch::new())?;
    let two = second.submit(Batch::new().wait(one))?;
    let three = third.submit(Batch::new().wait(two))?;
    fails_with_cause(bench, &three)
}

fn a_failure_reaches_the_timelines_of_its_signals(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let gate = Timeline::new("gate", 0);
    let (own, behind) = (Timeline::new("own", 0), Timeline::new("behind", 0));
    bench.lane().submit(Batch::new().wait(gate.point(1)).signal(own.point(1)))?;
    bench.lane().submit(Batch::new().signal(behind.point(1)))?;
    gate.fail(cause())?;
    fails_with_cause(bench, &own.point(1))?;
    fails_with_cause(bench, &behind.point(1))
}

fn an_independent_lane_is_not_concerned(bench: &Bench<'_>) -> Result<(), Fault> {
    let [broken, sound] = bench.lanes()?;
    let point = fail(broken, Batch::new())?;
    fails_with_cause(bench, &point)?;
    bench.wait(&sound.submit(Batch::new())?)
}

fn a_failed_lane_takes_no_work(bench: &Bench<'_>) -> Result<(), Fault> {
    fails_with_cause(bench, &fail(bench.lane(), Batch::new())?)?;
    for _ in 0..3 {
        refused(bench.lane().submit(Batch::new()), |error| *error.root_cause() == cause())?;
    }
    fails_with_cause(bench, &bench.lane().last())
}

fn a_recovered_lane_works_again(bench: &Bench<'_>) -> Result<(), Fault> {
    let buffer = bench.buffer(&[0u8; 64])?;
    for byte in 1..20 {
        fails_with_cause(bench, &fail(bench.lane(), Batch::new())?)?;
        bench.lane().recover();
        bench.run(Command::fill(buffer.all(), Pattern::new(&[byte])?))?;
        ensure!(buffer.read::<u8>(0, 64)? == [byte; 64], "no work after recovery {byte}");
    }
    Ok(())
}

fn old_points_stay_failed_after_recovery(bench: &Bench<'_>) -> Result<(), Fault> {
    let old = fail(bench.lane(), Batch::new())?;
    fails_with_cause(bench, &old)?;
    bench.lane().recover();
    for _ in 0..5 {
        bench.wait(&bench.lane().submit(Batch::new())?)?;
    }
    fails_with_cause(bench, &old)
}

fn recovering_a_sound_lane_changes_nothing(bench: &Bench<'_>) -> Result<(), Fault> {
    let before = bench.lane().submit(Batch::new())?;
    bench.lane().recover();
    let after = bench.lane().submit(Batch::new())?;
    ensure!(before.timeline().id() == after.timeline().id(), "another timeline");
    bench.wait(&before)?;
    bench.wait(&after)
}

fn buffers_are_released_after_a_failure(bench: &Bench<'_>) -> Result<(), Fault> {
    let before = bench.device.memory_use().in_use_bytes;
    let buffer = bench.buffer(&[0u8; 4_096])?;
    let fill = Command::fill(buffer.all(), Pattern::new(&[1])?);
    let point = fail(bench.lane(), fill.into())?;
    fails_with_cause(bench, &point)?;
    // The failure is known: nothing may hold the buffer any longer.
    buffer.write_from(0, &[1u8], bench.soon())?;
    drop(buffer);
    // The lane lets go of its handle after it has told of the failure, not before.
    let in_use = || bench.device.memory_use().in_use_bytes;
    let until = Instant::now() + Duration::from_secs(5);
    while in_use() != before && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let after = in_use();
    ensure!(before == after, "{after} bytes are in use, {before} were before");
    Ok(())
}

fn what_failed_work_should_have_written_cannot_be_read(bench: &Bench<'_>) -> Result<(), Fault> {
    let [first, second] = bench.lanes()?;
    let (buffer, copy) = (bench.buffer(&[0u8; 64])?, bench.buffer(&[0u8; 64])?);
    let fill = Command::fill(buffer.all(), Pattern::new(&[1])?);
    fails_with_cause(bench, &fail(first, fill.into())?)?;
    let same = |error: &DeviceError| *error.root_cause() == cause();
    refused(buffer.read::<u8>(0, 1), same)?;
    // Work that reads it inherits the failure without having been told to wait.
    let point = second.submit(Command::copy(buffer.all(), copy.all()).into())?;
    refused(point.wait(bench.in_time()), same)
}

fn writing_anew_makes_a_buffer_readable(bench: &Bench<'_>) -> Result<(), Fault> {
    let [first, second] = bench.lanes()?;
    let fill = |buffer: &syncline_device::Buffer, byte| {
        Ok::<_, DeviceError>(Command::fill(buffer.all(), Pattern::new(&[byte])?))
    };
    let (by_host, by_lane) = (bench.buffer(&[0u8; 64])?, bench.buffer(&[0u8; 64])?);
    let batch = Batch::new().command(fill(&by_host, 1)?).command(fill(&by_lane, 1)?);
    fails_with_cause(bench, &fail(first, batch)?)?;
    by_host.write(0, &[5u8; 64])?;
    ensure!(by_host.read::<u8>(0, 64)? == [5; 64], "not what the host wrote");
    bench.wait(&second.submit(fill(&by_lane, 6)?.into())?)?;
    ensure!(by_lane.read::<u8>(0, 64)? == [6; 64], "not what the lane wrote");
    Ok(())
}

fn what_was_written_before_the_failure_can_be_read(bench: &Bench<'_>) -> Result<(), Fault> {
    let buffer = bench.buffer(&[0u8; 64])?;
    bench.lane().submit(Command::fill(buffer.all(), Pattern::new(&[3])?).into())?;
    fails_with_cause(bench, &fail(bench.lane(), Batch::new())?)?;
    ensure!(buffer.read::<u8>(0, 64)? == [3; 64], "the work before the failure is lost");
    Ok(())
}

fn a_kernel_that_fails(bench: &Bench<'_>) -> Result<(), Fault> {
    let kernel = bench.kernel("fails")?;
    let view = bench.buffer(&[0f32; 4])?.tensor(Dtype::F32, &[4])?;
    let dispatch = Command::dispatch(&kernel, vec![KernelArg::inout(view)], vec![]);
    let point = bench.lane().submit(Batch::from(dispatch).task("number 9"))?;
    let error = point.wait(bench.in_time()).expect_err("the kernel failed");
    ensure!(matches!(error, DeviceError::KernelFailed { .. }), "{error:?}");
    ensure!(error.task() == Some("number 9"), "the task is not named: {error}");
    ensure!(error.to_string().contains("as it was told to"), "{error}");
    Ok(())
}

fn a_kernel_that_panics(bench: &Bench<'_>) -> Result<(), Fault> {
    let kernel = bench.kernel("panics")?;
    for _ in 0..5 {
        let point = bench.lane().submit(Command::dispatch(&kernel, vec![], vec![]).into())?;
        refused(
            point.wait(bench.in_time()),
            |error| matches!(error, DeviceError::KernelPanicked { message, .. } if **message == *"quietly"),
        )?;
        bench.lane().recover();
        bench.wait(&bench.lane().submit(Batch::new())?)?;
    }
    Ok(())
}

fn a_host_function_that_fails(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_host_functions()?;
    let point = bench.lane().submit(Command::host("fails", || Err(cause())).into())?;
    fails_with_cause(bench, &point)?;
    bench.lane().recover();
    let panics = || std::panic::resume_unwind(Box::new("quietly"));
    let point = bench.lane().submit(Command::host("panics", panics).into())?;
    refused(point.wait(bench.in_time()), |error| {
        matches!(error, DeviceError::KernelPanicked { .. })
    })
}

fn a_signal_that_goes_backwards_fails_the_batch(bench: &Bench<'_>) -> Result<(), Fault> {
    let out = Timeline::new("out", 5);
    let point = bench.lane().submit(Batch::new().signal(out.point(3)))?;
    refused(point.wait(bench.in_time()), |error| {
        matches!(error, DeviceError::SignalBackwards { current: 5, value: 3, .. })
    })
}

fn a_lane_closed_with_work_pending(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need(bench.device.info().capabilities.open_lanes, "more lanes")?;
    bench.need_wait_before_signal()?;
    let lane = bench.device.open_lane(syncline_device::LaneKind::Compute, "closing")?;
    let never = Timeline::new("never", 0);
    let buffer = bench.buffer(&[0u8; 64])?;
    let fill = Command::fill(buffer.all(), Pattern::new(&[1])?);
    let points = [lane.submit(Batch::from(fill).wait(never.point(1)))?, lane.submit(Batch::new())?];
    drop(lane);
    for point in &points {
        refused(point.wait(bench.in_time()), |error| {
            matches!(error.root_cause(), DeviceError::Closed { .. })
        })?;
    }
    buffer.write_from(0, &[1u8], bench.soon())?;
    Ok(())
}
