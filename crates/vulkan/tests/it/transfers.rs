use std::sync::Arc;
use std::time::Duration;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{Batch, Buffer, Command, Deadline, KernelArg, LaneKind, Pattern, Recording};
use syncline_tensor::{Dtype, View};
use syncline_testing::for_seeds;
use syncline_vulkan::VulkanOptions;
use syncline_vulkan::conformance::elementwise;

use crate::support;

/// Runs `check` on a device whose memory the host reaches, if it does, and on one where it does
/// not.
fn on_both(check: impl Fn(&dyn syncline_device::Device, &dyn Fn(u64) -> Buffer)) {
    let cpu = CpuDevice::open(CpuOptions::new(0).compute_lanes(1)).unwrap();
    for staged in [false, true] {
        let options = VulkanOptions::default().with_staged(staged);
        let Some(device) = support::open(options) else { return };
        check(&*device, &|bytes| cpu.buffer(bytes));
    }
}

fn copy(device: &dyn syncline_device::Device, source: (&Buffer, View), target: (&Buffer, View)) {
    let command = Command::copy(source.0.view(source.1).unwrap(), target.0.view(target.1).unwrap());
    let point = device.lane(LaneKind::Copy).submit(command.into()).unwrap();
    point.wait(Deadline::NEVER).unwrap();
}

fn numbered(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
}

#[test]
fn flat_copies_to_the_device_and_back_keep_every_byte() {
    on_both(|device, host| {
        for bytes in [0, 1, 3, 4_097, 1 << 20, (9 << 20) + 5] {
            let (from, there, back) = (host(bytes), device.buffer(bytes), host(bytes));
            from.write(0, &numbered(bytes)).unwrap();
            let all = View::bytes_at(0, bytes).unwrap();
            copy(device, (&from, all), (&there, all));
            copy(device, (&there, all), (&back, all));
            let found: Vec<u8> = back.read(0, bytes as usize).unwrap();
            assert!(found == numbered(bytes), "{bytes} bytes changed");
        }
    });
}

#[test]
fn strided_copies_between_host_and_device_agree_with_a_loop() {
    on_both(|device, host| {
        for_seeds("strided_copies_between_host_and_device", 20, |rng| {
            let (rows, columns) = (rng.range(1..300), rng.range(1..70));
            let dtype = *rng.pick(&[Dtype::U8, Dtype::F16, Dtype::F32, Dtype::F64]);
            let size = dtype.bytes();
            let wide = columns + rng.range(0..5);
            let offset = size * rng.range(0..7);
            let source = View::strided(
                dtype,
                offset,
                &[rows, columns],
                &[(wide * size) as i64, size as i64],
            )
            .unwrap();
            let target = View::contiguous(dtype, &[columns, rows]).unwrap();
            let target = target.transpose(0, 1).unwrap();
            let bytes = offset + rows * wide * size;
            let (from, there, back) = (host(bytes), device.buffer(bytes), host(bytes));
            let data = numbered(bytes);
            from.write(0, &data).unwrap();
            copy(device, (&from, source), (&there, target));
            copy(device, (&there, target), (&back, source));
            let found: Vec<u8> = back.read(0, bytes as usize).unwrap();
            let turned: Vec<u8> = there.read(0, (rows * columns * size) as usize).unwrap();
            for row in 0..rows {
                for column in 0..columns {
                    let here = (offset + (row * wide + column) * size) as usize;
                    let across = ((column * rows + row) * size) as usize;
                    let element = here..here + size as usize;
                    assert_eq!(found[element.clone()], data[element.clone()]);
                    assert_eq!(turned[across..across + size as usize], data[element]);
                }
            }
        });
    });
}

/// Work that is only submitted has not happened: a copy by the host must wait for work that the
/// device has yet to do, of its own lane and of others.
#[test]
fn copies_to_the_host_come_after_the_work_of_the_device() {
    on_both(|device, host| {
        let kernel = elementwise("add_one", 1, "arg_0[at(0u, i)] += 1.0;");
        let view = device.buffer(256).tensor(Dtype::F32, &[64]).unwrap();
        let bump = || Command::dispatch(&kernel, vec![KernelArg::inout(view.clone())], vec![]);
        let slow = Arc::new(Recording::new((0..500).map(|_| bump()).collect()).unwrap());
        let compute = device.lane(LaneKind::Compute);
        for copies in [compute, device.lane(LaneKind::Copy)] {
            view.buffer().write(0, &[0f32; 64]).unwrap();
            let mut found = Vec::new();
            for _ in 0..5 {
                compute.submit(Command::recording(&slow).into()).unwrap();
                let back = host(256);
                copies.submit(Command::copy(view.buffer().all(), back.all()).into()).unwrap();
                found.push(back);
            }
            for (round, back) in (1u16..).zip(&found) {
                let expected = [f32::from(500 * round); 64];
                assert_eq!(back.read::<f32>(0, 64).unwrap(), expected, "round {round}");
            }
        }
        // The same for a host function, which is told by a point and by no buffer.
        view.buffer().write(0, &[0f32; 64]).unwrap();
        let ran = compute.submit(Command::recording(&slow).into()).unwrap();
        let (awaited, called) = (
            ran.clone(),
            Command::host("checks", move || {
                assert!(ran.is_reached(), "called before what it waits for");
                Ok(())
            }),
        );
        let batch = Batch::from(called).wait(awaited);
        let point = device.lane(LaneKind::Copy).submit(batch).unwrap();
        point.wait(Deadline::after(Duration::from_secs(60))).unwrap();
    });
}

#[test]
fn copies_and_fills_in_memory_of_the_host_run_on_the_lane_too() {
    on_both(|device, host| {
        let (one, other) = (host(100), host(100));
        let lane = device.lane(LaneKind::Copy);
        lane.submit(Command::fill(one.all(), Pattern::new(&[7]).unwrap()).into()).unwrap();
        lane.submit(Command::copy(one.all(), other.all()).into()).unwrap();
        assert_eq!(other.read::<u8>(0, 100).unwrap(), [7; 100]);
    });
}
