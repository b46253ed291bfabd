//! What the suite found.

use std::fmt;
use std::time::Duration;

use syncline_device::DeviceSpec;

/// How one case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Passed,
    /// The device cannot do what the case needs.
    Skipped(String),
    /// It does not hold.
    Failed(String),
}

/// One case and how it ended.
#[derive(Clone, Debug)]
pub struct CaseReport {
    /// `group/name`.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// All cases that ran on one device.
#[derive(Clone, Debug)]
pub struct Report {
    /// The device.
    pub device: DeviceSpec,
    /// The cases, in the order in which they ran.
    pub cases: Vec<CaseReport>,
}

impl Report {
    pub(super) fn new(device: DeviceSpec) -> Self {
        Self { device, cases: Vec::new() }
    }

    pub(super) fn add(&mut self, case: CaseReport) {
        self.cases.push(case);
    }

    /// How many cases passed.
    pub fn passed(&self) -> usize {
        self.cases.iter().filter(|case| case.outcome == Outcome::Passed).count()
    }

    /// The cases that were skipped, with the reasons.
    pub fn skipped(&self) -> impl Iterator<Item = (&str, &str)> {
        self.cases.iter().filter_map(|case| match &case.outcome {
            Outcome::Skipped(reason) => Some((case.name.as_str(), reason.as_str())),
            _ => None,
        })
    }

    /// The cases that failed, with what was found.
    pub fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.cases.iter().filter_map(|case| match &case.outcome {
            Outcome::Failed(why) => Some((case.name.as_str(), why.as_str())),
            _ => None,
        })
    }

    /// Whether nothing failed.
    pub fn is_success(&self) -> bool {
        self.failed().next().is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (skipped, failed) = (self.skipped().count(), self.failed().count());
        let (device, passed) = (self.device, self.passed());
        write!(f, "{device}: {passed} passed, {skipped} skipped, {failed} failed")?;
        for (name, reason) in self.skipped() {
            write!(f, "\n  skipped {name}: {reason}")?;
        }
        for (name, why) in self.failed() {
            write!(f, "\n  FAILED  {name}: {why}")?;
        }
        Ok(())
    }
}
