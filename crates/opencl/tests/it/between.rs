use std::sync::Arc;
use std::time::Duration;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{
    Batch, Command, Deadline, Device, DeviceError, LaneKind, Pattern, Timeline, wait_all,
};
use syncline_tensor::{Dtype, View};
use syncline_testing::{Rng, for_seeds};

use crate::{devices, options, with_pocl_devices};

fn in_time() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn cpu() -> Arc<dyn Device> {
    CpuDevice::open(CpuOptions::new(0).compute_lanes(1).memory_bytes(4 << 30)).unwrap()
}

fn bytes(count: usize, seed: u8) -> Vec<u8> {
    (0..count).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed).collect()
}

/// What devices of one context do for each other.
fn are_peers(devices: &[Arc<dyn Device>]) {
    reach_each_others_memory(devices);
    wait_for_each_other(devices);
    pass_failures_on(devices);
}

fn reach_each_others_memory(devices: &[Arc<dyn Device>]) {
    for (one, other) in [(&devices[0], &devices[1]), (&devices[1], &devices[0])] {
        let source = one.buffer(4_097);
        source.write(0, &bytes(4_097, 3)).unwrap();
        let target = other.buffer(4_097);
        let copy = Command::copy(source.all(), target.all());
        other.lane(LaneKind::Copy).submit(copy.into()).unwrap();
        assert_eq!(target.read::<u8>(0, 4_097).unwrap(), bytes(4_097, 3));
    }
    assert!(!devices[0].lanes()[0].can_access("opencl:7".parse().unwrap()));
    assert!(!devices[0].lanes()[0].can_access("vulkan:0".parse().unwrap()));
}

fn wait_for_each_other(devices: &[Arc<dyn Device>]) {
    let (first, second) = (&devices[0].lanes()[0], &devices[1].lanes()[0]);
    let gate = Timeline::new("gate", 0);
    let buffers = [devices[0].buffer(1 << 16), devices[1].buffer(1 << 16)];
    buffers.iter().for_each(|buffer| buffer.write(0, &[0u8; 1 << 16]).unwrap());
    for byte in 1..50 {
        let fill = Command::fill(buffers[0].all(), Pattern::new(&[byte]).unwrap());
        let filled = first.submit(Batch::from(fill).wait(gate.point(u64::from(byte)))).unwrap();
        let copy = Command::copy(buffers[0].all(), buffers[1].all());
        let copied = second.submit(Batch::from(copy).wait(filled.clone())).unwrap();
        assert!(!copied.is_reached(), "it waits for what has not begun");
        gate.signal(byte.into()).unwrap();
        copied.wait(in_time()).unwrap();
        assert!(filled.is_reached(), "what was waited for is reached first");
        assert_eq!(buffers[1].read::<u8>(0, 1 << 16).unwrap(), [byte; 1 << 16]);
    }
}

fn pass_failures_on(devices: &[Arc<dyn Device>]) {
    let broken = Timeline::new("broken", 0);
    let first = devices[0].lanes()[0].submit(Batch::new().wait(broken.point(1))).unwrap();
    let second = devices[1].lanes()[0].submit(Batch::new().wait(first)).unwrap();
    let cause = DeviceError::Cancelled { reason: "on purpose".into() };
    broken.fail(cause.clone()).unwrap();
    let error = second.wait(in_time()).unwrap_err();
    assert_eq!(error.root_cause(), &cause);
}

#[test]
fn parts_of_a_device_are_peers() {
    let found = devices(options().with_parts(2), 2);
    // A driver that cannot divide its device has it whole.
    if let Some(parts) = found.filter(|of| of[0].lanes()[0].can_access(of[1].spec())) {
        are_peers(&parts);
    }
}

#[test]
fn parts_of_a_device_are_peers_also_without_other_peers() {
    let Some(parts) = devices(options().with_parts(2).with_peers(false), 2) else { return };
    are_peers(&parts);
}

