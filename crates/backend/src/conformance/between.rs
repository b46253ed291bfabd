//! The device beside another one, a CPU device that each case opens: waits, failures and copies
//! between the two.

use std::sync::Arc;

use syncline_tensor::{Dtype, View};

use super::bench::{Bench, Fault, Numbers, ensure, refused};
use super::cases;
use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{
    Batch, Buffer, Command, Device, DeviceError, Lane, LaneKind, Pattern, Timeline,
};

cases!(
    the_device_waits_for_a_later_batch_of_another,
    another_device_waits_for_a_later_batch_of_this_one,
    lanes_of_two_devices_ping_pong,
    a_failure_crosses_from_this_device,
    a_failure_crosses_to_this_device,
    flat_copies_from_and_to_the_host,
    strided_copies_from_and_to_the_host,
    overlapping_work_of_two_devices_on_host_memory_is_ordered,
);

/// A device other than the one that is tested, whatever that is.
fn other(bench: &Bench<'_>) -> Result<Arc<dyn Device>, Fault> {
    let index = bench.device.spec().index + 1;
    Ok(CpuDevice::open(CpuOptions::new(index).compute_lanes(1).memory_bytes(256 << 20))?)
}

fn lane(device: &Arc<dyn Device>) -> &Arc<dyn Lane> {
    device.lane(LaneKind::Compute)
}

fn fill(buffer: &Buffer, byte: u8) -> Result<Command, Fault> {
    Ok(Command::fill(buffer.all(), Pattern::new(&[byte])?))
}

fn the_device_waits_for_a_later_batch_of_another(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let other = other(bench)?;
    let ready = Timeline::new("ready", 0);
    let there = other.buffer(256);
    there.write(0, &[0u8; 256])?;
    let here = bench.buffer(&[9u8; 256])?;
    let waits = bench.lane().submit(Batch::new().wait(ready.point(1)))?;
    lane(&other).submit(Batch::from(fill(&there, 4)?).signal(ready.point(1)))?;
    let copy = Command::copy(there.all(), here.all());
    bench.wait(&bench.lane().submit(Batch::from(copy).wait(waits))?)?;
    ensure!(here.read::<u8>(0, 256)? == [4; 256], "copied before the fill");
    Ok(())
}

fn another_device_waits_for_a_later_batch_of_this_one(bench: &Bench<'_>) -> Result<(), Fault> {
    let other = other(bench)?;
    let ready = Timeline::new("ready", 0);
    let (here, there) = (bench.buffer(&[0u8; 256])?, other.buffer(256));
    let waits = lane(&other).submit(Batch::new().wait(ready.point(1)))?;
    let batch = Batch::new()
        .command(fill(&here, 6)?)
        .command(Command::copy(here.all(), there.all()))
        .signal(ready.point(1));
    bench.lane().submit(batch)?;
    bench.wait(&waits)?;
    ensure!(there.read::<u8>(0, 256)? == [6; 256], "signalled before the copy");
    Ok(())
}

fn lanes_of_two_devices_ping_pong(bench: &Bench<'_>) -> Result<(), Fault> {
    let other = other(bench)?;
    let mut last = bench.lane().submit(Batch::new())?;
    for _ in 0..bench.count(300, 50_000) {
        let there = lane(&other).submit(Batch::new().wait(last))?;
        last = bench.lane().submit(Batch::new().wait(there))?;
    }
    bench.wait(&last)
}

fn cause() -> DeviceError {
    DeviceError::Cancelled { reason: "on purpose".into() }
}

fn crosses(bench: &Bench<'_>, from: &dyn Lane, to: &dyn Lane) -> Result<(), Fault> {
    let broken = Timeline::new("broken", 0);
    let failed = from.submit(Batch::new().wait(broken.point(1)).task("the first"))?;
    let heir = to.submit(Batch::new().wait(failed))?;
    broken.fail(cause())?;
    refused(heir.wait(bench.in_time()), |error| *error.root_cause() == cause())
}

fn a_failure_crosses_from_this_device(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    crosses(bench, bench.lane(), &**lane(&other(bench)?))
}

fn a_failure_crosses_to_this_device(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    crosses(bench, &**lane(&other(bench)?), bench.lane())
}

