//! `syncline devices`: every device found, and every backend that cannot be used, and why.

use std::io::{self, Write};

use clap::Args;
use serde_json::{Value, json};
use syncline::device::DeviceInfo;
use syncline::device::registry::Found;

use crate::outcome::{Failure, Outcome};
use crate::output::to_standard_output;

/// Arguments of `devices`.
#[derive(Args)]
pub(crate) struct DevicesArgs {
    /// For programs.
    #[arg(long)]
    json: bool,
}

impl DevicesArgs {
    pub(crate) fn run(self) -> Result<Outcome, Failure> {
        let found = syncline::registry().probe();
        to_standard_output(|out| {
            match self.json {
                true => writeln!(out, "{:#}", to_json(&found))?,
                false => found.iter().try_for_each(|one| print(out, one))?,
            }
            Ok(Outcome::Success)
        })
    }
}

fn abilities(info: &DeviceInfo) -> Vec<&'static str> {
    let all = [
        (info.capabilities.host_visible, "host-visible memory"),
        (info.capabilities.host_functions, "host functions"),
        (info.capabilities.wait_before_signal, "wait before signal"),
        (info.capabilities.open_lanes, "more lanes"),
    ];
    all.into_iter().filter(|(has, _)| *has).map(|(_, name)| name).collect()
}

pub(crate) fn to_json(found: &[Found]) -> Value {
    let devices: Vec<Value> = found
        .iter()
        .filter_map(|one| one.devices.as_ref().ok())
        .flatten()
        .map(|info| {
            json!({"device": info.spec.to_string(), "name": info.name,
                   "memory_bytes": info.memory_bytes, "can": abilities(info)})
        })
        .collect();
    let refused: Vec<Value> = found
        .iter()
        .flat_map(|one| one.refused.iter().map(move |refused| (one.backend, refused)))
        .map(|(backend, refused)| {
            json!({"backend": backend.name(), "name": refused.name, "why": refused.reason})
        })
        .collect();
    let missing: Vec<Value> = found
        .iter()
        .filter_map(|one| {
            let why = one.devices.as_ref().err()?;
            Some(json!({"backend": one.backend.name(), "why": why}))
        })
        .collect();
    json!({"format": "syncline-devices", "version": 1, "devices": devices, "refused": refused,
           "unusable": missing})
}

fn print(out: &mut dyn Write, found: &Found) -> io::Result<()> {
    match &found.devices {
        Ok(devices) => devices.iter().try_for_each(|info| {
            let memory = crate::units::bytes(info.memory_bytes);
            let can = abilities(info).join(", ");
            writeln!(out, "{:9} {}, {memory}: {can}", info.spec.to_string(), info.name)
        }),
        Err(why) => writeln!(out, "{:9} cannot be used: {why}", found.backend.name()),
    }?;
    found.refused.iter().try_for_each(|refused| {
        writeln!(
            out,
            "{:9} {} cannot be used: {}",
            found.backend.name(),
            refused.name,
            refused.reason
        )
    })
}
