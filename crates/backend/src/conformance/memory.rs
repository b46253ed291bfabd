//! Memory: allocation, sizes, reuse, and the host's access while work is pending.

use std::thread;

use super::bench::{Bench, Fault, ensure, joined, refused};
use super::cases;
use syncline_device::{ALIGNMENT, Batch, Command, DeviceError, Pattern, Timeline};

cases!(
    sizes_from_nothing_to_a_mebibyte,
    huge_sizes,
    odd_offsets_keep_their_neighbours,
    memory_is_taken_at_the_first_use,
    memory_is_aligned,
    more_than_there_is_is_refused,
    the_largest_size_is_refused,
    the_device_goes_on_after_a_refusal,
    what_is_freed_can_be_had_again,
    what_is_freed_is_reused,
    thousands_of_small_buffers,
    a_handle_dropped_while_in_use,
    access_outside_is_refused,
    a_host_write_waits_for_work,
    a_host_read_waits_for_writers_only,
    host_access_has_a_deadline,
    work_on_a_mapped_buffer_is_refused,
    a_map_for_reading_lets_work_read,
    reading_back_while_other_lanes_run,
);

/// Bytes that differ by place, so that anything moved shows.
fn pattern(count: usize, seed: u8) -> Vec<u8> {
    (0..count).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed).collect()
}

fn round_trip(bench: &Bench<'_>, bytes: usize) -> Result<(), Fault> {
    let (written, buffer) = (pattern(bytes, 7), bench.device.buffer(bytes as u64));
    buffer.write(0, &written)?;
    ensure!(buffer.read::<u8>(0, bytes)? == written, "{bytes} bytes changed");
    Ok(())
}

fn sizes_from_nothing_to_a_mebibyte(bench: &Bench<'_>) -> Result<(), Fault> {
    let sizes = [0, 1, 3, 4, 63, 64, 65, 4_095, 4_096, 4_097, 1 << 20];
    sizes.into_iter().try_for_each(|bytes| round_trip(bench, bytes))
}

fn huge_sizes(bench: &Bench<'_>) -> Result<(), Fault> {
    if !bench.thorough {
        return Err(Fault::Skip("in a thorough run only".into()));
    }
    for bytes in [(128 << 20) + 1, 1 << 30] {
        if bench.device.info().memory_bytes >= 2 * bytes as u64 {
            round_trip(bench, bytes)?;
        }
    }
    Ok(())
}

fn odd_offsets_keep_their_neighbours(bench: &Bench<'_>) -> Result<(), Fault> {
    let mut expected = pattern(10_000, 1);
    let buffer = bench.buffer(&expected)?;
    for (at, count) in [(0, 1), (1, 2), (3, 4), (16, 17), (4_095, 3), (9_999, 1), (5_000, 0)] {
        let piece = pattern(count, 99);
        buffer.write(at as u64, &piece)?;
        expected[at..at + count].copy_from_slice(&piece);
        ensure!(buffer.read::<u8>(0, 10_000)? == expected, "{count} bytes written at {at}");
    }
    Ok(())
}

fn memory_is_taken_at_the_first_use(bench: &Bench<'_>) -> Result<(), Fault> {
    let before = bench.device.memory_use();
    let buffer = bench.device.buffer(1 << 20);
    ensure!(!buffer.is_allocated(), "allocated before its first use");
    ensure!(bench.device.memory_use() == before, "memory was taken");
    bench.run(Command::fill(buffer.all(), Pattern::new(&[1])?))?;
    ensure!(buffer.is_allocated(), "used and not allocated");
    let in_use = bench.device.memory_use().in_use_bytes - before.in_use_bytes;
    ensure!(in_use >= 1 << 20, "{in_use} bytes are counted");
    Ok(())
}

fn memory_is_aligned(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_maps()?;
    let mut kept = Vec::new();
    for bytes in [1, 3, 64, 100, 4_096, 200_000, 1 << 20] {
        let buffer = bench.device.buffer(bytes);
        if let Some(start) = buffer.allocate()?.host_pointer() {
            let place = start.as_ptr() as u64;
            ensure!(place.is_multiple_of(ALIGNMENT), "{bytes} bytes lie at {place:#x}");
        }
        kept.push(buffer);
    }
    Ok(())
}

