//! Dispatch: kernels, their arguments and scalars, and the same kernel with other bindings.

use syncline_tensor::{Dtype, View};

use super::bench::{Bench, Fault, ensure, refused};
use super::cases;
use syncline_device::{
    Backend, Batch, BufferView, Command, DeviceError, Kernel, KernelArg, Scalar,
};

cases!(
    a_kernel_runs,
    scalars_arrive,
    two_inputs_and_an_output,
    an_argument_in_the_middle_of_a_buffer,
    an_argument_without_elements,
    one_kernel_with_other_bindings,
    one_buffer_as_both_inputs,
    a_thousand_dispatches_on_one_buffer,
    dispatches_and_copies_in_one_batch,
    dispatches_on_several_lanes_meet_in_one,
    disjoint_parts_of_one_buffer_on_several_lanes,
    column_blocks_of_one_matrix_on_several_lanes,
    a_kernel_without_an_implementation_is_refused,
    a_kernel_without_arguments,
    strided_arguments,
    overlapping_arguments_are_told_apart,
    inputs_cannot_be_written,
);

fn floats(bench: &Bench<'_>, values: &[f32]) -> Result<BufferView, Fault> {
    Ok(bench.buffer(values)?.tensor(Dtype::F32, &[values.len() as u64])?)
}

fn run(bench: &Bench<'_>, kernel: &Kernel, args: Vec<KernelArg>) -> Result<(), Fault> {
    bench.run(Command::dispatch(kernel, args, vec![]))
}

fn a_kernel_runs(bench: &Bench<'_>) -> Result<(), Fault> {
    let (kernel, view) = (bench.kernel("add_one")?, floats(bench, &[1.0, 2.0, -3.5])?);
    run(bench, &kernel, vec![KernelArg::inout(view.clone())])?;
    let found = view.to_vec::<f32>()?;
    ensure!(found == [2.0, 3.0, -2.5], "{found:?}");
    Ok(())
}

fn scalars_arrive(bench: &Bench<'_>) -> Result<(), Fault> {
    let (kernel, view) = (bench.kernel("scale")?, floats(bench, &[1.0, 2.0, 3.0])?);
    for (factor, expected) in [(2.0, [2.0, 4.0, 6.0]), (-0.5, [-1.0, -2.0, -3.0])] {
        let args = vec![KernelArg::inout(view.clone())];
        bench.run(Command::dispatch(&kernel, args, vec![Scalar::F32(factor)]))?;
        let found = view.to_vec::<f32>()?;
        ensure!(found == expected, "{found:?} after {factor}");
    }
    Ok(())
}

fn two_inputs_and_an_output(bench: &Bench<'_>) -> Result<(), Fault> {
    let kernel = bench.kernel("add")?;
    for count in [1, 7, 1_000] {
        let values: Vec<f32> = (0..count).map(|at| at as f32).collect();
        let (a, b) = (floats(bench, &values)?, floats(bench, &vec![0.5; count])?);
        let sums = floats(bench, &vec![-1.0; count])?;
        let args = vec![KernelArg::input(a), KernelArg::input(b), KernelArg::output(sums.clone())];
        run(bench, &kernel, args)?;
        let right = sums.to_vec::<f32>()?.iter().zip(&values).all(|(sum, a)| *sum == a + 0.5);
        ensure!(right, "{count} sums");
    }
    Ok(())
}

fn an_argument_in_the_middle_of_a_buffer(bench: &Bench<'_>) -> Result<(), Fault> {
    let (kernel, all) = (bench.kernel("add_one")?, floats(bench, &[0.0; 100])?);
    let middle = all.buffer().view(all.view().slice(0, 32..48)?)?;
    run(bench, &kernel, vec![KernelArg::inout(middle)])?;
    let expected: Vec<f32> = (0..100).map(|at| (32..48).contains(&at).into()).map(one).collect();
    ensure!(all.to_vec::<f32>()? == expected, "other elements changed");
    Ok(())
}

fn one(yes: u8) -> f32 {
    yes.into()
}

fn an_argument_without_elements(bench: &Bench<'_>) -> Result<(), Fault> {
    let kernel = bench.kernel("add_one")?;
    let empty = bench.device.buffer(0).tensor(Dtype::F32, &[0])?;
    run(bench, &kernel, vec![KernelArg::inout(empty)])
}

fn one_kernel_with_other_bindings(bench: &Bench<'_>) -> Result<(), Fault> {
    let kernel = bench.kernel("add_one")?;
    let views: Vec<_> =
        (0..10).map(|at| floats(bench, &vec![at as f32; 10 + at])).collect::<Result<_, _>>()?;
    for view in views.iter().chain(&views) {
        bench.lane().submit(
            Command::dispatch(&kernel, vec![KernelArg::inout(view.clone())], vec![]).into(),
        )?;
    }
    for (at, view) in views.iter().enumerate() {
        ensure!(view.to_vec::<f32>()? == vec![at as f32 + 2.0; 10 + at], "binding {at}");
    }
    Ok(())
}

