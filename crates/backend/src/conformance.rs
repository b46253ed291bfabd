//! One suite for every device: what passes it can be used by everything above.
//!
//! A case that needs what a device cannot do is skipped, with the reason. Every wait in the suite
//! has a deadline, so that a device that loses a wake-up fails instead of hanging.
//!
//! ```
//! use syncline_backend::conformance::Suite;
//! use syncline_device::cpu::{CpuDevice, CpuOptions};
//!
//! let device = CpuDevice::open(CpuOptions::new(0).compute_lanes(2))?;
//! let report = Suite::new().only("timeline").run(&device);
//! assert!(report.is_success(), "{report}");
//! # Ok::<(), syncline_device::DeviceError>(())
//! ```

mod bench;
mod between;
mod callbacks;
mod copies;
mod dispatch;
mod failure;
mod kernels;
mod memory;
mod order;
mod recordings;
mod report;
mod stress;
mod timeline;

use std::sync::Arc;
use std::time::Instant;

use bench::{Bench, Fault};
pub use report::{CaseReport, Outcome, Report};

use syncline_device::{Device, Kernel};

/// One case: what must hold, as a name, and the check.
struct Case {
    name: &'static str,
    check: fn(&Bench<'_>) -> Result<(), Fault>,
}

/// A list of cases named after their functions.
macro_rules! cases {
    ($($check:ident),* $(,)?) => {
        pub(super) const CASES: &[super::Case] =
            &[$(super::Case { name: stringify!($check), check: $check }),*];
    };
}
use cases;

/// The groups of cases, in the order in which they run: each builds on those before.
const GROUPS: &[(&str, &[Case])] = &[
    ("timeline", timeline::CASES),
    ("memory", memory::CASES),
    ("order", order::CASES),
    ("copies", copies::CASES),
    ("dispatch", dispatch::CASES),
    ("recordings", recordings::CASES),
    ("between", between::CASES),
    ("failure", failure::CASES),
    ("callbacks", callbacks::CASES),
    ("stress", stress::CASES),
];

/// The conformance suite, and how thoroughly to run it.
#[derive(Debug, Default)]
pub struct Suite {
    thorough: bool,
    only: Option<String>,
    kernels: Vec<Kernel>,
}

impl Suite {
    /// All cases, with sizes and rounds that take a few seconds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also buffers of a gigabyte and hundreds of thousands of rounds.
    #[must_use]
    pub fn thorough(mut self) -> Self {
        self.thorough = true;
        self
    }

    /// Only cases whose `group/name` contains `text`.
    #[must_use]
    pub fn only(mut self, text: &str) -> Self {
        self.only = Some(text.to_owned());
        self
    }

    /// Uses `kernel` in the place of the suite's own of the same name, which runs on the CPU only:
    /// `add_one` (`f32`, in place), `scale` (`f32`, in place, by a scalar), `add` (two `f32`
    /// inputs, one output).
    #[must_use]
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernels.push(kernel);
        self
    }

    /// The names of all cases, as `group/name`.
    pub fn names() -> Vec<String> {
        let names = |(group, cases): &(&str, &'static [Case])| {
            let group = group.to_string();
            cases.iter().map(move |case| format!("{group}/{}", case.name)).collect::<Vec<_>>()
        };
        GROUPS.iter().flat_map(names).collect()
    }

    /// Runs the suite on `device`. Nothing else should use it meanwhile.
    pub fn run(&self, device: &Arc<dyn Device>) -> Report {
        let mut report = Report::new(device.spec());
        for (group, cases) in GROUPS {
            for case in *cases {
                let name = format!("{group}/{}", case.name);
                if self.only.as_ref().is_none_or(|text| name.contains(text.as_str())) {
                    report.add(self.run_case(device, name, case));
                }
            }
        }
        report
    }

    fn run_case(&self, device: &Arc<dyn Device>, name: String, case: &Case) -> CaseReport {
        let began = Instant::now();
        let result = syncline_device::guarded(|| {
            let bench = Bench::new(device, &self.kernels, self.thorough)?;
            let result = (case.check)(&bench);
            bench.finish()?;
            result
        });
        let outcome = match result {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(Fault::Skip(reason))) => Outcome::Skipped(reason),
            Ok(Err(Fault::Fail(why))) => Outcome::Failed(why),
            Err(text) => Outcome::Failed(format!("panicked: {text}")),
        };
        CaseReport { name, outcome, took: began.elapsed() }
    }
}
