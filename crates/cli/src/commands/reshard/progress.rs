//! How far a conversion is, on terminals only, and between processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::size::show;
use crate::bar::{Bar, time_left};

/// Time between two progress messages of a process.
const STEP: Duration = Duration::from_millis(100);

/// Bytes done, rate and time left.
pub(super) struct ProgressBar {
    done: Arc<AtomicU64>,
    _bar: Option<Bar>,
}

impl ProgressBar {
    /// A bar over `total` bytes, shown until it is dropped.
    pub(super) fn new(total: u64) -> Self {
        let done = Arc::new(AtomicU64::new(0));
        let watched = done.clone();
        let bar = Bar::start(move |elapsed| look(watched.load(Ordering::Relaxed), total, elapsed));
        Self { done, _bar: bar }
    }

    /// This many bytes are done, if not more.
    pub(super) fn update(&self, done: u64) {
        self.done.fetch_max(done, Ordering::Relaxed);
    }
}

fn look(done: u64, total: u64, elapsed: Duration) -> (f64, String) {
    let share = done as f64 / total.max(1) as f64;
    let bytes = format!("{} of {}", show(done), show(total));
    if done >= total {
        // How long that takes is unknown.
        return (1.0, format!("{bytes}, waiting for the disk"));
    }
    let rate = done as f64 / 1e9 / elapsed.as_secs_f64().max(1e-3);
    (share, format!("{bytes}, {rate:.2} GB/s, {}", time_left(share, elapsed)))
}

/// A process's word on how far it is, for the one that started it.
#[derive(Default)]
pub(super) struct Counter {
    said: Option<Instant>,
}

impl Counter {
    /// Says it, unless it was said a moment ago and there is more to come.
    pub(super) fn print(&mut self, done: u64, total: u64) {
        if done >= total || self.said.is_none_or(|said| said.elapsed() >= STEP) {
            self.said = Some(Instant::now());
            println!("DONE {done}");
        }
    }

    /// The bytes in such a line.
    pub(super) fn parse(line: &str) -> Option<u64> {
        line.strip_prefix("DONE ")?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_rate_and_time_are_told_until_only_the_disk_is_waited_for() {
        let (share, words) = look(1 << 30, 4 << 30, Duration::from_secs(1));
        assert_eq!(share, 0.25);
        assert_eq!(words, "1.00 GiB of 4.00 GiB, 1.07 GB/s, 3 s left");
        let (share, words) = look(4 << 30, 4 << 30, Duration::from_secs(4));
        assert_eq!((share, words.as_str()), (1.0, "4.00 GiB of 4.00 GiB, waiting for the disk"));
    }
}
