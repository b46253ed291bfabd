//! `syncline run --watch`: what the workers do while a program runs.
//!
//! On a terminal a few lines that are drawn again and again; elsewhere a plain line now and then.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use syncline::program::{RunProgress, WorkerProgress};
use syncline_files::one_line;

use crate::bar::{columns, time_left};
use crate::units;

/// Between two drawings on a terminal, and between two plain lines.
const DRAW: Duration = Duration::from_millis(200);
const LINE: Duration = Duration::from_secs(1);
/// Workers that have a line of their own.
const WORKERS_SHOWN: usize = 16;
const WIDTH: usize = 20;

/// A view that a thread of its own draws until it is dropped; the last state stays.
pub(super) struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches `progress` over `tasks` tasks.
    pub(super) fn start(progress: RunProgress, tasks: u64) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let is_terminal = io::stderr().is_terminal();
            let step = if is_terminal { DRAW } else { LINE };
            let mut view = View { progress, tasks, began: Instant::now(), before: None, drawn: 0 };
            loop {
                let ended = stopped.recv_timeout(step) != Err(RecvTimeoutError::Timeout);
                let state = view.state();
                match is_terminal {
                    true => view.draw(&state),
                    false => say(&state.line()),
                }
                if ended {
                    return;
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A view that cannot be drawn is no reason to fail.
            let _ = thread.join();
        }
    }
}

struct View {
    progress: RunProgress,
    tasks: u64,
    began: Instant,
    /// When the last state was taken, and what it was.
    before: Option<(Duration, u64, Vec<WorkerProgress>)>,
    drawn: usize,
}

/// What there is to show at one moment.
struct State {
    elapsed: Duration,
    done: u64,
    tasks: u64,
    /// Since the state before.
    per_second: f64,
    failed: u64,
    memory_bytes: u64,
    workers: Vec<WorkerState>,
}

struct WorkerState {
    name: String,
    tasks: u64,
    /// The share of the time since the state before that it spent in bodies.
    busy: f64,
    running: Option<String>,
}

impl View {
    fn state(&mut self) -> State {
        let (elapsed, done) = (self.began.elapsed(), self.progress.done().min(self.tasks));
        let workers = self.progress.workers();
        let (then, was, known) = self.before.take().unwrap_or_default();
        let seconds = (elapsed - then).as_secs_f64().max(1e-6);
        let shown = workers.iter().enumerate().map(|(at, worker)| {
            let busy = known.get(at).map_or(Duration::ZERO, |known| known.busy);
            WorkerState {
                name: worker.name.clone(),
                tasks: worker.tasks,
                busy: ((worker.busy - busy.min(worker.busy)).as_secs_f64() / seconds).min(1.0),
                running: worker.running.as_deref().map(str::to_owned),
            }
        });
        let state = State {
            elapsed,
            done,
            tasks: self.tasks,
            per_second: done.saturating_sub(was) as f64 / seconds,
            failed: self.progress.failed(),
            memory_bytes: resident_bytes(),
            workers: shown.collect(),
        };
        self.before = Some((elapsed, done, workers));
        state
    }

    /// In place of the lines before.
    fn draw(&mut self, state: &State) {
        let width = columns().saturating_sub(1);
        let mut text = String::new();
        if self.drawn > 0 {
            text += &format!("\x1b[{}A", self.drawn);
        }
        let lines = state.lines();
        for line in &lines {
            let line: String = one_line(line).chars().take(width).collect();
            text += &format!("\r{line}\x1b[K\n");
        }
        self.drawn = lines.len();
        let mut out = io::stderr().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

impl State {
    /// All that does not belong to one worker.
    fn head(&self) -> String {
        let share = self.done as f64 / self.tasks.max(1) as f64;
        let left = match time_left(share, self.elapsed) {
            left if left.is_empty() => left,
            left => format!(", {left}"),
        };
        let Self { done, tasks, per_second, failed, .. } = self;
        let memory = units::bytes(self.memory_bytes);
        format!(
            "{done} of {tasks} tasks, {}/s{left}; memory {memory}; failures {failed}",
            rate(*per_second)
        )
    }

    /// For a terminal: a line for the run, and one for each worker.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.head()];
        for worker in self.workers.iter().take(WORKERS_SHOWN) {
            let full = (worker.busy * WIDTH as f64).round() as usize;
            let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full));
            let (busy, running) = (worker.busy * 100.0, worker.running.as_deref().unwrap_or(""));
            lines.push(format!(
                "{:<18} [{bar}] {busy:3.0}%  {:>9} tasks  {running}",
                worker.name, worker.tasks
            ));
        }
        if self.workers.len() > WORKERS_SHOWN {
            lines.push(format!("and {} more workers", self.workers.len() - WORKERS_SHOWN));
        }
        lines
    }

    /// For a file: everything in one line.
    fn line(&self) -> String {
        let busy: Vec<String> =
            self.workers.iter().map(|worker| format!("{:.0}%", worker.busy * 100.0)).collect();
        let workers = match busy.is_empty() {
            true => String::new(),
            false => format!("; workers busy {}", busy.join(" ")),
        };
        format!("{:.1} s: {}{workers}", self.elapsed.as_secs_f64(), self.head())
    }
}

fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e6 => format!("{:.2}M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1}k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

/// Memory of this process that is present.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", one_line(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_one_line_or_one_for_each_worker() {
        let worker = |name: &str, busy, running: Option<&str>| WorkerState {
            name: name.to_owned(),
            tasks: 40,
            busy,
            running: running.map(str::to_owned),
        };
        let state = State {
            elapsed: Duration::from_secs(2),
            done: 100,
            tasks: 400,
            per_second: 2_500.0,
            failed: 1,
            memory_bytes: 3 << 20,
            workers: vec![worker("w0", 0.5, Some("gemm")), worker("w1", 1.0, None)],
        };
        let head = "100 of 400 tasks, 2.5k/s, 6 s left; memory 3.00 MiB; failures 1";
        assert_eq!(state.line(), format!("2.0 s: {head}; workers busy 50% 100%"));
        let lines = state.lines();
        assert_eq!((lines.len(), lines[0].as_str()), (3, head));
        assert!(lines[1].contains("[##########----------]  50%"), "{}", lines[1]);
        assert!(lines[1].ends_with("40 tasks  gemm"), "{}", lines[1]);
    }
}
