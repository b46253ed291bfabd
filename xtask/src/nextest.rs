//! Running tests, and saying at the end which of them passed only when tried again.

use crate::command::{Environment, cargo};
use crate::steps::{is_ci, note};

/// The profile of `.config/nextest.toml` for a run of all tests.
pub fn profile() -> &'static str {
    if is_ci() { "ci" } else { "default" }
}

/// Runs tests with `profile`; its report lies in `target_folder`.
pub fn run(
    profile: &str,
    target_folder: &str,
    arguments: &[&str],
    environment: Environment<'_>,
) -> Result<(), String> {
    let report = format!("{target_folder}/nextest/{profile}/junit.xml");
    let _ = std::fs::remove_file(&report);
    let result =
        cargo(&[&["nextest", "run", "--profile", profile], arguments].concat(), environment);
    for test in flaky(&std::fs::read_to_string(report).unwrap_or_default()) {
        note(format!("FLAKY: {test} failed and passed when tried again. A flaky test is a bug."));
    }
    result
}

/// Returns the names of tests that a report calls flaky.
fn flaky(report: &str) -> impl Iterator<Item = String> {
    let cases = report.split("<testcase ").skip(1);
    let is_flaky = |case: &&str| case.contains("<flakyFailure") || case.contains("<flakyError");
    let attribute = |case: &str, name: &str| {
        let start = case.find(&format!("{name}=\"")).map(|at| at + name.len() + 2);
        let rest = start.map_or("", |start| &case[start..]);
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    cases
        .filter(is_flaky)
        .map(move |case| format!("{} {}", attribute(case, "classname"), attribute(case, "name")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_passed_the_second_time_are_named() {
        let report = r#"<testsuites><testsuite name="syncline-device::it">
            <testcase name="good" classname="syncline-device::it" time="0.1"></testcase>
            <testcase name="races::bad" classname="syncline-device::it" time="0.1">
              <flakyFailure type="test failure">...</flakyFailure></testcase>
            <testcase name="worse" classname="x"><failure/></testcase></testsuite></testsuites>"#;
        assert_eq!(flaky(report).collect::<Vec<_>>(), ["syncline-device::it races::bad"]);
    }
}
