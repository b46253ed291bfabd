//! `syncline doctor`: what this machine has and lacks, what each lack means, and the remedy.

use std::fs::read_to_string;
use std::io::{self, Write};

use clap::Args;
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use syncline::device::registry::Found;

use crate::outcome::{Failure, Outcome};
use crate::output::to_standard_output;
use crate::units::bytes as bytes_text;

/// Arguments of `doctor`.
#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// For programs.
    #[arg(long)]
    json: bool,
}

/// One thing that Syncline can use.
struct Check {
    name: &'static str,
    /// What the machine has of it; the reason if that does not do.
    found: Result<String, String>,
    /// What its lack means.
    means: &'static str,
    /// What to install or to set.
    remedy: &'static str,
}

/// Bytes of shared memory below which refits of large models run out of it.
const SHARED_BYTES_MIN: u64 = 1 << 30;
/// Open files below which groups of many processes run out of them.
const FILES_MIN: u64 = 1024;
/// Clocks that are read without a system call.
const FAST_CLOCKS: &[&str] =
    &["tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page"];

impl DoctorArgs {
    pub(crate) fn run(self) -> Result<Outcome, Failure> {
        let checks = checks();
        to_standard_output(|out| {
            match self.json {
                true => writeln!(out, "{:#}", to_json(&checks))?,
                false => checks.iter().try_for_each(|check| print(out, check))?,
            }
            Ok(Outcome::Success)
        })
    }
}

fn checks() -> Vec<Check> {
    let mut checks = vec![processors()];
    checks.extend(syncline::registry().probe().iter().filter_map(driver));
    checks.extend([mpi(), shared_memory(), open_files(), clock(), huge_pages()]);
    checks
}

fn processors() -> Check {
    let count = std::thread::available_parallelism();
    Check {
        name: "processors",
        found: count.map(|count| count.to_string()).map_err(|error| error.to_string()),
        means: "the number of workers of the CPU device must be given by hand",
        remedy: "give the lanes of the CPU device in the program",
    }
}

/// Returns the check of a backend's driver; the CPU needs none.
fn driver(found: &Found) -> Option<Check> {
    let (name, remedy) = match found.backend.name() {
        "vulkan" => ("vulkan", "install the driver of the GPU, or mesa-vulkan-drivers"),
        "opencl" => ("opencl", "install the driver of the GPU, or pocl-opencl-icd"),
        "cuda" => ("cuda", "install the driver of the GPU"),
        _ => return None,
    };
    let devices = found.devices.as_ref().map_err(ToString::to_string).map(|devices| {
        let names: Vec<&str> = devices.iter().map(|info| &*info.name).collect();
        names.join(", ")
    });
    let found = devices.and_then(|names| match names.is_empty() {
        true => Err("the driver has no device".to_owned()),
        false => Ok(names),
    });
    Some(Check { name, found, means: "tasks run on other devices only", remedy })
}

fn mpi() -> Check {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let launcher = std::env::split_paths(&folders).map(|folder| folder.join("mpirun"));
    let launcher = launcher.into_iter().find(|path| path.is_file());
    let found = match (cfg!(feature = "mpi"), launcher) {
        (true, Some(path)) => Ok(path.display().to_string()),
        (true, None) => Err("no mpirun in PATH".to_owned()),
        (false, _) => Err("this program was built without MPI".to_owned()),
    };
    Check {
        name: "mpi",
        found,
        means: "refits and conversions run on one machine, or over TCP",
        remedy: "install openmpi-bin, libopenmpi-dev and libclang-dev; build with --features mpi",
    }
}

fn shared_memory() -> Check {
    let found = match rustix::fs::statvfs("/dev/shm") {
        Err(error) => Err(format!("/dev/shm: {error}")),
        Ok(folder) => match folder.f_blocks.saturating_mul(folder.f_frsize) {
            bytes if bytes < SHARED_BYTES_MIN => Err(format!("{} in all", bytes_text(bytes))),
            bytes => Ok(format!("{} in all", bytes_text(bytes))),
        },
    };
    Check {
        name: "shared memory",
        found,
        means: "groups of processes on one host run out of memory for slots and windows",
        remedy: "mount -o remount,size=8G /dev/shm; for containers, --shm-size",
    }
}

fn open_files() -> Check {
    let found = match getrlimit(Resource::Nofile).current {
        Some(files) if files < FILES_MIN => Err(format!("{files} at most")),
        Some(files) => Ok(format!("{files} at most")),
        None => Ok("no limit".to_owned()),
    };
    Check {
        name: "open files",
        found,
        means: "groups of many processes and checkpoints of many files fail to open them",
        remedy: "ulimit -n 65536",
    }
}

fn clock() -> Check {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let found = match read_to_string(path) {
        Err(error) => Err(format!("{path}: {error}")),
        Ok(name) if FAST_CLOCKS.contains(&name.trim()) => Ok(name.trim().to_owned()),
        Ok(name) => Err(format!("{}, read by a system call", name.trim())),
    };
    Check {
        name: "clock",
        found,
        means: "times of short tasks, captures and deadlines cost about a microsecond each",
        remedy: "boot with clocksource=tsc where the processor has a stable one",
    }
}

fn huge_pages() -> Check {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let found = match read_to_string(path) {
        Err(error) => Err(format!("{path}: {error}")),
        Ok(text) => match text.split('[').nth(1).and_then(|rest| rest.split(']').next()) {
            Some(mode @ ("always" | "madvise")) => Ok(mode.to_owned()),
            Some(mode) => Err(mode.to_owned()),
            None => Err(format!("{path}: no mode is chosen")),
        },
    };
    Check {
        name: "huge pages",
        found,
        means: "large copies miss the translation cache more often",
        remedy: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    }
}

fn print(out: &mut dyn Write, check: &Check) -> io::Result<()> {
    match &check.found {
        Ok(found) => writeln!(out, "{:14} ok     {found}", check.name),
        Err(why) => {
            writeln!(out, "{:14} lacks  {why}", check.name)?;
            writeln!(out, "{:21} means: {}", "", check.means)?;
            writeln!(out, "{:21} to do: {}", "", check.remedy)
        }
    }
}

fn to_json(checks: &[Check]) -> Value {
    let checks: Vec<Value> = checks
        .iter()
        .map(|check| match &check.found {
            Ok(found) => json!({"name": check.name, "ok": true, "found": found}),
            Err(why) => json!({"name": check.name, "ok": false, "found": why,
                               "means": check.means, "remedy": check.remedy}),
        })
        .collect();
    json!({"format": "syncline-doctor", "version": 1, "checks": checks})
}
