//! Copies and fills, against loops over single elements.

use syncline_copy::CopyError;
use syncline_tensor::{Dtype, View};

use super::bench::{Bench, Fault, Numbers, ensure, refused};
use super::cases;
use syncline_device::{Batch, Buffer, Command, DeviceError, Pattern};

cases!(
    flat_copies_by_size,
    flat_copies_by_alignment,
    large_flat_copies,
    copies_and_fills_of_more_than_128_mebibytes,
    large_copies_of_rows,
    copies_of_nothing,
    column_blocks,
    transposed_copies,
    reversed_copies,
    broadcast_sources,
    random_strided_copies,
    views_of_views,
    overlapping_runs_move_as_if_read_first,
    overlapping_strided_views_move_as_if_read_first,
    interleaved_views_of_one_buffer,
    a_copy_onto_itself,
    copies_of_other_shapes_are_refused,
    copies_of_other_element_sizes_are_refused,
    targets_that_overlap_themselves_are_refused,
    copies_through_a_chain_of_buffers,
    fills_of_every_pattern_size,
    partial_fills_leave_the_rest,
    strided_fills,
    patterns_of_other_sizes_are_refused,
    writes_through_broadcast_views_are_refused,
);

/// Where the elements of `view` lie, in its order.
fn places(view: &View) -> Vec<usize> {
    let place_of = |number: u64| {
        let (mut rest, mut place) = (number, view.offset() as i64);
        for (&size, &stride) in view.shape().iter().zip(view.strides()).rev() {
            place += (rest % size) as i64 * stride;
            rest /= size;
        }
        place as usize
    };
    (0..view.elements()).map(place_of).collect()
}

/// Bytes that differ by place.
fn pattern(count: usize, seed: u32) -> Vec<u8> {
    (0..count as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8)
        .collect()
}

/// Copies between two fresh buffers of `bytes` bytes and compares with a loop over elements.
fn check_copy(bench: &Bench<'_>, bytes: usize, source: &View, target: &View) -> Result<(), Fault> {
    let (from, mut expected) = (pattern(bytes, 1), pattern(bytes, 2));
    let (source_buffer, target_buffer) = (bench.buffer(&from)?, bench.buffer(&expected)?);
    let size = source.dtype().bytes() as usize;
    for (read, write) in places(source).into_iter().zip(places(target)) {
        expected[write..write + size].copy_from_slice(&from[read..read + size]);
    }
    bench.run(Command::copy(source_buffer.view(*source)?, target_buffer.view(*target)?))?;
    ensure!(target_buffer.read::<u8>(0, bytes)? == expected, "{source:?} to {target:?}");
    ensure!(source_buffer.read::<u8>(0, bytes)? == from, "the source of {source:?} changed");
    Ok(())
}

/// As `check_copy`, within one buffer: as if all were read before anything is written.
fn check_within(
    bench: &Bench<'_>,
    bytes: usize,
    source: &View,
    target: &View,
) -> Result<(), Fault> {
    let before = pattern(bytes, 3);
    let (buffer, mut expected) = (bench.buffer(&before)?, before.clone());
    let size = source.dtype().bytes() as usize;
    for (read, write) in places(source).into_iter().zip(places(target)) {
        expected[write..write + size].copy_from_slice(&before[read..read + size]);
    }
    bench.run(Command::copy(buffer.view(*source)?, buffer.view(*target)?))?;
    ensure!(buffer.read::<u8>(0, bytes)? == expected, "{source:?} to {target:?}");
    Ok(())
}

fn flat_copies_by_size(bench: &Bench<'_>) -> Result<(), Fault> {
    for bytes in [1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 64, 4_095, 4_096, 4_097, 100_003] {
        let view = View::bytes_at(0, bytes)?;
        check_copy(bench, bytes as usize, &view, &view)?;
    }
    Ok(())
}

fn flat_copies_by_alignment(bench: &Bench<'_>) -> Result<(), Fault> {
    let offsets = [0, 1, 2, 3, 4, 16, 63, 4_096];
    for from in offsets {
        for to in offsets {
            for bytes in [1, 5, 64, 4_097] {
                let (source, target) = (View::bytes_at(from, bytes)?, View::bytes_at(to, bytes)?);
                check_copy(bench, 8_200, &source, &target)?;
            }
        }
    }
    Ok(())
}

