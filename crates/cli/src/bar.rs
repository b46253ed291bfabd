//! A bar that shows how far something is, on terminals only.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use syncline_files::one_line;
use syncline_sync::lock;

use crate::output::is_quiet;

/// Time before a bar appears, so that short work shows none, and between two updates.
const STEP: Duration = Duration::from_millis(100);
const WIDTH: usize = 24;
/// Where the terminal does not say.
const COLUMNS: usize = 80;

/// A bar that a thread of its own draws again and again until it is dropped.
pub(crate) struct Bar {
    /// Closing it ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Bar {
    /// A bar that shows what `look` sees after some time: the share that is done, and words for it.
    /// `None` where standard error is no terminal.
    pub(crate) fn start(look: impl Fn(Duration) -> (f64, String) + Send + 'static) -> Option<Self> {
        if is_quiet() || !std::io::stderr().is_terminal() {
            return None;
        }
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            let mut is_shown = false;
            while stopped.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) {
                let (share, words) = look(start.elapsed());
                draw(&line(share, &words, columns()));
                is_shown = true;
            }
            if is_shown {
                draw("");
            }
        });
        Some(Self { stop: Some(stop), thread: Some(thread) })
    }
}

/// A bar over steps of unknown lengths: how many of them are done, and the name of the next.
pub(crate) struct Steps {
    at: Arc<Mutex<(usize, String)>>,
    _bar: Option<Bar>,
}

impl Steps {
    /// A bar over `count` steps, shown until it is dropped.
    pub(crate) fn start(count: usize, first: &str) -> Self {
        let at = Arc::new(Mutex::new((0, first.to_owned())));
        let watched = at.clone();
        let bar = Bar::start(move |elapsed| {
            let (done, name) = lock(&watched).clone();
            let seconds = elapsed.as_secs();
            (done as f64 / count.max(1) as f64, format!("{name}, {seconds} s"))
        });
        Self { at, _bar: bar }
    }

    /// A step is done, and this one begins.
    pub(crate) fn next(&self, name: &str) {
        let mut at = lock(&self.at);
        *at = (at.0 + 1, name.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A bar that cannot be drawn is no reason to fail.
            let _ = thread.join();
        }
    }
}

/// In place of the line before, whose rest is cleared.
fn draw(line: &str) {
    let mut out = std::io::stderr().lock();
    let _ = write!(out, "\r{line}\x1b[K").and_then(|()| out.flush());
}

/// How wide the terminal is.
pub(crate) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.map(|size| size.ws_col.into()).ok().filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}

/// `[############------------]  50%  500 of 1000 tasks, 2 s left`, cut where it would not fit: what
/// runs over the edge cannot be drawn over.
fn line(share: f64, words: &str, columns: usize) -> String {
    let share = share.clamp(0.0, 1.0);
    let full = (share * WIDTH as f64) as usize;
    let (full, rest) = ("#".repeat(full), "-".repeat(WIDTH - full));
    let line = format!("[{full}{rest}] {:3.0}%  {words}", (share * 100.0).floor());
    one_line(&line).chars().take(columns.saturating_sub(1)).collect()
}

/// How long the rest takes if it goes on as it did: `5 s left`, `12 min left`, and nothing as long
/// as nothing is known.
pub(crate) fn time_left(share: f64, elapsed: Duration) -> String {
    if share <= 0.0 {
        return String::new();
    }
    let seconds = elapsed.as_secs_f64() * (1.0 - share.min(1.0)) / share;
    match seconds {
        0.0..100.0 => format!("{seconds:.0} s left"),
        100.0..6000.0 => format!("{:.0} min left", seconds / 60.0),
        _ => format!("{:.0} h left", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share_and_never_wider_than_the_terminal() {
        let half = line(0.5, "500 of 1000 tasks", 80);
        assert_eq!(half.matches('#').count(), WIDTH / 2, "{half}");
        assert!(half.ends_with("  50%  500 of 1000 tasks"), "{half}");
        assert!(line(1.4, "", 80).contains("] 100%"));
        // Not yet all of it.
        assert!(line(0.9999, "", 80).contains("]  99%"));
        assert_eq!(line(0.5, "words", 20).chars().count(), 19);
    }

    #[test]
    fn time_left_is_told_in_fitting_units() {
        let left = |share, seconds| time_left(share, Duration::from_secs(seconds));
        assert_eq!(left(0.5, 2), "2 s left");
        assert_eq!(left(0.1, 100), "15 min left");
        assert_eq!(left(0.01, 1000), "28 h left");
        assert_eq!((left(0.0, 9), left(1.0, 9)), (String::new(), "0 s left".to_owned()));
    }
}
