//! Steps of a long task: each is timed, a failing one does not stop the others, and the end says
//! how each went.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Messages that are repeated at the end.
static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Steps that have run.
pub struct Steps {
    began: Instant,
    /// Only steps of these names run; all if there are none.
    only: Vec<String>,
    done: Vec<(String, Duration, Result<(), String>)>,
}

impl Steps {
    /// Returns a list without steps, which takes those named in `only`; all if none are named.
    pub fn new(only: &[&str]) -> Self {
        let only = only.iter().map(|&name| name.to_owned()).collect();
        Self { began: Instant::now(), only, done: Vec::new() }
    }

    /// Runs a step, unless others were asked for.
    pub fn step(&mut self, name: &str, run: impl FnOnce() -> Result<(), String>) {
        if !self.only.is_empty() && !self.only.iter().any(|only| only == name) {
            return;
        }
        eprintln!("\n== {name} ==");
        let began = Instant::now();
        let result = run();
        let took = began.elapsed();
        match &result {
            Ok(()) => eprintln!("== {name}: ok in {} ==", shown(took)),
            Err(message) => eprintln!("== {name}: FAILED in {}: {message} ==", shown(took)),
        }
        self.done.push((name.to_owned(), took, result));
    }

    /// Prints how long each step took and how it ended. Fails where one of them did.
    pub fn finish(self) -> Result<(), String> {
        if self.done.is_empty() {
            return Err(format!("no step is called {}", self.only.join(" or ")));
        }
        eprintln!("\nstep                      took  result");
        let mut failed = Vec::new();
        for (name, took, result) in &self.done {
            let said = result.as_ref().err().map_or("ok".to_owned(), |error| {
                failed.push(name.as_str());
                format!("FAILED: {}", error.lines().next().unwrap_or_default())
            });
            eprintln!("{name:<22} {:>7}  {said}", shown(*took));
        }
        eprintln!("{:<22} {:>7}", "in all", shown(self.began.elapsed()));
        for note in NOTES.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            eprintln!("{note}");
        }
        match &failed[..] {
            [] => Ok(()),
            failed => Err(format!("failed: {}", failed.join(", "))),
        }
    }
}

/// Says something now and at the end.
pub fn note(text: String) {
    eprintln!("{text}");
    NOTES.lock().unwrap_or_else(PoisonError::into_inner).push(text);
}

/// Reports that `what` is missing: an error in CI, elsewhere a skip that is said again at the end.
pub fn skip(what: &str) -> Result<(), String> {
    if is_ci() {
        return Err(format!("{what}; CI must have it"));
    }
    note(format!("SKIPPED: {what}"));
    Ok(())
}

/// Returns `true` where nothing may be skipped; the rule of `syncline_testing::is_ci`.
pub fn is_ci() -> bool {
    ["CI", "SYNCLINE_CI"].iter().any(|name| {
        std::env::var(name).is_ok_and(|value| !["", "0", "false"].contains(&value.as_str()))
    })
}

fn shown(took: Duration) -> String {
    format!("{}:{:02}", took.as_secs() / 60, took.as_secs() % 60)
}
