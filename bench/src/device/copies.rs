//! Copies between memory of the host and of one device, beside memcpy.

use std::cell::RefCell;
use std::ptr;
use std::sync::Arc;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{Buffer, Command, Deadline, Device, LaneKind};

use crate::measure::{Figure, Side, figure, interleaved};
use crate::row::Row;

/// Copies of `bytes` bytes by a lane and by the host, both ways.
pub(super) fn run(device: &Arc<dyn Device>, times: usize, bytes: u64) -> Vec<Row> {
    let cpu = CpuDevice::open(CpuOptions::new(0).compute_lanes(1)).expect("there is a CPU");
    let (here, there) = (cpu.buffer(bytes), device.buffer(bytes));
    let from = vec![1u8; bytes as usize];
    let to = RefCell::new(vec![2u8; bytes as usize]);
    here.write(0, &from).expect("it fits");
    there.write(0, &from).expect("it fits");
    let lane = device.lane(LaneKind::Copy);
    let copy = |source: &Buffer, target: &Buffer| {
        let point = lane.submit(Command::copy(source.all(), target.all()).into());
        point.expect("a sound lane").wait(Deadline::NEVER).expect("nothing fails");
    };
    let memcpy = || {
        let mut to = to.borrow_mut();
        // SAFETY: both are vectors of `bytes` bytes.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), bytes as usize) };
        std::hint::black_box(&mut *to);
    };
    let read = || there.read_into(0, &mut to.borrow_mut(), Deadline::NEVER).expect("it fits");
    let mut sides = [
        Side::new("memcpy", memcpy),
        Side::new("copied to the device", || copy(&here, &there)),
        Side::new("copied from the device", || copy(&there, &here)),
        Side::new("written by the host", || there.write(0, &from).expect("it fits")),
        Side::new("read by the host", read),
    ];
    let samples = interleaved(times, &mut sides);
    let rate = |times: Vec<f64>| figure(times.into_iter().map(|ns| bytes as f64 / ns).collect());
    let rates: Vec<Figure> = samples.into_iter().map(rate).collect();
    let ours = sides.iter().zip(&rates).skip(1);
    ours.map(|(side, rate)| {
        let work = format!("{}: {} MiB {}", device.spec().backend, bytes >> 20, side.name);
        Row::new("device", work, "gb_per_s", bytes, *rate).beside(sides[0].name, rates[0].median)
    })
    .collect()
}