/// Bytes that differ by place.
fn pattern(count: u64, seed: u32) -> Vec<u8> {
    (0..count as u32)
        .map(|at| (at.wrapping_mul(0x9e37_79b9).wrapping_add(seed) >> 24) as u8)
        .collect()
}

/// Copies `source` of the host's memory to the device, and from there to `target` of the host's,
/// and compares.
fn round_trip(
    bench: &Bench<'_>,
    other: &Arc<dyn Device>,
    bytes: u64,
    [source, inner, target]: [&View; 3],
) -> Result<(), Fault> {
    let (before, after) = (other.buffer(bytes), other.buffer(bytes));
    let (from, mut expected) = (pattern(bytes, 1), pattern(bytes, 2));
    before.write(0, &from)?;
    after.write(0, &expected)?;
    let here = bench.buffer(&pattern(bytes, 3))?;
    let batch = Batch::new()
        .command(Command::copy(before.view(*source)?, here.view(*inner)?))
        .command(Command::copy(here.view(*inner)?, after.view(*target)?));
    bench.wait(&bench.lane().submit(batch)?)?;
    let size = source.dtype().bytes() as usize;
    for (read, write) in places(source).zip(places(target)) {
        expected[write..write + size].copy_from_slice(&from[read..read + size]);
    }
    ensure!(
        after.read::<u8>(0, bytes as usize)? == expected,
        "{source:?} by {inner:?} to {target:?}"
    );
    Ok(())
}

/// The first byte of each element of `view`, in its order.
fn places(view: &View) -> impl Iterator<Item = usize> + '_ {
    (0..view.elements()).map(|number| {
        let (mut rest, mut place) = (number, view.offset() as i64);
        for (&size, &stride) in view.shape().iter().zip(view.strides()).rev() {
            place += (rest % size) as i64 * stride;
            rest /= size;
        }
        place as usize
    })
}

fn flat_copies_from_and_to_the_host(bench: &Bench<'_>) -> Result<(), Fault> {
    let other = other(bench)?;
    for bytes in [0, 1, 3, 4, 4_095, 4_096, 4_097, 1 << 20] {
        for [from, inner, to] in [[0, 0, 0], [1, 2, 3], [4_096, 16, 1]] {
            let view = |at| View::bytes_at(at, bytes);
            let views = [view(from)?, view(inner)?, view(to)?];
            round_trip(bench, &other, bytes + 4_100, views.each_ref())?;
        }
    }
    Ok(())
}

fn strided_copies_from_and_to_the_host(bench: &Bench<'_>) -> Result<(), Fault> {
    let other = other(bench)?;
    let mut numbers = Numbers::new(23);
    for dtype in [Dtype::U8, Dtype::F16, Dtype::F32, Dtype::F64] {
        let matrix = View::contiguous(dtype, &[24, 40])?;
        let turned = View::contiguous(dtype, &[40, 24])?.transpose(0, 1)?;
        round_trip(bench, &other, 24 * 40 * 8, [&matrix, &turned, &matrix])?;
        for _ in 0..bench.count(20, 1_000) {
            let mut block = || {
                let (row, column) = (numbers.below(16), numbers.below(32));
                matrix.slice(0, row..row + 8)?.slice(1, column..column + 8)
            };
            let [source, inner, target] = [block()?, block()?, block()?];
            round_trip(bench, &other, 24 * 40 * 8, [&source, &inner, &target])?;
        }
    }
    Ok(())
}

fn overlapping_work_of_two_devices_on_host_memory_is_ordered(
    bench: &Bench<'_>,
) -> Result<(), Fault> {
    let other = other(bench)?;
    let shared = other.buffer(4_096);
    shared.write(0, &[0u8; 4_096])?;
    let (here, seen) = (bench.buffer(&[0u8; 4_096])?, bench.buffer(&[0u8; 4_096])?);
    for byte in 1..=bench.count(60, 5_000) {
        let byte = byte as u8;
        bench.lane().submit(fill(&here, byte)?.into())?;
        bench.lane().submit(Command::copy(here.all(), shared.all()).into())?;
        lane(&other).submit(fill(&shared, byte.wrapping_add(100))?.into())?;
        bench.lane().submit(Command::copy(shared.all(), seen.all()).into())?;
        let found = seen.read::<u8>(0, 4_096)?;
        ensure!(found == [byte.wrapping_add(100); 4_096], "round {byte}: {}", found[0]);
    }
    Ok(())
}
