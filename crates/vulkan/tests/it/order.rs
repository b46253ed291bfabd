use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{
    Batch, Buffer, Command, Deadline, DeviceError, KernelArg, LaneKind, Pattern, Recording,
    Timeline,
};
use syncline_tensor::Dtype;
use syncline_vulkan::conformance::elementwise;

use crate::support::device;

/// Far beyond what anything here takes.
fn in_time() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

#[test]
fn lanes_of_the_cpu_and_of_vulkan_wait_for_each_other() {
    let Some(device) = device() else { return };
    let cpu = CpuDevice::open(CpuOptions::new(0).compute_lanes(1)).unwrap();
    let (here, there) = (cpu.buffer(64), device.buffer(64));
    let (on_cpu, on_device) = (cpu.lane(LaneKind::Compute), device.lane(LaneKind::Compute));
    for round in 0..100u8 {
        let filled = on_cpu
            .submit(Command::fill(here.all(), Pattern::new(&[round]).unwrap()).into())
            .unwrap();
        let to = Batch::from(Command::copy(here.all(), there.all())).wait(filled);
        let copied = on_device.submit(to).unwrap();
        on_cpu
            .submit(
                Batch::from(Command::fill(here.all(), Pattern::new(&[255]).unwrap())).wait(copied),
            )
            .unwrap();
        assert_eq!(there.read::<u8>(0, 64).unwrap(), [round; 64]);
    }
}

#[test]
fn a_lane_waits_for_work_of_another_that_is_submitted_later() {
    let Some(device) = device() else { return };
    let (first, second) =
        (device.lane(LaneKind::Compute).clone(), device.lane(LaneKind::Copy).clone());
    for _ in 0..200 {
        let next = second.last();
        let promised = next.timeline().point(next.value() + 1);
        let waiting = first.submit(Batch::new().wait(promised)).unwrap();
        second.submit(Batch::new()).unwrap();
        waiting.wait(in_time()).unwrap();
    }
}

#[test]
fn a_device_dropped_with_work_pending_fails_it_and_ends() {
    for _ in 0..5 {
        let Some(device) = device() else { return };
        let never = Timeline::new("never", 0);
        let (before, after) = (device.buffer(64), device.buffer(64));
        let lane = device.lane(LaneKind::Compute).clone();
        let fill = |buffer: &Buffer| Command::fill(buffer.all(), Pattern::new(&[2]).unwrap());
        lane.submit(fill(&before).into()).unwrap();
        let pending = lane.submit(Batch::from(fill(&after)).wait(never.point(1))).unwrap();
        drop(device);
        let error = pending.wait(in_time()).unwrap_err();
        assert!(matches!(error.root_cause(), DeviceError::Closed { .. }), "{error}");
        let refused = lane.submit(Batch::new()).unwrap_err();
        assert!(matches!(refused, DeviceError::Closed { .. }), "{refused}");
        // The memory outlives the device: what ran before it closed is there, and what did not can
        // be written anew.
        assert_eq!(before.read::<u8>(0, 64).unwrap(), [2; 64]);
        assert!(after.read::<u8>(0, 64).is_err());
        after.write(0, &[5u8; 64]).unwrap();
        assert_eq!(after.read::<u8>(0, 64).unwrap(), [5; 64]);
    }
}

#[test]
fn a_host_function_may_drop_the_last_handle_of_its_device() {
    let Some(device) = device() else { return };
    let (sender, receiver) = channel();
    let (lane, held) = (device.lane(LaneKind::Compute).clone(), device.clone());
    let last = Command::host("drops its device", move || {
        drop(held);
        let _ = sender.send(());
        Ok(())
    });
    let gate = Timeline::new("gate", 0);
    let point = lane.submit(Batch::from(last).wait(gate.point(1))).unwrap();
    let devices = Arc::downgrade(&device);
    drop(device);
    assert!(devices.upgrade().is_some(), "the function holds it");
    gate.signal(1).unwrap();
    receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    let _ = point.wait(in_time());
}

#[test]
fn a_host_function_that_blocks_holds_up_its_own_lane_alone() {
    let Some(device) = device() else { return };
    let blocked = device.open_lane(LaneKind::Compute, "blocked").unwrap();
    let gate = Timeline::new("gate", 0);
    let awaited = gate.clone();
    let waits = Command::host("waits", move || awaited.wait(1, in_time()));
    let point = blocked.submit(waits.into()).unwrap();
    device.lane(LaneKind::Compute).submit(Batch::new()).unwrap().wait(in_time()).unwrap();
    assert!(!point.is_reached());
    gate.signal(1).unwrap();
    point.wait(in_time()).unwrap();
}

#[test]
fn lanes_tell_when_commands_ran() {
    let Some(device) = device() else { return };
    let lane = device.lane(LaneKind::Compute);
    if !lane.note_times(true) {
        return eprintln!("skipped: the device has no clock");
    }
    let kernel = elementwise("add_one", 1, "arg_0[at(0u, i)] += 1.0;");
    let view = device.buffer(4 << 10).tensor(Dtype::F32, &[1 << 10]).unwrap();
    view.buffer().write(0, &[0f32; 1 << 10]).unwrap();
    let bump = || Command::dispatch(&kernel, vec![KernelArg::inout(view.clone())], vec![]);
    let recording = Arc::new(Recording::new(vec![bump(), bump(), bump()]).unwrap());
    let began = Instant::now();
    let mut points = Vec::new();
    for _ in 0..4 {
        let batch = Batch::new()
            .command(bump())
            .command(Command::recording(&recording))
            .command(Command::host("nothing", || Ok(())));
        points.push(lane.submit(batch).unwrap());
    }
    points.last().unwrap().wait(in_time()).unwrap();
    let ended = Instant::now();
    let times = lane.take_times();
    let named: Vec<_> = times.iter().map(|time| (time.value, time.command)).collect();
    let expected: Vec<_> =
        points.iter().flat_map(|point| (0..5).map(|command| (point.value(), command))).collect();
    assert_eq!(named, expected);
    // The two clocks agree up to what it takes to compare them.
    let slack = Duration::from_millis(200);
    for time in &times {
        assert!(time.began <= time.ended, "{time:?}");
        assert!(time.began + slack >= began && time.ended <= ended + slack, "{time:?}");
    }
    assert!(lane.take_times().is_empty());
    lane.note_times(false);
    lane.submit(bump().into()).unwrap().wait(in_time()).unwrap();
    assert!(lane.take_times().is_empty());
    assert_eq!(view.to_vec::<f32>().unwrap(), vec![17.0; 1 << 10]);
}