fn large_flat_copies(bench: &Bench<'_>) -> Result<(), Fault> {
    let bytes = bench.count(9 << 20, 200 << 20);
    for (from, to) in [(0, 0), (1, 33)] {
        let count = bytes - 64;
        let (source, target) = (View::bytes_at(from, count)?, View::bytes_at(to, count)?);
        check_large(bench, bytes, &source, &target)?;
    }
    Ok(())
}

/// More than many devices bind to a kernel at once, and not a multiple of anything.
fn copies_and_fills_of_more_than_128_mebibytes(bench: &Bench<'_>) -> Result<(), Fault> {
    let bytes = (128u64 << 20) + 1;
    let available = bench.device.info().memory_bytes;
    bench.need(available >= 3 * bytes, "memory for two such buffers")?;
    let (source, target) = (bench.device.buffer(bytes), bench.device.buffer(bytes));
    bench.run(Command::fill(source.all(), Pattern::new(&[7])?))?;
    source.write(bytes - 3, &[1u8, 2, 3])?;
    bench.run(Command::fill(target.all(), Pattern::new(&[9])?))?;
    bench.run(Command::copy(
        source.view(View::bytes_at(1, bytes - 1)?)?,
        target.view(View::bytes_at(0, bytes - 1)?)?,
    ))?;
    let middle = bytes / 2;
    for (at, expected) in [(0, [7; 4]), (middle, [7; 4]), (bytes - 5, [7, 1, 2, 3])] {
        let found = target.read::<u8>(at, 4)?;
        ensure!(found == expected, "{found:?} at {at}");
    }
    ensure!(target.read::<u8>(bytes - 1, 1)? == [9], "the last byte was not to be copied");
    // By strides over all of it.
    let rows = View::strided(Dtype::U8, 0, &[8, 1_000], &[(bytes / 8) as i64, 1])?;
    bench.run(Command::fill(target.view(rows)?, Pattern::new(&[5])?))?;
    for row in 0..8 {
        let at = row * (bytes / 8);
        ensure!(target.read::<u8>(at, 1_000)? == [5; 1_000], "row {row} was not filled");
        ensure!(target.read::<u8>(at + 1_000, 1)? == [7], "filled beyond row {row}");
    }
    Ok(())
}

fn large_copies_of_rows(bench: &Bench<'_>) -> Result<(), Fault> {
    let rows = bench.count(1 << 10, 16 << 10);
    let matrix = View::contiguous(Dtype::U8, &[rows, 16 << 10])?;
    let (left, right) = (matrix.slice(1, 3..9_003)?, matrix.slice(1, 5_001..14_001)?);
    check_large(bench, matrix.bytes(), &left, &right)
}

/// As `check_copy`, compared run by run: a list of places would take too long.
fn check_large(bench: &Bench<'_>, bytes: u64, source: &View, target: &View) -> Result<(), Fault> {
    let (from, mut expected) = (pattern(bytes as usize, 1), vec![0u8; bytes as usize]);
    let (source_buffer, target_buffer) = (bench.buffer(&from)?, bench.buffer(&expected)?);
    let (rows, run) = match source.shape() {
        [run] => (1, *run as usize),
        shape => (shape[0], shape[1] as usize),
    };
    for row in 0..rows {
        let at = |view: &View| (view.offset() + row * view.strides()[0] as u64) as usize;
        let (read, write) = (at(source), at(target));
        expected[write..write + run].copy_from_slice(&from[read..read + run]);
    }
    bench.run(Command::copy(source_buffer.view(*source)?, target_buffer.view(*target)?))?;
    ensure!(target_buffer.read::<u8>(0, bytes as usize)? == expected, "{source:?} to {target:?}");
    Ok(())
}

fn copies_of_nothing(bench: &Bench<'_>) -> Result<(), Fault> {
    for shape in [&[0][..], &[4, 0], &[0, 4, 2]] {
        let view = View::contiguous(Dtype::F32, shape)?;
        check_copy(bench, 64, &view, &view)?;
    }
    let scalar = View::contiguous(Dtype::F32, &[])?;
    check_copy(bench, 64, &scalar, &View::strided(Dtype::F32, 8, &[], &[])?)
}

fn column_blocks(bench: &Bench<'_>) -> Result<(), Fault> {
    for dtype in [Dtype::U8, Dtype::F16, Dtype::F32, Dtype::F64] {
        let matrix = View::contiguous(dtype, &[16, 16])?;
        for (from, to) in [(0..4, 8..12), (0..1, 15..16), (2..16, 0..14), (0..16, 0..16)] {
            check_copy(bench, 2_048, &matrix.slice(1, from)?, &matrix.slice(1, to)?)?;
        }
    }
    Ok(())
}

