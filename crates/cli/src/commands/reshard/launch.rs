//! Starting the PEs of a group as processes of this program, and ending them all if one cannot go
//! on.
//!
//! The program starts itself once for each PE, with the arguments that it was given and a [`Role`].
//! A PE prints lines: what it has to say on the way, and at last its report. A PE that ends
//! otherwise than well is given as the reason why the group ended, before what the others say about
//! its absence.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use syncline::transport::{Endpoint, Wait, shm};
use syncline_files::this_program;

/// How long PEs may go on after one has failed: their transport tells them long before.
const GRACE: Duration = Duration::from_secs(2);

/// Which PE of which group this process is, for the processes that this program starts.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Role {
    /// The group to join.
    #[arg(long, hide = true, requires = "join_rank")]
    join: Option<String>,
    /// The rank to join as.
    #[arg(long, hide = true, requires = "join")]
    join_rank: Option<usize>,
    /// The process that started this one.
    #[arg(long, hide = true, requires = "join")]
    parent: Option<u32>,
}

impl Role {
    /// True if this process was started as a PE.
    pub(super) fn is_pe(&self) -> bool {
        self.join.is_some()
    }

    /// Joins the group as one of `pes`; from here on this process ends with the one that started
    /// it.
    pub(super) fn join(
        &self,
        pes: usize,
        options: &shm::Options,
        timeout: Duration,
    ) -> Result<Endpoint, String> {
        let (Some(name), Some(rank)) = (&self.join, self.join_rank) else {
            return Err("this process was not started as a PE".to_owned());
        };
        // Without it, PEs would only notice at their deadline that no process reads their
        // reports.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        let is_parent = |parent| getppid() == Pid::from_raw(parent as i32);
        if !self.parent.is_none_or(is_parent) {
            return Err("the process that started this PE has ended".to_owned());
        }
        shm::join(name, rank, pes, options, &Wait::timeout(timeout))
            .map_err(|error| error.to_string())
    }
}

/// Starts `pes` processes and returns what each has printed, by rank, when all have ended well.
///
/// `hear` is told each line as it comes. At `limit` all are ended: PEs have deadlines of their own,
/// and this is for one that does not even get to them.
pub(super) fn processes(
    pes: usize,
    limit: Option<Instant>,
    mut hear: impl FnMut(usize, &str),
) -> Result<Vec<String>, String> {
    let parent = std::process::id();
    let name = format!("pes-{parent}");
    let (sender, events) = channel();
    let start = |rank: usize| {
        let mut command = this_program().map_err(|error| format!("this program: {error}"))?;
        command.args(crate::arguments()).args(["--join", &name]);
        command.args(["--join-rank", &rank.to_string(), "--parent", &parent.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Process::start(rank, command, &sender)
    };
    let started = (0..pes).map(start).collect::<Result<Vec<_>, _>>();
    drop(sender);
    let said = started.and_then(|started| Group { started, events, limit }.run(&mut hear));
    // All have ended by now; if that was before the group was complete, its file is still there.
    shm::sweep(&shm::Options::default().directory);
    said
}

/// A message about a PE.
enum Event {
    Line(usize, String),
    /// Both of its streams are closed; the second is what it printed to standard error.
    Closed(usize, String),
}

struct Group {
    started: Vec<Process>,
    events: Receiver<Event>,
    limit: Option<Instant>,
}

impl Group {
    fn run(mut self, hear: &mut dyn FnMut(usize, &str)) -> Result<Vec<String>, String> {
        let mut failures = Vec::new();
        let mut limit = self.limit;
        let mut running = self.started.len();
        while running > 0 {
            match self.next(limit) {
                Ok(Event::Line(rank, line)) => {
                    hear(rank, &line);
                    let said = &mut self.started[rank].said;
                    said.push_str(&line);
                    said.push('\n');
                }
                Ok(Event::Closed(rank, errors)) => {
                    running -= 1;
                    let status = self.started[rank].wait();
                    if let Some(failure) = Ended::new(rank, status, &errors) {
                        failures.push(failure);
                        let soon = Instant::now() + GRACE;
                        limit = Some(limit.map_or(soon, |limit| limit.min(soon)));
                    }
                }
                Err(RecvTimeoutError::Timeout) if failures.is_empty() => {
                    return Err("a PE does not end".to_owned());
                }
                // Processes still running are ended on drop.
                Err(_) => break,
            }
        }
        match Ended::cause(failures) {
            Some(cause) => Err(cause),
            None => Ok(self.started.iter_mut().map(|pe| std::mem::take(&mut pe.said)).collect()),
        }
    }

    fn next(&self, limit: Option<Instant>) -> Result<Event, RecvTimeoutError> {
        match limit {
            Some(limit) => {
                self.events.recv_timeout(limit.saturating_duration_since(Instant::now()))
            }
            None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }
}

/// A PE that did not end well.
struct Ended {
    was_killed: bool,
    message: String,
}

impl Ended {
    fn new(rank: usize, status: std::io::Result<ExitStatus>, errors: &str) -> Option<Self> {
        let said = errors.trim().trim_start_matches("syncline: ").to_owned();
        let (was_killed, message) = match status {
            Ok(status) if status.success() => return None,
            Ok(status) => match status.signal() {
                Some(signal) => (true, format!("PE {rank} was ended by signal {signal}")),
                None if said.is_empty() => (false, format!("PE {rank} ended with {status}")),
                None => (false, said),
            },
            Err(error) => (false, format!("PE {rank} cannot be waited for: {error}")),
        };
        Some(Self { was_killed, message })
    }

    /// Why the group ended: a PE that was killed, or else what the first to fail said.
    fn cause(failures: Vec<Self>) -> Option<String> {
        let at = failures.iter().position(|ended| ended.was_killed).unwrap_or(0);
        failures.into_iter().nth(at).map(|ended| ended.message)
    }
}

/// A process that does not outlive the command.
struct Process {
    child: Child,
    said: String,
}

impl Process {
    fn start(rank: usize, mut command: Command, events: &Sender<Event>) -> Result<Self, String> {
        let child = command.spawn();
        let mut child = child.map_err(|error| format!("PE {rank} cannot be started: {error}"))?;
        let (output, mut errors) = (child.stdout.take(), child.stderr.take());
        // A pipe that is not read would stop the PE when it is full.
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            // What cannot be read is as good as not said.
            let _ = errors.as_mut().map(|pipe| pipe.read_to_string(&mut text));
            text
        });
        let events = events.clone();
        std::thread::spawn(move || {
            let lines = output.into_iter().flat_map(|pipe| BufReader::new(pipe).lines());
            for line in lines.map_while(Result::ok) {
                // The channel is closed once the group has failed.
                let _ = events.send(Event::Line(rank, line));
            }
            let errors = errors.join().unwrap_or_default();
            let _ = events.send(Event::Closed(rank, errors));
        });
        Ok(Self { child, said: String::new() })
    }

    /// Both streams are closed: it has ended, or is about to.
    fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already in the ordinary case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(was_killed: bool, message: &str) -> Ended {
        Ended { was_killed, message: message.to_owned() }
    }

    #[test]
    fn a_killed_pe_is_the_cause_whoever_spoke_first() {
        let all = vec![ended(false, "PE 2 has died"), ended(true, "PE 2 was ended by signal 9")];
        assert_eq!(Ended::cause(all).as_deref(), Some("PE 2 was ended by signal 9"));
        let all = vec![ended(false, "no such file"), ended(false, "PE 0 has left")];
        assert_eq!(Ended::cause(all).as_deref(), Some("no such file"));
        assert_eq!(Ended::cause(Vec::new()), None);
    }
}
