//! A line that shows how far a conversion is, on terminals only.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::size::show;

/// Time between two updates: often enough to look alive.
const STEP: Duration = Duration::from_millis(100);

/// Bytes done, rate and time left, rewritten in place.
pub(super) struct ProgressLine {
    total: u64,
    start: Instant,
    shown: Option<Mutex<Instant>>,
}

impl ProgressLine {
    pub(super) fn new(total: u64) -> Self {
        let start = Instant::now();
        let shown = std::io::stderr().is_terminal().then(|| Mutex::new(start));
        Self { total, start, shown }
    }

    pub(super) fn update(&self, done: u64) {
        // Whoever finds the line in use has nothing to add to it.
        let Some(mut shown) = self.shown.as_ref().and_then(|shown| shown.try_lock().ok()) else {
            return;
        };
        if shown.elapsed() < STEP {
            return;
        }
        *shown = Instant::now();
        let seconds = self.start.elapsed().as_secs_f64().max(1e-3);
        let rate = done as f64 / seconds;
        let left = self.total.saturating_sub(done) as f64 / rate.max(1.0);
        let share = done as f64 * 100.0 / self.total.max(1) as f64;
        eprint!(
            "\r{share:5.1}%  {} of {}  {:.2} GB/s  {left:.0} s left   ",
            show(done),
            show(self.total),
            rate / 1e9
        );
        let _ = std::io::stderr().flush();
    }

    pub(super) fn finish(&self) {
        if self.shown.is_some() {
            eprint!("\r{:70}\r", "");
        }
    }
}

/// A process's word on how far it is, for the one that started it.
#[derive(Default)]
pub(super) struct Counter {
    said: Option<Instant>,
}

impl Counter {
    /// Says it, unless it was said a moment ago.
    pub(super) fn print(&mut self, done: u64) {
        if self.said.is_none_or(|said| said.elapsed() >= STEP) {
            self.said = Some(Instant::now());
            println!("DONE {done}");
        }
    }

    /// The bytes in such a line.
    pub(super) fn parse(line: &str) -> Option<u64> {
        line.strip_prefix("DONE ")?.parse().ok()
    }
}
