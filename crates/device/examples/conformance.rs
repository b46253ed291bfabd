//! Runs the conformance suite on a CPU device and prints what it found.
//!
//! `cargo run --release -p syncline-device --example conformance -- [--thorough] [part of a name]`

use std::process::ExitCode;

use syncline_device::DeviceError;
use syncline_device::conformance::Suite;
use syncline_device::cpu::CpuDevice;

fn main() -> Result<ExitCode, DeviceError> {
    let mut suite = Suite::new();
    for argument in std::env::args().skip(1) {
        suite = match argument.as_str() {
            "--thorough" => suite.thorough(),
            part => suite.only(part),
        };
    }
    let report = suite.run(&CpuDevice::open_default()?);
    let mut slowest: Vec<_> = report.cases.iter().collect();
    slowest.sort_by_key(|case| std::cmp::Reverse(case.took));
    for case in slowest.iter().take(5) {
        println!("{:>10.1?}  {}", case.took, case.name);
    }
    println!("{report}");
    Ok(ExitCode::from(u8::from(!report.is_success())))
}
