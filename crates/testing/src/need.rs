//! What a test needs from its machine: drivers, programs, rights.

use std::fmt::Display;
use std::io::Write;
use std::process::Command;

/// Variables that say that the tests run in CI.
const VARIABLES: [&str; 2] = ["CI", "SYNCLINE_CI"];

/// Returns `true` where a test must fail if its machine lacks something: in CI.
///
/// That is where `CI` or `SYNCLINE_CI` is set, and is neither empty nor `0` nor `false`.
pub fn is_ci() -> bool {
    VARIABLES.iter().any(|name| means_yes(&std::env::var(name).unwrap_or_default()))
}

fn means_yes(value: &str) -> bool {
    !["", "0", "false"].contains(&value)
}

/// Returns `found`, or `None` where the test is to be skipped because `what` is missing.
///
/// The skip is reported on standard error, past the capture of the test harness.
///
/// ```
/// let text = str::from_utf8(b"text");
/// let Some(text) = syncline_testing::need("text in UTF-8", text) else { return };
/// assert_eq!(text, "text");
/// ```
///
/// # Panics
/// Where it is missing in CI: a suite that skips there tests nothing.
#[track_caller]
pub fn need<T>(what: &str, found: Result<T, impl Display>) -> Option<T> {
    let reason = match found {
        Ok(found) => return Some(found),
        Err(reason) => reason,
    };
    let thread = std::thread::current();
    let line = format!("{} needs {what}: {reason}", thread.name().unwrap_or("this test"));
    assert!(!is_ci(), "{line}; CI must have it");
    // A test cannot do more than try to say it.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {line}");
    None
}

/// Runs `command` to its end. Returns what it wrote to standard error if it cannot be run or fails.
pub fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(said()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_returned() {
        assert_eq!(need("a number", Ok::<_, String>(3)), Some(3));
    }

    #[test]
    fn values_that_mean_no_are_no_ci() {
        assert!(["true", "1", "yes"].into_iter().all(means_yes));
        assert!(!["", "0", "false"].into_iter().any(means_yes));
    }

    /// Runs in a process of its own for each answer, since the environment is the process's.
    #[test]
    fn what_is_missing_fails_in_ci_and_is_skipped_elsewhere() {
        const INSIDE: &str = "SYNCLINE_TEST_NEED";
        const NAME: &str = "need::tests::what_is_missing_fails_in_ci_and_is_skipped_elsewhere";
        if std::env::var_os(INSIDE).is_some() {
            assert_eq!(need("a unicorn", Err::<(), _>("there are none")), None);
            return;
        }
        for (name, value, passes) in
            [("CI", "true", false), ("SYNCLINE_CI", "1", false), ("CI", "false", true)]
        {
            let mut inside = Command::new(std::env::current_exe().unwrap());
            for name in VARIABLES {
                inside.env_remove(name);
            }
            let output = inside.args(["--exact", NAME]).env(INSIDE, "1").env(name, value).output();
            let output = output.unwrap();
            assert_eq!(output.status.success(), passes, "{name}={value}");
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(said.contains("needs a unicorn: there are none"), "{said}");
            assert_eq!(said.contains("SKIPPED: "), passes, "{said}");
        }
    }
}
