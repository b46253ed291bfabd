//! Two threads take turns over two timelines, and two lanes do the same: a lost wake-up shows as a
//! deadline that passes.
//!
//! `cargo run --release -p syncline-device --example ping_pong -- 5000000`

use std::thread;
use std::time::{Duration, Instant};

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{Batch, Deadline, DeviceError, Timeline};

fn main() -> Result<(), DeviceError> {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100_000);
    report("two threads", rounds, threads(rounds)?);
    let rounds = rounds / 50 + 1;
    report("two lanes", rounds, lanes(rounds)?);
    Ok(())
}

fn report(who: &str, rounds: u64, took: Duration) {
    let each = took.as_nanos() as f64 / rounds as f64;
    println!("{who}: {rounds} rounds in {took:.2?}, {each:.0} ns a round, no wake-up lost");
}

fn threads(rounds: u64) -> Result<Duration, DeviceError> {
    let (ping, pong) = (Timeline::new("ping", 0), Timeline::new("pong", 0));
    let began = Instant::now();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            (1..=rounds).try_for_each(|round| {
                ping.wait(round, Deadline::after(Duration::from_secs(60)))?;
                pong.signal(round)
            })
        });
        for round in 1..=rounds {
            ping.signal(round)?;
            pong.wait(round, Deadline::after(Duration::from_secs(60)))?;
        }
        other.join().expect("the other thread does not panic")
    })?;
    Ok(began.elapsed())
}

/// Every batch waits for the batch before it, which runs on the other lane.
fn lanes(rounds: u64) -> Result<Duration, DeviceError> {
    let device = CpuDevice::open(CpuOptions::new(0).compute_lanes(2))?;
    let (ping, pong) = (&device.lanes()[0], &device.lanes()[1]);
    let mut last = ping.submit(Batch::new())?;
    let began = Instant::now();
    for _ in 0..rounds {
        let there = pong.submit(Batch::new().wait(last))?;
        last = ping.submit(Batch::new().wait(there))?;
    }
    last.wait(Deadline::after(Duration::from_secs(600)))?;
    Ok(began.elapsed())
}
