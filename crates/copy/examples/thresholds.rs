//! Measures what the thresholds of `src/execute/tuning.rs` rest on, and prints a table of each.
//!
//! ```text
//! cargo run --release -p syncline-copy --features execute --example thresholds
//! ```
//!
//! The sides of a table take turns in one process, and each figure is the best of its rounds: those
//! of other tenants of the machine only make a round slower.

use std::hint::black_box;
use std::time::Instant;

use syncline_copy::{CopyPlan, ElementChange, FAN_MAX, Part, Store, Strides, fence};

const ROUNDS: usize = 40;

/// A target and a source, aligned to pages.
struct Memory {
    bytes: Vec<u8>,
    start: usize,
}

impl Memory {
    fn new(bytes: usize) -> Self {
        let bytes = vec![1u8; bytes + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        Self { bytes, start }
    }

    fn start(&mut self) -> *mut u8 {
        self.bytes[self.start..].as_mut_ptr()
    }
}

/// Gigabytes a second of each side, in the order given.
fn rates(bytes: u64, sides: &mut [&mut dyn FnMut()]) -> Vec<f64> {
    let mut best = vec![f64::MAX; sides.len()];
    for _ in 0..ROUNDS {
        for (side, best) in sides.iter_mut().zip(&mut best) {
            let start = Instant::now();
            side();
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    best.iter().map(|seconds| bytes as f64 / seconds / 1e9).collect()
}

fn row(name: &str, rates: &[f64]) {
    print!("{name:>12}");
    rates.iter().for_each(|rate| print!(" {rate:>12.1}"));
    println!();
}

/// `rows` runs of `run` bytes, one every `stride` bytes of the source and every `target_stride` of
/// the target.
fn rows(rows: u64, run: u64, stride: u64, target_stride: u64) -> CopyPlan {
    let source = Strides { strides: &[stride as i64, 1], element_bytes: 1 };
    let target = Strides { strides: &[target_stride as i64, 1], element_bytes: 1 };
    CopyPlan::strided(&[rows, run], source, target).expect("small enough")
}

/// # Safety
/// As [`CopyPlan::run_as`].
unsafe fn copy(plan: &CopyPlan, part: Part, store: Store) {
    // SAFETY: the caller's promise.
    unsafe { black_box(plan).run_as(part, ElementChange::Nothing, store) };
    fence();
}

fn main() {
    const MOST: usize = 256 << 20;
    let (mut source, mut target) = (Memory::new(MOST + (1 << 20)), Memory::new(MOST + (1 << 20)));
    let (from, to) = (source.start().cast_const(), target.start());

    println!("One run, again and again, GB/s:");
    println!("{:>12} {:>12} {:>12}", "bytes", "cached", "streaming");
    for shift in [16, 18, 20, 21, 22, 23, 24, 26, 28] {
        let bytes = 1u64 << shift;
        let plan = CopyPlan::flat(bytes);
        let times = (1 << 24 >> shift).max(1);
        // SAFETY: both memories have more bytes than the largest run.
        let run = |store| unsafe { (0..times).for_each(|_| copy(&plan, (from, to), store)) };
        let found =
            rates(bytes * times, &mut [&mut || run(Store::Cached), &mut || run(Store::Streaming)]);
        row(&format!("{} KiB", bytes >> 10), &found);
    }

    println!("\nRuns of a length, half of every row of the source, 64 MiB to packed rows, GB/s:");
    println!("{:>12} {:>12} {:>12} {:>12}", "run bytes", "cached", "streaming", "whole lines");
    for run in [64u64, 128, 256, 320, 512, 768, 1024, 2048, 4096, 16384] {
        let count = (64 << 20) / run;
        // Those of one byte more are no whole lines, and begin anywhere in a line.
        let (lines, odd) = (rows(count, run, 2 * run, run), rows(count, run + 1, 2 * run, run + 1));
        // SAFETY: the rows of both plans lie within the memories.
        let run_as = |plan, store| unsafe { copy(plan, (from, to), store) };
        let found = rates(
            run * count,
            &mut [
                &mut || run_as(&odd, Store::Cached),
                &mut || run_as(&odd, Store::Streaming),
                &mut || run_as(&lines, Store::Streaming),
            ],
        );
        row(&run.to_string(), &found);
    }

    println!("\nFour boxes side by side, 128 MiB together, GB/s:");
    println!("{:>12} {:>12} {:>12}", "run bytes", "one by one", "in one pass");
    for run in [64u64, 256, 1024, 2048, 4096, 8192, 16384] {
        const BOXES: usize = 4;
        let count = (128 << 20) / (BOXES as u64 * run);
        let plan = rows(count, run, BOXES as u64 * run, run);
        let part = |at: usize| {
            let target = at * (count * run) as usize;
            (from.wrapping_add(at * run as usize), to.wrapping_add(target))
        };
        let parts: Vec<Part> = (0..BOXES).map(part).collect();
        assert!(parts.len() <= FAN_MAX);
        // SAFETY: the boxes lie within the memories, and their targets are disjoint.
        let alone =
            || parts.iter().for_each(|&part| unsafe { copy(&plan, part, Store::Streaming) });
        // SAFETY: as above.
        let together = || unsafe {
            plan.run_fan(&parts, Store::Streaming);
            fence();
        };
        let found = rates(BOXES as u64 * run * count, &mut [&mut { alone }, &mut { together }]);
        row(&run.to_string(), &found);
    }

    println!("\nBoxes of 4 rows at random places of 256 MiB, to packed boxes in the caches, GB/s:");
    println!("{:>12} {:>12} {:>12}", "run bytes", "alone", "prefetched");
    for run in [64u64, 256, 1024, 4096] {
        let plan = rows(4, run, 4096, run);
        let count = (8 << 20) / (4 * run);
        let mut place = 12_345u64;
        let places: Vec<usize> = (0..count)
            .map(|_| {
                place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (place >> 33) as usize % (MOST / 4096) * 4096
            })
            .collect();
        let all = |ahead: bool| {
            for (number, at) in places.iter().enumerate() {
                if let Some(next) = places.get(number + 1).filter(|_| ahead) {
                    plan.prefetch(from.wrapping_add(*next));
                }
                let target = to.wrapping_add(number % 16 * 4 * run as usize);
                // SAFETY: the box begins at a page of the memory, and there is room behind it.
                unsafe { copy(&plan, (from.wrapping_add(*at), target), Store::Cached) };
            }
        };
        let found = rates(4 * run * count, &mut [&mut || all(false), &mut || all(true)]);
        row(&run.to_string(), &found);
    }
}
