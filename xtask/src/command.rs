//! Running other programs, and saying which one failed.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The platform that sanitizers are built for: named, so that build scripts are built without them.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Environment variables of a program.
pub type Environment<'a> = &'a [(&'a str, &'a str)];

/// Returns cargo, the one that runs this task.
pub fn cargo_command() -> Command {
    Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
}

/// Runs cargo with more environment.
pub fn cargo(arguments: &[&str], environment: Environment<'_>) -> Result<(), String> {
    run(cargo_command().args(arguments).envs(environment.iter().copied()))
}

/// Runs a command to its end; an error says what was run.
pub fn run(command: &mut Command) -> Result<(), String> {
    let shown = shown(command);
    eprintln!("+ {shown}");
    match status(command) {
        Ok(None) => Err(format!("{shown}: {STOPPED}")),
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(format!("{shown}: {status}")),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

/// What the error of a command ends with that [`within`] has stopped.
pub const STOPPED: &str = "stopped at its bound";

/// When commands that run are stopped.
static UNTIL: Mutex<Option<Instant>> = Mutex::new(None);

fn until() -> std::sync::MutexGuard<'static, Option<Instant>> {
    UNTIL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `run`, and stops the commands that it runs after `bound`.
pub fn within<T>(bound: Option<Duration>, run: impl FnOnce() -> T) -> T {
    *until() = bound.map(|bound| Instant::now() + bound);
    let result = run();
    *until() = None;
    result
}

/// How `command` ended; `None` if it was stopped, with all that it started.
fn status(command: &mut Command) -> std::io::Result<Option<ExitStatus>> {
    let Some(until) = *until() else { return command.status().map(Some) };
    let mut child = command.process_group(0).spawn()?;
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let group = format!("-{}", child.id());
    for signal in ["-TERM", "-KILL"] {
        Command::new("kill").args([signal, "--", &group]).status()?;
        std::thread::sleep(Duration::from_secs(2));
    }
    child.wait()?;
    Ok(None)
}

/// Runs a command to its end and returns what it printed; its errors go where ours do.
pub fn output(command: &mut Command) -> Result<String, String> {
    let shown = shown(command);
    eprintln!("+ {shown}");
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{shown}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{shown}: {}", output.status)),
    }
}

/// Whether a command runs and succeeds; what it prints is dropped.
pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

fn shown(command: &Command) -> String {
    format!("{command:?}").replace('"', "")
}