#[test]
fn devices_of_a_kind_are_peers() {
    if with_pocl_devices("pthread pthread", "between::devices_of_a_kind_are_peers") {
        devices(options(), 2).iter().for_each(|found| are_peers(found));
        let through_the_driver = options().with_host_visible(false);
        devices(through_the_driver, 2).iter().for_each(|found| are_peers(found));
    }
}

#[test]
fn devices_of_two_kinds_are_peers() {
    if with_pocl_devices("pthread basic", "between::devices_of_two_kinds_are_peers") {
        devices(options(), 2).iter().for_each(|found| are_peers(found));
    }
}

#[test]
fn devices_of_other_contexts_are_refused() {
    let name = "between::devices_of_other_contexts_are_refused";
    if !with_pocl_devices("pthread basic", name) {
        return;
    }
    let Some(found) = devices(options().with_peers(false), 2) else { return };
    let copy = Command::copy(found[0].buffer(64).all(), found[1].buffer(64).all());
    let refused = found[1].lanes()[0].submit(copy.into());
    assert!(matches!(refused, Err(DeviceError::WrongDevice { .. })), "{refused:?}");
}

/// Copies from the CPU to `device`, within it, and back, through random views; compared with copies
/// in memory.
fn round_trips(device: &Arc<dyn Device>, rng: &mut Rng) {
    let cpu = cpu();
    for _ in 0..30 {
        let dtype = *rng.pick(&[Dtype::U8, Dtype::F16, Dtype::F32, Dtype::F64]);
        let shape: Vec<u64> = (0..rng.range(1..4)).map(|_| rng.range(1..8)).collect();
        let views: Vec<View> = (0..3).map(|_| strided(rng, dtype, &shape)).collect();
        let sizes = views.iter().map(|view| view.span().unwrap().1 as usize + 3).max().unwrap();
        let (there, back) = (device.buffer(sizes as u64), cpu.buffer(sizes as u64));
        let here = cpu.buffer(sizes as u64);
        here.write(0, &bytes(sizes, 1)).unwrap();
        there.write(0, &bytes(sizes, 2)).unwrap();
        back.write(0, &bytes(sizes, 3)).unwrap();
        let lane = device.lane(LaneKind::Copy);
        let view = |buffer: &syncline_device::Buffer, at: usize| buffer.view(views[at]).unwrap();
        lane.submit(Command::copy(view(&here, 0), view(&there, 1)).into()).unwrap();
        lane.submit(Command::copy(view(&there, 1), view(&back, 2)).into()).unwrap();
        let (mut there_now, mut back_now) = (bytes(sizes, 2), bytes(sizes, 3));
        let size = dtype.bytes() as usize;
        let places: Vec<Vec<usize>> = views.iter().map(places).collect();
        for at in 0..places[0].len() {
            let element = bytes(sizes, 1)[places[0][at]..][..size].to_vec();
            there_now[places[1][at]..][..size].copy_from_slice(&element);
            back_now[places[2][at]..][..size].copy_from_slice(&element);
        }
        assert_eq!(there.read::<u8>(0, sizes).unwrap(), there_now, "{views:?}");
        assert_eq!(back.read::<u8>(0, sizes).unwrap(), back_now, "{views:?}");
    }
}

/// A view of `shape` in any order of dimensions, with gaps and reversals.
fn strided(rng: &mut Rng, dtype: Dtype, shape: &[u64]) -> View {
    let mut order: Vec<usize> = (0..shape.len()).collect();
    rng.shuffle(&mut order);
    let mut strides = vec![0i64; shape.len()];
    let (mut extent, mut offset) = (dtype.bytes(), rng.range(0..9));
    for dim in order {
        let stride = extent + rng.range(0..3);
        strides[dim] = stride as i64;
        extent = stride * shape[dim];
        if rng.one_in(4) {
            strides[dim] = -strides[dim];
            offset += stride * (shape[dim] - 1);
        }
    }
    View::strided(dtype, offset, shape, &strides).unwrap()
}

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

