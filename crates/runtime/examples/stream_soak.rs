//! Millions of tiny tasks through one stream, to see that its memory stays what it is.
//!
//! `cargo run --release -p syncline-runtime --example stream_soak [TASKS]`: 10 million unless
//! given. Fails where the resident memory grows after the first tenth.

use std::time::Instant;

use syncline_runtime::stream::{Stream, StreamOptions, Task};
use syncline_tensor::{Dtype, View};

/// What noise of the allocator and of the system may add.
const SLACK_KIB: u64 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tasks: u64 = std::env::args().nth(1).map_or(Ok(10_000_000), |word| word.parse())?;
    let stream = Stream::new(StreamOptions { ring_tasks: 1024, ..Default::default() })?;
    let word = View::contiguous(Dtype::U64, &[1])?;
    let counters: Vec<_> = (0..64).map(|_| stream.buffer(8)).collect::<Result<_, _>>()?;
    let (start, mut after_warm_up) = (Instant::now(), 0);
    for task in 0..tasks {
        let counter = &counters[task as usize % counters.len()];
        let count = Task::new("count").inout(counter, word);
        // Now and then an output, which goes at once.
        let count = if task % 100 == 0 { count.output(word) } else { count };
        stream.submit(count.body(|args| args.slice_mut::<u64>(0).map(|count| count[0] += 1)))?;
        if task == tasks / 10 {
            after_warm_up = resident_kib();
        }
    }
    stream.wait_all()?;
    let elapsed = start.elapsed();
    let mut total = 0;
    for counter in &counters {
        total += stream.read(counter)?.as_slice::<u64>()?[0];
    }
    let at_end = resident_kib();
    println!(
        "{total} tasks in {elapsed:.1?}, {} ns each",
        elapsed.as_nanos() / u128::from(tasks.max(1))
    );
    println!("resident after a tenth: {after_warm_up} KiB, at the end: {at_end} KiB");
    println!("{}", stream.stats().to_json());
    if total != tasks || at_end > after_warm_up + SLACK_KIB {
        return Err("tasks were lost, or memory grew".into());
    }
    Ok(())
}

/// Resident memory of this process; zero where the system does not say.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}