fn one_buffer_as_both_inputs(bench: &Bench<'_>) -> Result<(), Fault> {
    let kernel = bench.kernel("add")?;
    let (a, sums) = (floats(bench, &[1.5; 8])?, floats(bench, &[0.0; 8])?);
    let args =
        vec![KernelArg::input(a.clone()), KernelArg::input(a), KernelArg::output(sums.clone())];
    run(bench, &kernel, args)?;
    ensure!(sums.to_vec::<f32>()? == [3.0; 8], "{:?}", sums.to_vec::<f32>()?);
    Ok(())
}

fn a_thousand_dispatches_on_one_buffer(bench: &Bench<'_>) -> Result<(), Fault> {
    let (kernel, view) = (bench.kernel("add_one")?, floats(bench, &[0.0; 64])?);
    for _ in 0..1_000 {
        let args = vec![KernelArg::inout(view.clone())];
        bench.lane().submit(Command::dispatch(&kernel, args, vec![]).into())?;
    }
    ensure!(view.to_vec::<f32>()? == [1_000.0; 64], "{:?}", view.to_vec::<f32>()?);
    Ok(())
}

fn dispatches_and_copies_in_one_batch(bench: &Bench<'_>) -> Result<(), Fault> {
    let kernel = bench.kernel("add_one")?;
    let (first, second) = (floats(bench, &[0.0; 16])?, floats(bench, &[0.0; 16])?);
    let mut batch = Batch::new();
    for _ in 0..5 {
        let bump = |view: &BufferView| {
            Command::dispatch(&kernel, vec![KernelArg::inout(view.clone())], vec![])
        };
        batch = batch
            .command(bump(&first))
            .command(Command::copy(first.clone(), second.clone()))
            .command(bump(&second))
            .command(Command::copy(second.clone(), first.clone()));
    }
    bench.wait(&bench.lane().submit(batch)?)?;
    ensure!(first.to_vec::<f32>()? == [10.0; 16], "{:?}", first.to_vec::<f32>()?);
    Ok(())
}

fn dispatches_on_several_lanes_meet_in_one(bench: &Bench<'_>) -> Result<(), Fault> {
    let [left, right, last] = bench.lanes()?;
    let (bump, add) = (bench.kernel("add_one")?, bench.kernel("add")?);
    let (a, b, sums) =
        (floats(bench, &[0.0; 32])?, floats(bench, &[10.0; 32])?, floats(bench, &[0.0; 32])?);
    for _ in 0..20 {
        for (lane, view) in [(left, &a), (right, &b)] {
            let args = vec![KernelArg::inout(view.clone())];
            lane.submit(Command::dispatch(&bump, args, vec![]).into())?;
        }
        let args = [
            KernelArg::input(a.clone()),
            KernelArg::input(b.clone()),
            KernelArg::output(sums.clone()),
        ];
        last.submit(Command::dispatch(&add, args.to_vec(), vec![]).into())?;
    }
    ensure!(sums.to_vec::<f32>()? == [50.0; 32], "{:?}", sums.to_vec::<f32>()?);
    Ok(())
}

fn disjoint_parts_of_one_buffer_on_several_lanes(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let [left, right] = bench.lanes()?;
    let (kernel, all) = (bench.kernel("add_one")?, floats(bench, &[0.0; 64])?);
    let part = |at| Ok::<_, Fault>(all.buffer().view(all.view().split(0, 2, at)?)?);
    let bump = |view| Batch::from(Command::dispatch(&kernel, vec![KernelArg::inout(view)], vec![]));
    let gate = syncline_device::Timeline::new("gate", 0);
    let blocked = left.submit(bump(part(0)?).wait(gate.point(1)))?;
    // Other bytes of the same buffer: it must not wait for the blocked one.
    bench.wait(&right.submit(bump(part(1)?))?)?;
    ensure!(!blocked.is_reached(), "it did not wait");
    gate.signal(1)?;
    ensure!(all.to_vec::<f32>()? == [1.0; 64], "{:?}", all.to_vec::<f32>()?);
    Ok(())
}

