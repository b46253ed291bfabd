//! Stress: many threads, many lanes, random programs.

use std::thread;

use syncline_tensor::{Dtype, View};

use super::bench::{Bench, Fault, Numbers, ensure, joined};
use super::cases;
use syncline_device::{Batch, Buffer, Command, KernelArg, Lane, Pattern, Timeline, wait_all};

cases!(
    threads_submit_to_one_lane,
    threads_submit_to_many_lanes,
    threads_share_buffers,
    threads_allocate_and_free,
    waits_between_all_lanes,
    random_programs_equal_their_serial_run,
    failures_and_recoveries_among_threads,
    lanes_opened_and_closed,
);

fn threads_submit_to_one_lane(bench: &Bench<'_>) -> Result<(), Fault> {
    let rounds = bench.count(500, 50_000);
    let before = bench.lane().last().value();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..rounds).try_for_each(|_| bench.lane().submit(Batch::new()).map(drop))
                })
            })
            .collect();
        threads.into_iter().try_for_each(joined)
    })?;
    bench.lane().synchronize(bench.in_time())?;
    let count = bench.lane().last().value() - before;
    ensure!(count == 4 * rounds, "{count} batches instead of {}", 4 * rounds);
    Ok(())
}

fn threads_submit_to_many_lanes(bench: &Bench<'_>) -> Result<(), Fault> {
    let lanes: [&dyn Lane; 3] = bench.lanes()?;
    let rounds = bench.count(300, 20_000);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|at: usize| {
                scope.spawn(move || {
                    let mut last = lanes[at % 3].submit(Batch::new())?;
                    for round in 0..rounds as usize {
                        last = lanes[(at + round) % 3].submit(Batch::new().wait(last))?;
                    }
                    last.wait(bench.in_time())
                })
            })
            .collect();
        threads.into_iter().try_for_each(joined)
    })?;
    Ok(())
}

fn threads_share_buffers(bench: &Bench<'_>) -> Result<(), Fault> {
    let lanes: [&dyn Lane; 3] = bench.lanes()?;
    let kernel = bench.kernel("add_one")?;
    let view = bench.buffer(&[0f32; 256])?.tensor(Dtype::F32, &[256])?;
    let rounds = bench.count(100, 10_000);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|at: usize| {
                let (kernel, view) = (&kernel, &view);
                scope.spawn(move || {
                    (0..rounds).try_for_each(|_| {
                        let args = vec![KernelArg::inout(view.clone())];
                        lanes[at].submit(Command::dispatch(kernel, args, vec![]).into()).map(drop)
                    })
                })
            })
            .collect();
        threads.into_iter().try_for_each(joined)
    })?;
    let found = view.to_vec::<f32>()?;
    ensure!(found == [3.0 * rounds as f32; 256], "{} instead of {}", found[0], 3 * rounds);
    Ok(())
}

