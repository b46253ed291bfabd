//! A map borrows its buffer: memory that is looked at is not given back.
use syncline_device::{Deadline, Map, cpu::CpuDevice};

fn main() {
    let device = CpuDevice::open_default().unwrap();
    let map: Map<'_> = {
        let buffer = device.buffer(64);
        buffer.map(Deadline::NEVER).unwrap()
    };
    println!("{}", map.len());
}
