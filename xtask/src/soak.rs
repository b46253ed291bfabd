//! `cargo xtask soak [--minutes N]`: what takes too long for every change, part by part,
//! unattended.

use std::time::Duration;

use crate::command::{self, cargo};
use crate::steps::{Steps, note};
use crate::{fuzz, memory, nextest, setup, test};

/// How long all parts take at full size on two cores, about: the scale of `--minutes`.
const MINUTES_IN_FULL: f64 = 300.0;

/// How large the parts are.
struct Size {
    minutes: Option<f64>,
}

impl Size {
    /// Returns how many of `full` rounds, seeds or seconds to do; at least one.
    fn of(&self, full: u64) -> u64 {
        let scale = self.minutes.map_or(1.0, |minutes| minutes / MINUTES_IN_FULL);
        ((full as f64 * scale.min(1.0)) as u64).max(1)
    }

    /// The same, as an argument.
    fn count(&self, full: u64) -> String {
        self.of(full).to_string()
    }

    /// Returns the time that a part may take which has so many hundredths of the whole.
    fn bound(&self, share: u32) -> Option<Duration> {
        let minutes = self.minutes? * f64::from(share) / 100.0;
        Some(Duration::from_secs_f64(minutes * 60.0).max(Duration::from_secs(10)))
    }
}

/// A part: its name, its hundredths of the whole, and what it does.
type Part = (&'static str, u32, fn(&Size) -> Result<(), String>);

/// Builds are not bounded, and come first.
const PARTS: &[Part] = &[
    ("timelines", 4, |size| example("syncline-device", "ping_pong", &[&size.count(5_000_000)])),
    ("conformance", 10, |_| conformance(&[])),
    ("conformance-staged", 10, |_| conformance(&["--staged", "vulkan:0", "opencl:0"])),
    ("conformance-parts", 10, |_| conformance(&["--parts", "2", "opencl:0", "opencl:1"])),
    ("streams", 4, |size| example("syncline-runtime", "stream_soak", &[&size.count(100_000_000)])),
    ("kills", 6, |size| example("syncline-reshard", "kill_soak", &[&size.count(500)])),
    ("models", 10, |size| test::models(&[("SYNCLINE_SCHEDULES", &size.count(20_000))])),
    ("ignored", 6, |_| tests(&["--run-ignored", "only"], &[])),
    ("waits", 6, |size| {
        let waits = ["--package", "syncline-plan", "-E", "test(no_wait_can_be_dropped)"];
        tests(&waits, &[("SYNCLINE_SEEDS", &size.count(20_000))])
    }),
    ("uninitialized", 4, |_| memory::oclgrind(memory::UNINITIALIZED)),
    ("seeds", 16, |size| tests(&["--workspace"], &[("SYNCLINE_SEEDS", &size.count(5_000))])),
    ("asan", 10, |size| memory::asan(size.of(200))),
    ("fuzz", 4, |size| fuzz::run(&[], Duration::from_secs(size.of(60)))),
];

/// Runs every part, those after a failing one too, and says how each went.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let minutes = match arguments {
        [] => None,
        ["--minutes", minutes] => match minutes.parse::<f64>() {
            Ok(minutes) if minutes > 0.0 && minutes.is_finite() => Some(minutes),
            _ => return Err(format!("--minutes {minutes}: expected a number above zero")),
        },
        other => return Err(format!("{}: expected --minutes N", other.join(" "))),
    };
    let size = Size { minutes };
    let mut steps = Steps::new(&[]);
    steps.step("build", build);
    for (name, share, part) in PARTS {
        let bound = size.bound(*share);
        steps.step(name, || match command::within(bound, || part(&size)) {
            Err(message) if message.ends_with(command::STOPPED) => {
                note(format!("{name} was stopped at its bound; nothing had failed by then"));
                Ok(())
            }
            result => result,
        });
    }
    steps.finish()
}

/// The packages and their examples that parts run.
const EXAMPLES: &[(&str, &str)] = &[
    ("syncline-device", "ping_pong"),
    ("syncline", "conformance"),
    ("syncline-runtime", "stream_soak"),
    ("syncline-reshard", "kill_soak"),
];

fn build() -> Result<(), String> {
    for (package, example) in EXAMPLES {
        cargo(&["build", "--release", "--package", package, "--example", example], &[])?;
    }
    cargo(&["nextest", "run", "--workspace", "--release", "--no-run"], &[])?;
    memory::build()?;
    fuzz::build()
}

fn example(package: &str, name: &str, arguments: &[&str]) -> Result<(), String> {
    let run = ["run", "--release", "--package", package, "--example", name, "--"];
    cargo(&[&run[..], arguments].concat(), &[])
}

fn conformance(arguments: &[&str]) -> Result<(), String> {
    example("syncline", "conformance", &[&["--thorough"], arguments].concat())
}

fn tests(arguments: &[&str], environment: command::Environment<'_>) -> Result<(), String> {
    let python = setup::python().map(|path| path.display().to_string());
    let mut all = environment.to_vec();
    all.extend(python.iter().map(|path| ("SYNCLINE_PYTHON", path.as_str())));
    nextest::run("soak", "target", &[&["--release"], arguments].concat(), &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_the_minutes() {
        assert_eq!(PARTS.iter().map(|(_, share, _)| share).sum::<u32>(), 100);
        let size = Size { minutes: Some(30.0) };
        assert_eq!((size.of(5_000), size.of(3)), (500, 1));
        assert_eq!(size.bound(10), Some(Duration::from_secs(180)));
        assert_eq!(Size { minutes: None }.of(5_000), 5_000);
    }
}
