//! How far a run is, on terminals only.

use std::time::Duration;

use syncline::program::RunProgress;

use crate::bar::{Bar, time_left};

/// A bar over `tasks` tasks, and what they are to be counted with; `None` where no terminal would
/// show it.
pub(super) fn start(tasks: u64) -> Option<(Bar, RunProgress)> {
    let progress = RunProgress::new();
    let watched = progress.clone();
    let bar = Bar::start(move |elapsed| look(watched.done(), tasks, elapsed))?;
    Some((bar, progress))
}

fn look(done: u64, tasks: u64, elapsed: Duration) -> (f64, String) {
    let done = done.min(tasks);
    let share = done as f64 / tasks.max(1) as f64;
    (share, format!("{done} of {tasks} tasks, {}", time_left(share, elapsed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_counted() {
        let (share, words) = look(500, 1000, Duration::from_secs(2));
        assert_eq!((share, words.as_str()), (0.5, "500 of 1000 tasks, 2 s left"));
        assert!(look(7, 5, Duration::ZERO).1.starts_with("5 of 5 tasks"));
        assert_eq!(look(0, 0, Duration::ZERO).0, 0.0);
    }
}
