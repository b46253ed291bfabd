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
pub(crate) fn figure(mut samples: Vec<f64>) -> Figure {
    assert!(!samples.is_empty(), "nothing was measured");
    samples.sort_by(f64::total_cmp);
    let at = |share: usize| samples[(samples.len() - 1) * share / 4];
    Figure { median: at(2), spread: (at(3) - at(1)) / 2.0 }
}

/// Calls `run` once to warm up, then `times` times, and divides each time by `count`: nanoseconds
/// per item.
pub(crate) fn ns_per(times: usize, count: u64, mut run: impl FnMut() -> Duration) -> Figure {
    run();
    figure((0..times.max(1)).map(|_| run().as_nanos() as f64 / count as f64).collect())
}

/// How long `run` takes.
pub(crate) fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

/// One of several things whose times are compared.
pub(crate) struct Side<'a> {
    /// What it is called in rows.
    pub name: &'static str,
    run: Box<dyn FnMut() + 'a>,
}

impl<'a> Side<'a> {
    /// A side called `name`.
    pub(crate) fn new(name: &'static str, run: impl FnMut() + 'a) -> Self {
        Self { name, run: Box::new(run) }
    }
}

/// Runs all sides once to warm up, then `times` rounds in which each has its turn, and returns the
/// nanoseconds of each.
///
/// What else the machine does hits all sides of a round alike; and since another one begins each
/// round, none always comes after the same.
pub(crate) fn interleaved(times: usize, sides: &mut [Side<'_>]) -> Vec<Vec<f64>> {
    let count = sides.len();
    sides.iter_mut().for_each(|side| (side.run)());
    let mut samples = vec![Vec::with_capacity(times); count];
    for round in 0..times.max(1) {
        for at in (0..count).map(|number| (round + number) % count) {
            samples[at].push(timed(|| (sides[at].run)()).as_nanos() as f64);
        }
    }
    samples
}
