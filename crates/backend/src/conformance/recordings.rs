//! Recordings: submitted again and again, with other bindings, on several lanes, and after a
//! failure.

use std::sync::Arc;

use syncline_tensor::Dtype;

use super::bench::{Bench, Fault, ensure, refused};
use super::cases;
use syncline_device::{
    Batch, BufferView, Command, DeviceError, KernelArg, Lane, Pattern, Recording, Timeline,
};

cases!(
    a_recording_runs_again_and_again,
    recordings_with_other_bindings,
    a_recording_on_several_lanes,
    a_recording_beside_commands_in_one_batch,
    a_recording_of_nothing,
    a_recording_after_a_failure,
    a_recording_whose_buffers_were_dropped_by_the_caller,
    what_runs_once_is_not_recorded,
);

fn floats(bench: &Bench<'_>, value: f32) -> Result<BufferView, Fault> {
    Ok(bench.buffer(&[value; 32])?.tensor(Dtype::F32, &[32])?)
}

/// Adds one to `view` and copies it to `copy`.
fn step(bench: &Bench<'_>, view: &BufferView, copy: &BufferView) -> Result<Vec<Command>, Fault> {
    let kernel = bench.kernel("add_one")?;
    Ok(vec![
        Command::dispatch(&kernel, vec![KernelArg::inout(view.clone())], vec![]),
        Command::copy(view.clone(), copy.clone()),
    ])
}

fn submit(
    lane: &dyn Lane,
    recording: &Arc<Recording>,
) -> Result<syncline_device::Point, DeviceError> {
    lane.submit(Command::recording(recording).into())
}

fn is(view: &BufferView, value: f32) -> Result<(), Fault> {
    let found = view.to_vec::<f32>()?;
    ensure!(found == [value; 32], "{} instead of {value}", found[0]);
    Ok(())
}

fn a_recording_runs_again_and_again(bench: &Bench<'_>) -> Result<(), Fault> {
    let (view, copy) = (floats(bench, 0.0)?, floats(bench, 0.0)?);
    let recording = Arc::new(Recording::new(step(bench, &view, &copy)?)?);
    let rounds = bench.count(200, 20_000);
    for _ in 0..rounds {
        submit(bench.lane(), &recording)?;
    }
    is(&view, rounds as f32)?;
    is(&copy, rounds as f32)
}

fn recordings_with_other_bindings(bench: &Bench<'_>) -> Result<(), Fault> {
    let mut all = Vec::new();
    for number in 0..4u8 {
        let start = f32::from(number) * 100.0;
        let (view, copy) = (floats(bench, start)?, floats(bench, 0.0)?);
        let recording = Arc::new(Recording::new(step(bench, &view, &copy)?)?);
        all.push((recording, view, copy, start));
    }
    for round in 0..20 {
        let (recording, ..) = &all[round % all.len()];
        submit(bench.lane(), recording)?;
    }
    for (_, view, copy, start) in &all {
        is(view, start + 5.0)?;
        is(copy, start + 5.0)?;
    }
    Ok(())
}

fn a_recording_on_several_lanes(bench: &Bench<'_>) -> Result<(), Fault> {
    let lanes: [&dyn Lane; 3] = bench.lanes()?;
    let (view, copy) = (floats(bench, 0.0)?, floats(bench, 0.0)?);
    let recording = Arc::new(Recording::new(step(bench, &view, &copy)?)?);
    for round in 0..90 {
        submit(lanes[round % 3], &recording)?;
    }
    is(&view, 90.0)?;
    is(&copy, 90.0)
}

fn a_recording_beside_commands_in_one_batch(bench: &Bench<'_>) -> Result<(), Fault> {
    let (view, copy) = (floats(bench, 0.0)?, floats(bench, 0.0)?);
    let recording = Arc::new(Recording::new(step(bench, &view, &copy)?)?);
    let fill = Command::fill(view.clone(), Pattern::new(&2.0f32.to_le_bytes())?);
    let batch = Batch::new()
        .command(Command::recording(&recording))
        .command(fill)
        .command(Command::recording(&recording))
        .command(Command::copy(copy.clone(), view.clone()))
        .command(Command::recording(&recording));
    bench.wait(&bench.lane().submit(batch)?)?;
    is(&view, 4.0)?;
    is(&copy, 4.0)
}

fn a_recording_of_nothing(bench: &Bench<'_>) -> Result<(), Fault> {
    let recording = Arc::new(Recording::new(Vec::new())?);
    for _ in 0..3 {
        bench.wait(&submit(bench.lane(), &recording)?)?;
    }
    Ok(())
}

fn a_recording_after_a_failure(bench: &Bench<'_>) -> Result<(), Fault> {
    let (view, copy) = (floats(bench, 0.0)?, floats(bench, 0.0)?);
    let recording = Arc::new(Recording::new(step(bench, &view, &copy)?)?);
    bench.wait(&submit(bench.lane(), &recording)?)?;
    let cause = DeviceError::Cancelled { reason: "on purpose".into() };
    let broken = Timeline::new("broken", 0);
    broken.fail(cause.clone())?;
    let batch = Batch::from(Command::recording(&recording)).wait(broken.point(1));
    let failed = bench.lane().submit(batch)?;
    refused(failed.wait(bench.in_time()), |error| *error.root_cause() == cause)?;
    bench.lane().recover();
    let zero = Pattern::new(&0.0f32.to_le_bytes())?;
    bench.run(Command::fill(view.clone(), zero))?;
    bench.wait(&submit(bench.lane(), &recording)?)?;
    is(&view, 1.0)?;
    is(&copy, 1.0)
}

fn a_recording_whose_buffers_were_dropped_by_the_caller(bench: &Bench<'_>) -> Result<(), Fault> {
    let (view, copy) = (floats(bench, 0.0)?, floats(bench, 0.0)?);
    let recording = Arc::new(Recording::new(step(bench, &view, &copy)?)?);
    drop(view);
    // Would get the same memory, if it had been given back too early.
    let others: Vec<BufferView> = (0..8).map(|_| floats(bench, 9.0)).collect::<Result<_, _>>()?;
    for _ in 0..10 {
        submit(bench.lane(), &recording)?;
    }
    is(&copy, 10.0)?;
    others.iter().try_for_each(|other| is(other, 9.0))
}

fn what_runs_once_is_not_recorded(_: &Bench<'_>) -> Result<(), Fault> {
    let refuse = |commands| {
        refused(Recording::new(commands), |error| {
            matches!(error, DeviceError::NotRecordable { .. })
        })
    };
    refuse(vec![Command::host("once", || Ok(()))])?;
    let nothing = Arc::new(Recording::new(Vec::new())?);
    refuse(vec![Command::recording(&nothing)])
}
