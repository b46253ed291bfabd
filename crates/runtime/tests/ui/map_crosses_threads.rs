//! A map stays on the thread that took it, which would otherwise not know that it waits for itself.
use syncline_device::{Deadline, cpu::CpuDevice};

fn main() {
    let device = CpuDevice::open_default().unwrap();
    let buffer = device.buffer(64);
    let map = buffer.map_mut(Deadline::NEVER).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(map));
    });
}
