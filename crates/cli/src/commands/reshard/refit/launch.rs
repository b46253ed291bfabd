//! Starting the PEs of a group, and ending them all if one cannot go on.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use syncline_reshard::transport::local;

use super::pe::{PeReport, Setup};

/// Every PE on a thread of this process.
pub(super) fn threads(setup: &Setup) -> Result<Vec<PeReport>, String> {
    let options = local::Options { depth: setup.depth, slot_bytes: setup.slot_bytes };
    let endpoints = local::group(setup.pes, &options).map_err(|error| error.to_string())?;
    std::thread::scope(|scope| {
        let start = |endpoint| scope.spawn(|| setup.run(endpoint));
        let threads: Vec<_> = endpoints.into_iter().map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a PE has panicked".to_owned()))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Every PE in a process of its own: this program again, with the same arguments and a rank.
pub(super) fn processes(setup: &Setup) -> Result<Vec<PeReport>, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let name = format!("refit-{}", std::process::id());
    let start = |rank: usize| {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).args([
            "--join",
            &name,
            "--rank",
            &rank.to_string(),
        ]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        child.map(Process).map_err(|error| format!("PE {rank} cannot be started: {error}"))
    };
    let mut started = (0..setup.pes).map(start).collect::<Result<Vec<_>, _>>()?;
    // Every PE has its own deadlines; this one is for a PE that does not even get to them.
    let limit = Instant::now() + setup.timeout.saturating_mul(setup.repeat as u32 + 4);
    started.iter_mut().map(|process| process.report(limit)).collect()
}

/// A process that does not outlive the command.
struct Process(Child);

impl Process {
    fn report(&mut self, limit: Instant) -> Result<PeReport, String> {
        let status = loop {
            match self.0.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() >= limit => return Err("a PE does not end".to_owned()),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(format!("a PE cannot be waited for: {error}")),
            }
        };
        let read = |pipe: Option<&mut dyn Read>| {
            let mut text = String::new();
            // What cannot be read is as good as not said.
            let _ = pipe.map(|pipe| pipe.read_to_string(&mut text));
            text
        };
        let output = read(self.0.stdout.as_mut().map(|pipe| pipe as &mut dyn Read));
        let errors = read(self.0.stderr.as_mut().map(|pipe| pipe as &mut dyn Read));
        match PeReport::parse(&output) {
            Some(report) if status.success() => Ok(report),
            _ if errors.trim().is_empty() => Err(format!("a PE ended with {status}")),
            _ => Err(errors.trim().trim_start_matches("syncline: ").to_owned()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already in the ordinary case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