fn is_out_of_memory(error: &DeviceError) -> bool {
    matches!(error, DeviceError::OutOfMemory { .. })
}

fn more_than_there_is_is_refused(bench: &Bench<'_>) -> Result<(), Fault> {
    let bytes = bench.device.info().memory_bytes.saturating_add(1);
    let buffer = bench.device.buffer(bytes);
    refused(buffer.allocate().map(drop), is_out_of_memory)?;
    let fill = Command::fill(buffer.all(), Pattern::new(&[1])?);
    refused(bench.lane().submit(fill.into()), is_out_of_memory)
}

fn the_largest_size_is_refused(bench: &Bench<'_>) -> Result<(), Fault> {
    for bytes in [usize::MAX as u64, u64::MAX, i64::MAX as u64, 1 << 62] {
        refused(bench.device.buffer(bytes).allocate().map(drop), is_out_of_memory)?;
    }
    Ok(())
}

fn the_device_goes_on_after_a_refusal(bench: &Bench<'_>) -> Result<(), Fault> {
    let before = bench.device.memory_use().in_use_bytes;
    refused(bench.device.buffer(1 << 62).allocate().map(drop), is_out_of_memory)?;
    let after = bench.device.memory_use().in_use_bytes;
    ensure!(before == after, "a refusal changed the bytes in use from {before} to {after}");
    round_trip(bench, 4_096)
}

fn what_is_freed_can_be_had_again(bench: &Bench<'_>) -> Result<(), Fault> {
    let before = bench.device.memory_use().in_use_bytes;
    for bytes in [1 << 16, 1 << 18, 3 << 16] {
        for _ in 0..20 {
            bench.device.buffer(bytes).allocate()?;
        }
        let after = bench.device.memory_use().in_use_bytes;
        ensure!(before == after, "{} bytes of dropped buffers are in use", after - before);
    }
    Ok(())
}

fn what_is_freed_is_reused(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.device.buffer(123_456).allocate()?;
    let before = bench.device.memory_use();
    for _ in 0..50 {
        bench.device.buffer(123_456).allocate()?;
    }
    let after = bench.device.memory_use();
    let reused = after.reused - before.reused;
    ensure!(reused == 50, "{reused} of 50 allocations reused memory");
    ensure!(after.allocations - before.allocations == 50, "allocations are not counted");
    Ok(())
}

fn thousands_of_small_buffers(bench: &Bench<'_>) -> Result<(), Fault> {
    let mut buffers = Vec::new();
    for number in 0..bench.count(2_000, 20_000) as u32 {
        buffers.push(bench.buffer(&[number, !number])?);
    }
    for (number, buffer) in (0..).zip(&buffers) {
        ensure!(buffer.read::<u32>(0, 2)? == [number, !number], "buffer {number} changed");
    }
    Ok(())
}

fn a_handle_dropped_while_in_use(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let gate = Timeline::new("gate", 0);
    let source = bench.buffer(&pattern(4_096, 3))?;
    let target = bench.buffer(&[0u8; 4_096])?;
    let copy = Command::copy(source.all(), target.all());
    let point = bench.lane().submit(Batch::from(copy).wait(gate.point(1)))?;
    drop(source);
    // Would get the same memory, if it had been given back too early.
    let others: Vec<_> =
        (0..8).map(|_| bench.buffer(&[0xeeu8; 4_096])).collect::<Result<_, _>>()?;
    gate.signal(1)?;
    bench.wait(&point)?;
    ensure!(target.read::<u8>(0, 4_096)? == pattern(4_096, 3), "the memory was given away");
    drop(others);
    Ok(())
}

fn access_outside_is_refused(bench: &Bench<'_>) -> Result<(), Fault> {
    let buffer = bench.buffer(&[1u8; 100])?;
    let outside = |error: &DeviceError| matches!(error, DeviceError::OutOfBounds { .. });
    refused(buffer.read::<u8>(100, 1), outside)?;
    refused(buffer.read::<u64>(96, 1), outside)?;
    refused(buffer.read::<u8>(u64::MAX, 2), outside)?;
    refused(buffer.write(99, &[0u8; 2]), outside)?;
    refused(buffer.tensor(syncline_tensor::Dtype::F32, &[26]), outside)?;
    ensure!(buffer.read::<u8>(0, 100)? == [1; 100], "something was written");
    Ok(())
}