fn transposed_copies(bench: &Bench<'_>) -> Result<(), Fault> {
    for dtype in [Dtype::U8, Dtype::F16, Dtype::F32, Dtype::F64] {
        for (rows, columns) in [(1, 1), (3, 5), (16, 16), (33, 7), (40, 64)] {
            let source = View::contiguous(dtype, &[rows, columns])?;
            let target = View::contiguous(dtype, &[columns, rows])?.transpose(0, 1)?;
            check_copy(bench, (rows * columns * 8) as usize, &source, &target)?;
        }
    }
    let cube = View::contiguous(Dtype::F32, &[4, 5, 6])?;
    for order in [[2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let turned = cube.permute(&order)?;
        let flat = View::contiguous(Dtype::F32, turned.shape())?;
        check_copy(bench, 480, &turned, &flat)?;
        check_copy(bench, 480, &flat, &turned)?;
    }
    Ok(())
}

fn reversed_copies(bench: &Bench<'_>) -> Result<(), Fault> {
    let forwards = View::contiguous(Dtype::U16, &[20])?;
    let backwards = View::strided(Dtype::U16, 38, &[20], &[-2])?;
    check_copy(bench, 40, &forwards, &backwards)?;
    check_copy(bench, 40, &backwards, &forwards)?;
    check_copy(bench, 40, &backwards, &backwards)?;
    let mirrored = View::strided(Dtype::F32, 28, &[4, 8], &[32, -4])?;
    check_copy(bench, 128, &View::contiguous(Dtype::F32, &[4, 8])?, &mirrored)
}

fn broadcast_sources(bench: &Bench<'_>) -> Result<(), Fault> {
    let row = View::strided(Dtype::F32, 8, &[5, 6], &[0, 4])?;
    let one = View::strided(Dtype::F32, 4, &[5, 6], &[0, 0])?;
    let target = View::contiguous(Dtype::F32, &[5, 6])?;
    check_copy(bench, 200, &row, &target)?;
    check_copy(bench, 200, &one, &target)
}

/// A view of `shape` in any order of dimensions, with gaps and reversals; no two elements share
/// bytes.
fn random_view(numbers: &mut Numbers, dtype: Dtype, shape: &[u64]) -> Result<View, Fault> {
    let mut order: Vec<usize> = (0..shape.len()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, numbers.below(last as u64 + 1) as usize);
    }
    let mut strides = vec![0i64; shape.len()];
    let (mut extent, mut offset) = (dtype.bytes(), dtype.bytes() * numbers.below(4));
    for dim in order {
        let stride = extent + dtype.bytes() * numbers.below(3);
        strides[dim] = stride as i64;
        extent = stride * shape[dim].max(1);
        if numbers.below(4) == 0 {
            strides[dim] = -strides[dim];
            offset += stride * shape[dim].saturating_sub(1);
        }
    }
    Ok(View::strided(dtype, offset, shape, &strides)?)
}

fn random_strided_copies(bench: &Bench<'_>) -> Result<(), Fault> {
    let mut numbers = Numbers::new(11);
    for _ in 0..bench.count(200, 5_000) {
        let dtype = [Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::I64][numbers.below(4) as usize];
        let shape: Vec<u64> = (0..numbers.below(5)).map(|_| numbers.below(6)).collect();
        let source = random_view(&mut numbers, dtype, &shape)?;
        let target = random_view(&mut numbers, dtype, &shape)?;
        let end = |view: &View| view.span().map_or(0, |(_, end)| end);
        check_copy(bench, end(&source).max(end(&target)) as usize + 3, &source, &target)?;
    }
    Ok(())
}

fn views_of_views(bench: &Bench<'_>) -> Result<(), Fault> {
    let matrix = View::contiguous(Dtype::F32, &[32, 32])?;
    let inner = matrix.slice(0, 4..28)?.slice(1, 8..24)?.slice(0, 2..10)?.transpose(0, 1)?;
    let part = inner.slice(0, 4..12)?;
    check_copy(bench, 4_096, &part, &matrix.slice(0, 0..8)?.slice(1, 0..8)?)
}