#[test]
fn strided_copies_from_and_to_the_cpu() {
    let Some(found) = devices(options(), 1) else { return };
    for_seeds("strided_copies_from_and_to_the_cpu", 10, |rng| round_trips(&found[0], rng));
}

#[test]
fn strided_copies_from_and_to_the_cpu_through_the_driver() {
    let Some(found) = devices(options().with_host_visible(false), 1) else { return };
    let name = "strided_copies_from_and_to_the_cpu_through_the_driver";
    for_seeds(name, 10, |rng| round_trips(&found[0], rng));
}

#[test]
fn flat_copies_from_and_to_the_cpu_by_size() {
    for options in [options(), options().with_host_visible(false)] {
        let Some(found) = devices(options, 1) else { return };
        let cpu = cpu();
        for count in [0, 1, 3, 4_097, 1 << 20, (16 << 20) + 5] {
            let written = bytes(count, 9);
            let [here, back] = [cpu.buffer(count as u64), cpu.buffer(count as u64)];
            let there = found[0].buffer(count as u64);
            here.write(0, &written).unwrap();
            let lane = found[0].lane(LaneKind::Copy);
            lane.submit(Command::copy(here.all(), there.all()).into()).unwrap();
            lane.submit(Command::copy(there.all(), back.all()).into()).unwrap();
            assert!(back.read::<u8>(0, count).unwrap() == written, "{count} bytes changed");
        }
    }
}

#[test]
fn kernels_and_fills_on_memory_of_the_cpu_are_refused() {
    let Some(found) = devices(options(), 1) else { return };
    let fill = Command::fill(cpu().buffer(64).all(), Pattern::new(&[1]).unwrap());
    let refused = found[0].lanes()[0].submit(fill.into());
    assert!(matches!(refused, Err(DeviceError::WrongDevice { .. })), "{refused:?}");
}

#[test]
fn lanes_of_the_cpu_and_of_opencl_wait_for_each_other() {
    let Some(found) = devices(options(), 1) else { return };
    let (cpu, device) = (cpu(), &found[0]);
    let (here, there) = (&cpu.lanes()[0], &device.lanes()[0]);
    let mut last = here.submit(Batch::new()).unwrap();
    let buffer = device.buffer(64);
    for byte in 0..100 {
        let fill = Command::fill(buffer.all(), Pattern::new(&[byte]).unwrap());
        let filled = there.submit(Batch::from(fill).wait(last)).unwrap();
        last = here.submit(Batch::new().wait(filled)).unwrap();
    }
    wait_all(&[last, there.last()], in_time()).unwrap();
    assert_eq!(buffer.read::<u8>(0, 64).unwrap(), [99; 64]);
}

#[test]
fn a_device_dropped_with_work_pending_fails_it() {
    let Some(mut found) = devices(options(), 1) else { return };
    let device = found.remove(0);
    let never = Timeline::new("never", 0);
    let buffer = device.buffer(1 << 20);
    let mut points = Vec::new();
    for byte in 0..10 {
        let fill = Command::fill(buffer.all(), Pattern::new(&[byte]).unwrap());
        points.push(device.lanes()[0].submit(fill.into()).unwrap());
    }
    let pending = device.lanes()[0].submit(Batch::new().wait(never.point(1))).unwrap();
    let behind = device.lanes()[1].submit(Batch::new().wait(pending.clone())).unwrap();
    drop(device);
    for point in [&pending, &behind] {
        let error = point.wait(in_time()).unwrap_err();
        assert!(matches!(error.root_cause(), DeviceError::Closed { .. }), "{error}");
    }
    assert!(points.iter().all(|point| point.is_reached()), "what the driver had has completed");
    // Memory outlives its device.
    assert_eq!(buffer.read::<u8>(0, 1 << 20).unwrap(), vec![9; 1 << 20]);
}
