//! Runs the conformance suite on an OpenCL device and prints what it found.
//!
//! `cargo run --release -p syncline-opencl --example conformance -- [--thorough] [--explicit] [--parts N] [--device N] [part of a name]`

use std::process::ExitCode;

use syncline_device::registry::BackendProbe;
use syncline_opencl::{OpenClOptions, Probe, conformance};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let (mut suite, mut options, mut index) = (conformance::suite(), OpenClOptions::new(), 0);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            arguments
                .next()
                .ok_or("a number is missing")?
                .parse::<u32>()
                .map_err(|_| "not a number")
        };
        match argument.as_str() {
            "--thorough" => suite = suite.thorough(),
            "--explicit" => options = options.host_visible(false),
            "--parts" => options = options.parts(number()?),
            "--device" => index = number()?,
            part => suite = suite.only(part),
        }
    }
    let probe = Probe::with_options(options);
    let devices = match probe.probe() {
        Ok(devices) => devices,
        Err(reason) => {
            println!("skipped: {reason}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    devices.iter().for_each(|info| println!("{}: {}", info.spec, info.name));
    let report = suite.run(&probe.open(index)?);
    let mut slowest: Vec<_> = report.cases.iter().collect();
    slowest.sort_by_key(|case| std::cmp::Reverse(case.took));
    for case in slowest.iter().take(5) {
        println!("{:>10.1?}  {}", case.took, case.name);
    }
    println!("{report}");
    Ok(ExitCode::from(u8::from(!report.is_success())))
}