fn a_host_write_waits_for_work(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let gate = Timeline::new("gate", 0);
    let (source, target) = (bench.buffer(&[1u8; 64])?, bench.buffer(&[0u8; 64])?);
    let copy = Command::copy(source.all(), target.all());
    bench.lane().submit(Batch::from(copy).wait(gate.point(1)))?;
    thread::scope(|scope| {
        let writer = scope.spawn(|| source.write_from(0, &[2u8; 64], bench.in_time()));
        thread::sleep(std::time::Duration::from_millis(5));
        ensure!(!writer.is_finished(), "written while work that reads is pending");
        gate.signal(1)?;
        joined(writer)
    })?;
    ensure!(target.read::<u8>(0, 64)? == [1; 64], "the work saw the later write");
    Ok(())
}

fn a_host_read_waits_for_writers_only(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let gate = Timeline::new("gate", 0);
    let (source, target) = (bench.buffer(&[1u8; 64])?, bench.buffer(&[0u8; 64])?);
    let copy = Command::copy(source.all(), target.all());
    bench.lane().submit(Batch::from(copy).wait(gate.point(1)))?;
    // What the work only reads can be read meanwhile.
    source.read_into(0, &mut [0u8; 64], bench.in_time())?;
    let busy = |error: &DeviceError| matches!(error, DeviceError::BufferBusy { .. });
    refused(target.read_into(0, &mut [0u8; 64], bench.soon()), busy)?;
    gate.signal(1)?;
    ensure!(target.read::<u8>(0, 64)? == [1; 64], "read before the copy");
    Ok(())
}

fn host_access_has_a_deadline(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let gate = Timeline::new("gate", 0);
    let buffer = bench.buffer(&[0u8; 64])?;
    let fill = Command::fill(buffer.all(), Pattern::new(&[1])?);
    let point = bench.lane().submit(Batch::from(fill).wait(gate.point(1)))?;
    let busy = |error: &DeviceError| matches!(error, DeviceError::BufferBusy { .. });
    refused(buffer.write_from(0, &[0u8], bench.soon()), busy)?;
    refused(buffer.map(bench.soon()).map(drop), busy)?;
    refused(buffer.map_mut(bench.soon()).map(drop), busy)?;
    gate.signal(1)?;
    bench.wait(&point)
}

fn work_on_a_mapped_buffer_is_refused(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_maps()?;
    let buffer = bench.buffer(&[0u8; 64])?;
    let fill = || Pattern::new(&[9]).map(|pattern| Command::fill(buffer.all(), pattern));
    let mapped = |error: &DeviceError| matches!(error, DeviceError::Mapped { .. });
    let mut map = buffer.map_mut(bench.in_time())?;
    refused(bench.lane().submit(fill()?.into()), mapped)?;
    map.fill(3);
    drop(map);
    let map = buffer.map(bench.in_time())?;
    ensure!(*map == [3; 64], "what was written through the map is gone");
    refused(bench.lane().submit(fill()?.into()), mapped)?;
    drop(map);
    bench.run(fill()?)?;
    ensure!(buffer.read::<u8>(0, 64)? == [9; 64], "no work after the map was dropped");
    Ok(())
}

fn a_map_for_reading_lets_work_read(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_maps()?;
    let (source, target) = (bench.buffer(&[4u8; 64])?, bench.buffer(&[0u8; 64])?);
    let map = source.map(bench.in_time())?;
    bench.run(Command::copy(source.all(), target.all()))?;
    ensure!(target.read::<u8>(0, 64)? == *map, "the copy differs");
    Ok(())
}

fn reading_back_while_other_lanes_run(bench: &Bench<'_>) -> Result<(), Fault> {
    let [busy, other] = bench.lanes()?;
    let (noise, quiet) = (bench.buffer(&[0u8; 1 << 16])?, bench.buffer(&[0u8; 4_096])?);
    for byte in 0..100 {
        busy.submit(Command::fill(noise.all(), Pattern::new(&[byte])?).into())?;
        other.submit(Command::fill(quiet.all(), Pattern::new(&[byte])?).into())?;
        ensure!(quiet.read::<u8>(0, 4_096)? == [byte; 4_096], "round {byte} was not there yet");
    }
    ensure!(noise.read::<u8>(0, 1 << 16)? == [99; 1 << 16], "the busy lane's last fill is missing");
    Ok(())
}
