use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_device::{
    Backend, Batch, Command, Deadline, Device, Grid, Kernel, KernelArg, KernelSource, LaneKind,
    Pattern, Recording, Timeline,
};
use syncline_tensor::{Dtype, View};

use crate::{devices, options};

fn in_time() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn add_one() -> Kernel {
    let text = "__kernel void add_one(__global uint *x, __global const uint *p) {
        if (get_global_id(0) < p[2]) x[p[0] + get_global_id(0)] += 1;
    }";
    // SAFETY: the tests below call it with the arguments that it is written for.
    let source = unsafe { KernelSource::native(Backend::OpenCl, text, "add_one", [16, 1, 1]) };
    let source = source.grid(Grid::Elements { arg: 0 });
    Kernel::builder("add_one").source(source).build()
}

/// A recording that adds `count` to a word of eight, half of it through a copy.
fn recording(
    device: &Arc<dyn Device>,
    count: u32,
) -> (Arc<Recording>, [syncline_device::Buffer; 2]) {
    let buffers = [device.buffer(32), device.buffer(32)];
    buffers.iter().for_each(|buffer| buffer.write(0, &[0u32; 8]).unwrap());
    let word = View::contiguous(Dtype::U32, &[8]).unwrap().slice(0, 3..4).unwrap();
    let at = |buffer: usize| buffers[buffer].view(word).unwrap();
    let kernel = add_one();
    let bump = |buffer| Command::dispatch(&kernel, vec![KernelArg::inout(at(buffer))], vec![]);
    let mut commands = Vec::new();
    for _ in 0..count / 2 {
        commands.push(bump(0));
    }
    commands.push(Command::copy(at(0), at(1)));
    for _ in count / 2..count {
        commands.push(bump(1));
    }
    commands.push(Command::copy(at(1), at(0)));
    (Arc::new(Recording::new(commands).unwrap()), buffers)
}

#[test]
fn a_recording_runs_again_and_again() {
    for options in [options(), options().with_host_visible(false)] {
        let Some(devices) = devices(options, 1) else { return };
        let (recording, buffers) = recording(&devices[0], 50);
        let lane = devices[0].lane(LaneKind::Compute);
        for _ in 0..20 {
            lane.submit(Command::recording(&recording).into()).unwrap();
        }
        assert_eq!(buffers[0].read::<u32>(0, 8).unwrap(), [0, 0, 0, 1_000, 0, 0, 0, 0]);
        // Another lane prepares its own, and closing it drops that.
        let other = devices[0].open_lane(LaneKind::Compute, "other").unwrap();
        let done = other.submit(Command::recording(&recording).into()).unwrap();
        drop(other);
        done.wait(in_time()).unwrap();
        lane.submit(Command::recording(&recording).into()).unwrap();
        assert_eq!(buffers[1].read::<u32>(12, 1).unwrap(), [1_100]);
    }
}

#[test]
fn a_recording_behind_a_failure_never_runs() {
    let Some(devices) = devices(options(), 1) else { return };
    let (recording, buffers) = recording(&devices[0], 10);
    let lane = devices[0].lane(LaneKind::Compute);
    let broken = Timeline::new("broken", 0);
    let first = lane.submit(Batch::from(Command::recording(&recording))).unwrap();
    let failed = lane.submit(Batch::from(Command::recording(&recording)).wait(broken.point(1)));
    let behind = lane.submit(Command::recording(&recording).into()).unwrap();
    first.wait(in_time()).unwrap();
    broken.fail(syncline_device::DeviceError::Cancelled { reason: "on purpose".into() }).unwrap();
    failed.unwrap().wait(in_time()).unwrap_err();
    behind.wait(in_time()).unwrap_err();
    lane.recover();
    // A write makes the bytes readable again; those beside it are as they were left.
    buffers[0].write(16, &[0u32; 4]).unwrap();
    let fresh = devices[0].buffer(32);
    lane.submit(Command::fill(fresh.all(), Pattern::new(&[0]).unwrap()).into()).unwrap();
    let map = buffers[0].map_mut(in_time()).unwrap();
    assert_eq!(map[12..16], 10u32.to_le_bytes());
}

#[test]
fn commands_are_told_when_they_ran() {
    let Some(devices) = devices(options(), 1) else { return };
    let (recording, _buffers) = recording(&devices[0], 6);
    let lane = devices[0].lane(LaneKind::Compute);
    lane.submit(Command::recording(&recording).into()).unwrap();
    lane.synchronize(in_time()).unwrap();
    assert!(lane.take_times().is_empty(), "not asked for");

    assert!(lane.note_times(true));
    let before = Instant::now();
    let buffer = devices[0].buffer(64);
    let batch = Batch::new()
        .command(Command::fill(buffer.all(), Pattern::new(&[1]).unwrap()))
        .command(Command::recording(&recording))
        .command(Command::host("between", || Ok(())))
        .command(Command::fill(buffer.all(), Pattern::new(&[2]).unwrap()));
    let point = lane.submit(batch).unwrap();
    point.wait(in_time()).unwrap();
    let after = Instant::now();
    let times = lane.take_times();
    let numbers: Vec<u32> = times.iter().map(|time| time.command).collect();
    // A fill, eight commands of the recording, and a fill behind the function.
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 10]);
    let mut last = before;
    for time in &times {
        assert_eq!(time.value, point.value());
        assert!(last <= time.began && time.began <= time.ended, "{times:?}");
        last = time.ended;
    }
    // The driver's clock is read when a command is enqueued, ours just before: they differ by that.
    assert!(last <= after + Duration::from_millis(5), "{:?} after the end", last - after);
    assert!(lane.take_times().is_empty(), "taken before");
    assert!(!lane.note_times(false));
}

#[test]
fn what_runs_when_a_later_wait_fails_completes() {
    let Some(devices) = devices(options(), 1) else { return };
    let text = "__kernel void slow(__global uint *x, __global const uint *p) {
        uint v = x[0];
        for (uint i = 0; i < 30000000u; i++) v = v * 1664525u + (v >> 7);
        x[0] = v | 1;
    }";
    // SAFETY: the tests below call it with the arguments that it is written for.
    let source = unsafe { KernelSource::native(Backend::OpenCl, text, "slow", [1; 3]) };
    let source = source.grid(Grid::One);
    let slow = Kernel::builder("slow").source(source).build();
    let view = devices[0].buffer(4).tensor(Dtype::U32, &[1]).unwrap();
    view.buffer().write(0, &[0u32]).unwrap();
    let lane = devices[0].lane(LaneKind::Compute);
    let dispatch = Command::dispatch(&slow, vec![KernelArg::inout(view.clone())], vec![]);
    let running = lane.submit(dispatch.into()).unwrap();
    let broken = Timeline::new("broken", 0);
    broken.fail(syncline_device::DeviceError::Cancelled { reason: "on purpose".into() }).unwrap();
    let failed = lane.submit(Batch::new().wait(broken.point(1))).unwrap();
    failed.wait(in_time()).unwrap_err();
    assert!(running.is_reached(), "the lane failed while the driver worked for it");
    assert_eq!(view.to_vec::<u32>().unwrap(), [1]);
}