fn overlapping_runs_move_as_if_read_first(bench: &Bench<'_>) -> Result<(), Fault> {
    for (from, to, bytes) in [(0, 1, 100), (1, 0, 100), (0, 64, 4_000), (64, 0, 4_000), (7, 3, 8)] {
        check_within(bench, 4_096, &View::bytes_at(from, bytes)?, &View::bytes_at(to, bytes)?)?;
    }
    Ok(())
}

fn overlapping_strided_views_move_as_if_read_first(bench: &Bench<'_>) -> Result<(), Fault> {
    let matrix = View::contiguous(Dtype::F32, &[12, 12])?;
    check_within(bench, 576, &matrix, &matrix.transpose(0, 1)?)?;
    let block = |at: u64| matrix.slice(0, at..at + 8)?.slice(1, at..at + 8);
    check_within(bench, 576, &block(0)?, &block(3)?)?;
    check_within(bench, 576, &block(3)?, &block(0)?)?;
    let backwards = View::strided(Dtype::F32, 572, &[12, 12], &[-48, -4])?;
    check_within(bench, 576, &matrix, &backwards)
}

fn interleaved_views_of_one_buffer(bench: &Bench<'_>) -> Result<(), Fault> {
    let even = View::strided(Dtype::F32, 0, &[50], &[8])?;
    let odd = View::strided(Dtype::F32, 4, &[50], &[8])?;
    check_within(bench, 400, &even, &odd)?;
    let matrix = View::contiguous(Dtype::F32, &[16, 16])?;
    check_within(bench, 1_024, &matrix.slice(1, 0..4)?, &matrix.slice(1, 8..12)?)
}

fn a_copy_onto_itself(bench: &Bench<'_>) -> Result<(), Fault> {
    let matrix = View::contiguous(Dtype::F32, &[8, 8])?;
    check_within(bench, 256, &matrix, &matrix)?;
    let column = matrix.slice(1, 2..3)?;
    check_within(bench, 256, &column, &column)
}

fn pair(bench: &Bench<'_>) -> Result<(Buffer, Buffer), Fault> {
    Ok((bench.buffer(&[1u8; 64])?, bench.buffer(&[2u8; 64])?))
}

fn copies_of_other_shapes_are_refused(bench: &Bench<'_>) -> Result<(), Fault> {
    let (source, target) = pair(bench)?;
    let copy =
        Command::copy(source.tensor(Dtype::F32, &[2, 3])?, target.tensor(Dtype::F32, &[3, 2])?);
    refused(bench.lane().submit(copy.into()), |error| {
        matches!(error, DeviceError::Copy(CopyError::ShapeMismatch { .. }))
    })
}

fn copies_of_other_element_sizes_are_refused(bench: &Bench<'_>) -> Result<(), Fault> {
    let (source, target) = pair(bench)?;
    let copy = |dtype| {
        Ok::<_, Fault>(Command::copy(source.tensor(Dtype::F32, &[4])?, target.tensor(dtype, &[4])?))
    };
    refused(bench.lane().submit(copy(Dtype::F16)?.into()), |error| {
        matches!(error, DeviceError::Copy(CopyError::ElementSize { .. }))
    })?;
    // The same size under another name moves bits as they are.
    bench.run(copy(Dtype::U32)?)?;
    ensure!(
        target.read::<u8>(0, 20)?[..] == [[1u8; 16].as_slice(), &[2; 4]].concat(),
        "other bytes"
    );
    Ok(())
}

/// Elements of 4 bytes, one every 2 bytes.
fn targets_that_overlap_themselves_are_refused(bench: &Bench<'_>) -> Result<(), Fault> {
    let (source, target) = pair(bench)?;
    let overlapping = View::strided(Dtype::F32, 0, &[4], &[2])?;
    let overlapping = target.view(overlapping)?;
    let whole = source.tensor(Dtype::F32, &[4])?;
    let is_right =
        |error: &DeviceError| matches!(error, DeviceError::Copy(CopyError::TargetOverlaps { .. }));
    let copy = Command::copy(whole, overlapping.clone());
    refused(bench.lane().submit(copy.into()), is_right)?;
    let fill = Command::fill(overlapping, Pattern::new(&[1, 2, 3, 4])?);
    refused(bench.lane().submit(fill.into()), is_right)?;
    ensure!(target.read::<u8>(0, 64)? == [2; 64], "written to");
    Ok(())
}