fn threads_allocate_and_free(bench: &Bench<'_>) -> Result<(), Fault> {
    let before = bench.device.memory_use().in_use_bytes;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|seed| {
                scope.spawn(move || {
                    let mut numbers = Numbers::new(seed);
                    let mut kept: Vec<(Buffer, u8)> = Vec::new();
                    for byte in 0..bench.count(100, 5_000) {
                        let byte = byte as u8;
                        let size = numbers.below(20_000) + 1;
                        kept.push((bench.buffer(&vec![byte; size as usize])?, byte));
                        if numbers.below(3) == 0 {
                            kept.swap_remove(numbers.below(kept.len() as u64) as usize);
                        }
                        if kept.len() > 20 {
                            kept.drain(..10);
                        }
                        for (buffer, byte) in &kept {
                            let last = buffer.read::<u8>(buffer.bytes() - 1, 1)?;
                            ensure!(last == [*byte], "two buffers share memory");
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(joined)
    })?;
    let after = bench.device.memory_use().in_use_bytes;
    ensure!(before == after, "{} bytes leaked", after - before);
    Ok(())
}

fn waits_between_all_lanes(bench: &Bench<'_>) -> Result<(), Fault> {
    let lanes: [&dyn Lane; 3] = bench.lanes()?;
    let mut numbers = Numbers::new(3);
    let mut points = vec![lanes[0].submit(Batch::new())?];
    for _ in 0..bench.count(1_000, 50_000) {
        let lane = lanes[numbers.below(3) as usize];
        let waits: Vec<_> = (0..numbers.below(4))
            .map(|_| points[numbers.below(points.len() as u64) as usize].clone())
            .collect();
        points.push(lane.submit(Batch::new().waits(waits))?);
    }
    Ok(wait_all(&points, bench.in_time())?)
}

/// One step of a random program, as data: run serially on plain vectors, and as commands on lanes.
enum Step {
    Fill { buffer: usize, view: View, byte: u8 },
    Copy { source: usize, from: View, target: usize, to: View },
}

const BUFFERS: u64 = 3;
const BYTES: u64 = 96;

fn random_step(numbers: &mut Numbers) -> Result<Step, Fault> {
    let buffer = |numbers: &mut Numbers| numbers.below(BUFFERS) as usize;
    let bytes = numbers.below(BYTES / 2) + 1;
    let view = |numbers: &mut Numbers| View::bytes_at(numbers.below(BYTES - bytes + 1), bytes);
    Ok(match numbers.below(3) {
        0 => Step::Fill {
            buffer: buffer(numbers),
            view: view(numbers)?,
            byte: numbers.below(256) as u8,
        },
        _ => Step::Copy {
            source: buffer(numbers),
            from: view(numbers)?,
            target: buffer(numbers),
            to: view(numbers)?,
        },
    })
}

fn run_serially(step: &Step, memory: &mut [Vec<u8>]) {
    let range = |view: &View| view.offset() as usize..(view.offset() + view.bytes()) as usize;
    match step {
        Step::Fill { buffer, view, byte } => memory[*buffer][range(view)].fill(*byte),
        Step::Copy { source, from, target, to } => {
            let moved = memory[*source][range(from)].to_vec();
            memory[*target][range(to)].copy_from_slice(&moved);
        }
    }
}

fn command(step: &Step, buffers: &[Buffer]) -> Result<Command, Fault> {
    Ok(match step {
        Step::Fill { buffer, view, byte } => {
            Command::fill(buffers[*buffer].view(*view)?, Pattern::new(&[*byte])?)
        }
        Step::Copy { source, from, target, to } => {
            Command::copy(buffers[*source].view(*from)?, buffers[*target].view(*to)?)
        }
    })
}

fn random_programs_equal_their_serial_run(bench: &Bench<'_>) -> Result<(), Fault> {
    let lanes: [&dyn Lane; 3] = bench.lanes()?;
    for seed in 0..bench.count(40, 2_000) {
        let mut numbers = Numbers::new(seed);
        let mut memory = vec![vec![0u8; BYTES as usize]; BUFFERS as usize];
        let buffers: Vec<_> =
            memory.iter().map(|bytes| bench.buffer(bytes)).collect::<Result<_, _>>()?;
        for _ in 0..60 {
            let step = random_step(&mut numbers)?;
            run_serially(&step, &mut memory);
            lanes[numbers.below(3) as usize].submit(command(&step, &buffers)?.into())?;
        }
        for (buffer, expected) in buffers.iter().zip(&memory) {
            ensure!(buffer.read::<u8>(0, BYTES as usize)? == *expected, "seed {seed}");
        }
    }
    Ok(())
}

fn failures_and_recoveries_among_threads(bench: &Bench<'_>) -> Result<(), Fault> {
    let rounds = bench.count(100, 5_000);
    thread::scope(|scope| {
        let submitter = scope.spawn(|| {
            for _ in 0..rounds {
                // Refused or not, waited for in vain or not: nothing may hang.
                if let Ok(point) = bench.lane().submit(Batch::new()) {
                    let _ = point.wait(bench.in_time());
                }
            }
            Ok::<_, Fault>(())
        });
        for _ in 0..rounds {
            let broken = Timeline::new("broken", 0);
            broken.fail(syncline_device::DeviceError::Cancelled { reason: "on purpose".into() })?;
            if let Ok(point) = bench.lane().submit(Batch::new().wait(broken.point(1))) {
                ensure!(point.wait(bench.in_time()).is_err(), "its wait failed");
            }
            bench.lane().recover();
        }
        joined(submitter)
    })?;
    bench.lane().recover();
    bench.wait(&bench.lane().submit(Batch::new())?)
}

fn lanes_opened_and_closed(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need(bench.device.info().capabilities.open_lanes, "more lanes")?;
    for round in 0..bench.count(20, 1_000) {
        let open = |name| bench.device.open_lane(syncline_device::LaneKind::Copy, name);
        let (first, second) = (open("first")?, open("second")?);
        let point = first.submit(Batch::new())?;
        let point = second.submit(Batch::new().wait(point))?;
        if round % 2 == 0 {
            bench.wait(&point)?;
        }
    }
    Ok(())
}
