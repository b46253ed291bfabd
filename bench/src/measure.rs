//! Medians: machines are noisy, so that one run says little.

use std::time::{Duration, Instant};

/// A median and how far the middle half of the samples lies around it.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The middle sample.
    pub median: f64,
    /// Half the distance between the quartiles.
    pub spread: f64,
}

/// The figure of `samples`, of which there must be at least one.
pub fn figure(mut samples: Vec<f64>) -> Figure {
    assert!(!samples.is_empty(), "nothing was measured");
    samples.sort_by(f64::total_cmp);
    let at = |share: usize| samples[(samples.len() - 1) * share / 4];
    Figure { median: at(2), spread: (at(3) - at(1)) / 2.0 }
}

/// Calls `run` once to warm up, then `times` times, and divides each time by `count`: nanoseconds per item.
pub fn ns_per(times: usize, count: u64, mut run: impl FnMut() -> Duration) -> Figure {
    run();
    figure((0..times.max(1)).map(|_| run().as_nanos() as f64 / count as f64).collect())
}

/// How long `run` takes.
pub fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}
