//! A bar that shows how far a run is, on terminals only.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use syncline_program::Progress;

/// Time before the bar appears: a short run shows none. And between two updates: often enough to look alive.
const STEP: Duration = Duration::from_millis(100);
const WIDTH: usize = 30;

/// A bar that is redrawn by a thread of its own until it is dropped.
pub(super) struct ProgressBar {
    /// Closing it ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressBar {
    /// A bar over `tasks` tasks, and what they are to be counted with; `None` where nobody would see it.
    pub(super) fn start(tasks: u64) -> Option<(Self, Progress)> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let progress = Progress::new();
        let (stop, stopped) = channel();
        let watched = progress.clone();
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            let mut is_shown = false;
            while stopped.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) {
                draw(&bar(watched.done(), tasks, start.elapsed()));
                is_shown = true;
            }
            if is_shown {
                draw(&" ".repeat(bar(tasks, tasks, start.elapsed()).len()));
                draw("");
            }
        });
        Some((Self { stop: Some(stop), thread: Some(thread) }, progress))
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A bar that cannot be drawn is no reason to fail a run.
            let _ = thread.join();
        }
    }
}

fn draw(line: &str) {
    let mut out = std::io::stderr().lock();
    let _ = write!(out, "\r{line}").and_then(|()| out.flush());
}

/// `[######------]  50%  500 of 1000 tasks, 2 s left `
fn bar(done: u64, tasks: u64, elapsed: Duration) -> String {
    let done = done.min(tasks);
    let share = done as f64 / tasks.max(1) as f64;
    let full = (share * WIDTH as f64) as usize;
    let left = match done {
        0 => "      ".to_owned(),
        _ => format!("{:.0} s left", elapsed.as_secs_f64() * (1.0 - share) / share),
    };
    let (full, rest) = ("#".repeat(full), "-".repeat(WIDTH - full));
    format!("[{full}{rest}] {:3.0}%  {done} of {tasks} tasks, {left:<14}", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        let half = bar(500, 1000, Duration::from_secs(2));
        assert_eq!(half.matches('#').count(), WIDTH / 2, "{half}");
        assert!(half.contains(" 50%  500 of 1000 tasks, 2 s left"), "{half}");
        assert!(bar(7, 5, Duration::ZERO).contains("100%  5 of 5 tasks"));
        assert!(bar(0, 0, Duration::ZERO).contains("0%"));
    }
}