fn copies_through_a_chain_of_buffers(bench: &Bench<'_>) -> Result<(), Fault> {
    let start = pattern(3_000, 9);
    let mut buffers = vec![bench.buffer(&start)?];
    for _ in 0..20 {
        buffers.push(bench.buffer(&[0u8; 3_000])?);
    }
    let mut batch = Batch::new();
    for pair in buffers.windows(2) {
        batch = batch.command(Command::copy(pair[0].all(), pair[1].all()));
    }
    bench.wait(&bench.lane().submit(batch)?)?;
    ensure!(buffers[20].read::<u8>(0, 3_000)? == start, "changed on the way");
    Ok(())
}

fn fills_of_every_pattern_size(bench: &Bench<'_>) -> Result<(), Fault> {
    let bytes = [1u8, 2, 3, 4, 5, 6, 7, 8];
    for (dtype, size) in [(Dtype::U8, 1), (Dtype::U16, 2), (Dtype::F32, 4), (Dtype::I64, 8)] {
        for count in [0, 1, 3, 511, 512, 5_000] {
            let buffer = bench.buffer(&vec![0xaau8; count * size + 8])?;
            let target = buffer.tensor(dtype, &[count as u64])?;
            bench.run(Command::fill(target, Pattern::new(&bytes[..size])?))?;
            let mut expected = bytes[..size].repeat(count);
            expected.extend([0xaa; 8]);
            ensure!(
                buffer.read::<u8>(0, expected.len())? == expected,
                "{count} times {size} bytes"
            );
        }
    }
    Ok(())
}

fn partial_fills_leave_the_rest(bench: &Bench<'_>) -> Result<(), Fault> {
    let mut expected = vec![1u8; 1_000];
    let buffer = bench.buffer(&expected)?;
    for (at, count, byte) in [(0, 1, 2), (999, 1, 3), (10, 100, 4), (63, 130, 5), (500, 0, 6)] {
        let target = buffer.view(View::bytes_at(at, count)?)?;
        bench.run(Command::fill(target, Pattern::new(&[byte])?))?;
        expected[at as usize..(at + count) as usize].fill(byte);
        ensure!(buffer.read::<u8>(0, 1_000)? == expected, "{count} bytes at {at}");
    }
    Ok(())
}

fn strided_fills(bench: &Bench<'_>) -> Result<(), Fault> {
    let mut numbers = Numbers::new(5);
    for _ in 0..bench.count(60, 2_000) {
        let (dtype, bytes): (_, &[u8]) = match numbers.below(3) {
            0 => (Dtype::U8, &[7]),
            1 => (Dtype::F16, &[7, 8]),
            _ => (Dtype::F32, &[7, 8, 9, 10]),
        };
        let shape: Vec<u64> = (0..numbers.below(4)).map(|_| numbers.below(6)).collect();
        let view = random_view(&mut numbers, dtype, &shape)?;
        let mut expected = pattern(view.span().map_or(0, |(_, end)| end) as usize + 5, 4);
        let buffer = bench.buffer(&expected)?;
        bench.run(Command::fill(buffer.view(view)?, Pattern::new(bytes)?))?;
        places(&view)
            .into_iter()
            .for_each(|at| expected[at..at + bytes.len()].copy_from_slice(bytes));
        ensure!(buffer.read::<u8>(0, expected.len())? == expected, "{view:?}");
    }
    Ok(())
}

fn patterns_of_other_sizes_are_refused(bench: &Bench<'_>) -> Result<(), Fault> {
    let wrong = |error: &DeviceError| matches!(error, DeviceError::FillPattern { .. });
    for bytes in [0, 3, 5, 16] {
        refused(Pattern::new(&vec![0; bytes]), wrong)?;
    }
    let buffer = bench.buffer(&[0u8; 64])?;
    let fill = Command::fill(buffer.tensor(Dtype::F32, &[4])?, Pattern::new(&[1, 2])?);
    refused(bench.lane().submit(fill.into()), wrong)
}

fn writes_through_broadcast_views_are_refused(bench: &Bench<'_>) -> Result<(), Fault> {
    let (source, target) = pair(bench)?;
    let broadcast = target.view(View::strided(Dtype::U8, 0, &[4, 4], &[0, 1])?)?;
    let wrong = |error: &DeviceError| matches!(error, DeviceError::BroadcastWrite { .. });
    let copy = Command::copy(source.tensor(Dtype::U8, &[4, 4])?, broadcast.clone());
    refused(bench.lane().submit(copy.into()), wrong)?;
    refused(bench.lane().submit(Command::fill(broadcast, Pattern::new(&[1])?).into()), wrong)
}