fn column_blocks_of_one_matrix_on_several_lanes(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let [left, right] = bench.lanes()?;
    let matrix = bench.buffer(&[0u8; 256])?.tensor(Dtype::U8, &[16, 16])?;
    let fill = |part, byte| {
        let view = matrix.view().split(1, 2, part)?;
        let pattern = syncline_device::Pattern::new(&[byte])?;
        Ok::<_, Fault>(Batch::from(Command::fill(matrix.buffer().view(view)?, pattern)))
    };
    let gate = syncline_device::Timeline::new("gate", 0);
    let blocked = left.submit(fill(0, 1)?.wait(gate.point(1)))?;
    bench.wait(&right.submit(fill(1, 2)?)?)?;
    ensure!(!blocked.is_reached(), "it did not wait");
    gate.signal(1)?;
    let expected = [[1; 8], [2; 8]].concat().repeat(16);
    ensure!(matrix.to_vec::<u8>()? == expected, "{:?}", matrix.to_vec::<u8>()?);
    Ok(())
}

fn a_kernel_without_an_implementation_is_refused(bench: &Bench<'_>) -> Result<(), Fault> {
    let nowhere = Kernel::builder("nowhere").build();
    refused(bench.lane().submit(Command::dispatch(&nowhere, vec![], vec![]).into()), |error| {
        matches!(error, DeviceError::NoImplementation { .. })
    })
}

fn need_closures(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need(bench.device.spec().backend == Backend::Cpu, "kernels that are closures")
}

fn a_kernel_without_arguments(bench: &Bench<'_>) -> Result<(), Fault> {
    need_closures(bench)?;
    let count = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = count.clone();
    let kernel = Kernel::cpu("count", move |_| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    let launch = || bench.lane().submit(Command::dispatch(&kernel, vec![], vec![]).into());
    let first = launch()?;
    for step in 1..1_000 {
        let point = launch()?;
        ensure!(point.value() == first.value() + step, "{point:?} after {first:?}");
    }
    bench.lane().synchronize(bench.in_time())?;
    let count = count.load(std::sync::atomic::Ordering::Relaxed);
    ensure!(count == 1_000, "ran {count} times");
    Ok(())
}

fn strided_arguments(bench: &Bench<'_>) -> Result<(), Fault> {
    let kernel = bench.kernel("add")?;
    let buffer = bench.buffer(&(0..24).map(|at| at as f32).collect::<Vec<_>>())?;
    let turned = buffer.view(View::contiguous(Dtype::F32, &[4, 6])?.transpose(0, 1)?)?;
    // Every second element, backwards.
    let others = bench.buffer(&(0..48).map(|at| at as f32).collect::<Vec<_>>())?;
    let backwards = others.view(View::strided(Dtype::F32, 47 * 4, &[6, 4], &[-32, -8])?)?;
    let out = bench.buffer(&[0f32; 24])?.tensor(Dtype::F32, &[6, 4])?;
    let args = vec![
        KernelArg::input(turned.clone()),
        KernelArg::input(backwards.clone()),
        KernelArg::output(out.clone()),
    ];
    run(bench, &kernel, args)?;
    let sums = turned.to_vec::<f32>()?.into_iter().zip(backwards.to_vec::<f32>()?);
    let expected: Vec<f32> = sums.map(|(a, b)| a + b).collect();
    ensure!(out.to_vec::<f32>()? == expected, "{:?}", out.to_vec::<f32>()?);
    Ok(())
}

fn overlapping_arguments_are_told_apart(bench: &Bench<'_>) -> Result<(), Fault> {
    need_closures(bench)?;
    let view = floats(bench, &[0.0; 8])?;
    let part = |range| Ok::<_, Fault>(view.buffer().view(view.view().slice(0, range)?)?);
    let (sender, receiver) = std::sync::mpsc::channel();
    let kernel = Kernel::cpu("overlap", move |args| {
        let apart = args.slice::<f32>(0).is_ok() && args.slice_mut::<f32>(2).is_ok();
        let _ = sender.send((apart, args.slice_mut::<f32>(1).is_ok()));
    });
    let args = vec![
        KernelArg::input(part(0..4)?),
        KernelArg::inout(part(3..6)?),
        KernelArg::inout(part(6..8)?),
    ];
    run(bench, &kernel, args)?;
    ensure!(receiver.try_recv() == Ok((true, false)), "an overlap was taken for writing");
    Ok(())
}

fn inputs_cannot_be_written(bench: &Bench<'_>) -> Result<(), Fault> {
    need_closures(bench)?;
    let view = floats(bench, &[0.0; 8])?;
    let (sender, receiver) = std::sync::mpsc::channel();
    let kernel = Kernel::cpu("write an input", move |args| {
        let _ = sender.send((args.slice_mut::<f32>(0).is_ok(), args.slice::<f64>(0).is_ok()));
    });
    run(bench, &kernel, vec![KernelArg::input(view)])?;
    ensure!(receiver.try_recv() == Ok((false, false)), "an input was taken for writing");
    Ok(())
}
