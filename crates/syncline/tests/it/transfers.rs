//! Bytes between devices of every pair: flat and strided, whole and staged, of all sizes.

use std::time::{Duration, Instant};

use syncline::device::{Backend, Batch, Buffer, Deadline, DeviceSpec, LaneKind, Timeline};
use syncline::runtime::{ExecutorOptions, UnifiedExecutor};
use syncline::tensor::{Dtype, View};
use syncline_testing::Rng;

use crate::{executor, specs};

const SOON: Duration = Duration::from_secs(120);

fn pairs(executor: &UnifiedExecutor) -> Vec<(DeviceSpec, DeviceSpec)> {
    let devices = specs(executor);
    devices.iter().flat_map(|&from| devices.iter().map(move |&to| (from, to))).collect()
}

fn filled(executor: &UnifiedExecutor, device: DeviceSpec, bytes: &[u8]) -> Buffer {
    let buffer = executor.context(device).unwrap().device().buffer(bytes.len() as u64);
    buffer.write(0, bytes).unwrap();
    buffer
}

fn noise(rng: &mut Rng, bytes: u64) -> Vec<u8> {
    let words = (0..bytes.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes());
    words.take(bytes as usize).collect()
}

/// Moves `bytes` flat bytes from somewhere in one buffer to somewhere in another, and checks all
/// of the target.
fn move_flat(executor: &UnifiedExecutor, from: DeviceSpec, to: DeviceSpec, bytes: u64) {
    move_flat_at(executor, from, to, bytes, 8);
}

/// As [`move_flat`], from byte `before` to byte `2 * before`.
fn move_flat_at(
    executor: &UnifiedExecutor,
    from: DeviceSpec,
    to: DeviceSpec,
    bytes: u64,
    before: u64,
) {
    let rng = &mut Rng::new(bytes ^ 0x5eed);
    let room = bytes + 3 * before;
    let (source_bytes, mut expected) = (noise(rng, room), noise(rng, room));
    let (source, target) = (filled(executor, from, &source_bytes), filled(executor, to, &expected));
    let view = |start| View::bytes_at(start, bytes).unwrap();
    let (source, target) =
        (source.view(view(before)).unwrap(), target.view(view(2 * before)).unwrap());
    executor.execute_transfer(&source, &target).unwrap().wait(Deadline::after(SOON)).unwrap();
    let at = before as usize;
    expected[2 * at..2 * at + bytes as usize]
        .copy_from_slice(&source_bytes[at..at + bytes as usize]);
    let found: Vec<u8> = target.buffer().read(0, room as usize).unwrap();
    // Not `assert_eq`: a difference would print all of it.
    assert!(found == expected, "{bytes} bytes from {from} to {to}");
}

/// Moves a tile of a matrix into the transposed tile of another.
fn move_strided(executor: &UnifiedExecutor, from: DeviceSpec, to: DeviceSpec, side: u64) {
    let rng = &mut Rng::new(side ^ 0x57de);
    let matrix = View::contiguous(Dtype::U32, &[side, side]).unwrap();
    let half = side / 2;
    let (source_bytes, mut expected) = (noise(rng, side * side * 4), noise(rng, side * side * 4));
    let (source, target) = (filled(executor, from, &source_bytes), filled(executor, to, &expected));
    let tile = |view: View, row: u64, column: u64| {
        let rows = view.slice(0, row..row + half).unwrap();
        rows.slice(1, column..column + half).unwrap()
    };
    let source_view = tile(matrix, half, 0);
    let target_view = tile(matrix.transpose(0, 1).unwrap(), half, half);
    let (source, target) = (source.view(source_view).unwrap(), target.view(target_view).unwrap());
    executor.execute_transfer(&source, &target).unwrap().wait(Deadline::after(SOON)).unwrap();
    for row in 0..half {
        for column in 0..half {
            let place = |row: u64, column: u64| ((row * side + column) * 4) as usize;
            let (a, b) = (place(half + row, column), place(half + column, half + row));
            expected[b..b + 4].copy_from_slice(&source_bytes[a..a + 4]);
        }
    }
    let found: Vec<u8> = target.buffer().read(0, expected.len()).unwrap();
    assert!(found == expected, "a tile of {half} squared from {from} to {to}");
}

fn all_sizes(options: ExecutorOptions) {
    let Some(executor) = executor(options) else { return };
    for (from, to) in pairs(&executor) {
        for bytes in [0, 1, 3, 4_097, 1 << 20] {
            move_flat(&executor, from, to, bytes);
        }
        for side in [2, 34, 256] {
            move_strided(&executor, from, to, side);
        }
    }
}

#[test]
fn every_pair_moves_every_size_bit_for_bit() {
    all_sizes(ExecutorOptions::default());
}

#[test]
fn every_pair_moves_every_size_through_the_host_in_pieces() {
    all_sizes(ExecutorOptions::default().staged(50_000));
}

#[test]
#[ignore = "a gibibyte for every pair takes minutes: for soak runs"]
fn every_pair_moves_a_gibibyte() {
    let Some(executor) = executor(ExecutorOptions::default()) else { return };
    for (from, to) in pairs(&executor) {
        // Without bytes around: two whole buffers are all that a heap of 2 GiB can hold, which is
        // what lavapipe has.
        move_flat_at(&executor, from, to, 1 << 30, 0);
    }
}

/// With the target's lane held up, the source's lane fills as many slots as there are and then
/// stops: both legs are under way at the same time, and the host's memory is bounded however much
/// is moved.
#[test]
fn a_staged_transfer_fills_three_slots_ahead_and_no_more() {
    const PIECE: u64 = 64 << 10;
    const PIECES: u64 = 16;
    let Some(executor) = executor(ExecutorOptions::default().staged(PIECE)) else { return };
    let [from, to] = [Backend::Vulkan, Backend::OpenCl].map(|backend| DeviceSpec::new(backend, 0));
    let bytes = noise(&mut Rng::new(7), PIECE * PIECES);
    let source = filled(&executor, from, &bytes);
    let target = filled(&executor, to, &vec![0; bytes.len()]);
    let out = executor.context(from).unwrap().lane(LaneKind::Copy).clone();
    let on = executor.context(to).unwrap().lane(LaneKind::Copy).clone();
    let gate = Timeline::new("gate", 0);
    on.submit(Batch::new().wait(gate.point(1))).unwrap();
    let (out_before, on_before) = (out.last().value(), on.last().value());
    let done = executor.execute_transfer(&source.all(), &target.all()).unwrap();
    assert_eq!(out.last().value() - out_before, PIECES);
    assert_eq!(on.last().value() - on_before, PIECES);
    out.timeline().wait(out_before + 3, Deadline::after(SOON)).unwrap();
    let until = Instant::now() + Duration::from_millis(50);
    while Instant::now() < until {
        assert!(out.timeline().value() <= out_before + 3, "a fourth piece without a slot");
        std::thread::sleep(Duration::from_millis(5));
    }
    gate.signal(1).unwrap();
    done.wait(Deadline::after(SOON)).unwrap();
    assert!(target.read::<u8>(0, bytes.len()).unwrap() == bytes);
}
