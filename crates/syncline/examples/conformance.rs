//! Runs the conformance suite on devices and prints what it found.
//!
//! ```text
//! cargo run --release -p syncline --example conformance --
//!     [--thorough] [--staged] [--parts N] [--only TEXT] [DEVICE ...]
//! ```
//!
//! Without a device, runs on all that are found. `--staged` treats memory as if the host did not
//! reach it, `--parts` divides OpenCL devices, `--only` takes the cases whose name contains a text.

use std::process::ExitCode;
use std::sync::Arc;

use syncline::backend::conformance::Suite;
use syncline::device::cpu::{CpuDevice, CpuOptions};
use syncline::device::registry::BackendProbe;
use syncline::device::{Backend, Device, DeviceError, DeviceSpec};
use syncline::opencl::OpenClOptions;
use syncline::vulkan::VulkanOptions;
use syncline::{cuda, opencl, vulkan};

type Error = Box<dyn std::error::Error>;

#[derive(Default)]
struct Wanted {
    thorough: bool,
    staged: bool,
    parts: u32,
    only: Option<String>,
    devices: Vec<DeviceSpec>,
}

impl Wanted {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Error> {
        let mut wanted = Self { parts: 1, ..Self::default() };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--thorough" => wanted.thorough = true,
                "--staged" => wanted.staged = true,
                "--parts" => wanted.parts = value()?.parse()?,
                "--only" => wanted.only = Some(value()?),
                spec => wanted.devices.push(spec.parse()?),
            }
        }
        Ok(wanted)
    }

    /// The suite with kernels for `device`, and the device.
    fn open(&self, device: DeviceSpec) -> Result<(Suite, Arc<dyn Device>), DeviceError> {
        let index = device.index;
        let (suite, opened) = match device.backend {
            Backend::Cpu => (Suite::new(), CpuDevice::open(CpuOptions::new(index))?),
            Backend::Vulkan => {
                let options = VulkanOptions::default().with_staged(self.staged);
                let probe = vulkan::Probe::with_options(options);
                (vulkan::conformance::suite(), probe.open(index)?)
            }
            Backend::OpenCl => {
                let options =
                    OpenClOptions::new().with_parts(self.parts).with_host_visible(!self.staged);
                let probe = opencl::Probe::with_options(options);
                (opencl::conformance::suite(), probe.open(index)?)
            }
            Backend::Cuda => (cuda::conformance::suite(), cuda::Probe::new().open(index)?),
        };
        let suite = if self.thorough { suite.thorough() } else { suite };
        let only = |suite: Suite, text: &String| suite.only(text);
        Ok((self.only.iter().fold(suite, only), opened))
    }
}

/// All devices of this machine; says of backends without any why there is none.
fn found() -> Vec<DeviceSpec> {
    let mut specs = Vec::new();
    for found in syncline::registry().probe() {
        match found.devices {
            Ok(devices) => specs.extend(devices.iter().map(|info| info.spec)),
            Err(reason) => println!("{}: skipped: {reason}", found.backend),
        }
    }
    specs
}

fn main() -> Result<ExitCode, Error> {
    let mut wanted = Wanted::parse(std::env::args().skip(1))?;
    if wanted.devices.is_empty() {
        wanted.devices = found();
    }
    let mut all_passed = true;
    for &spec in &wanted.devices {
        let (suite, device) = wanted.open(spec)?;
        let report = suite.run(&device);
        println!("{}", device.info().name);
        let mut slowest: Vec<_> = report.cases.iter().collect();
        slowest.sort_by_key(|case| std::cmp::Reverse(case.took));
        for case in slowest.iter().take(5) {
            println!("{:>10.1?}  {}", case.took, case.name);
        }
        println!("{report}");
        all_passed &= report.is_success();
    }
    Ok(ExitCode::from(u8::from(!all_passed)))
}
