//! The end of a run in numbers: for people, for programs, and for the report.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};
use syncline::device::DeviceSpec;
use syncline::plan::DeviceIndex;
use syncline::program::{FloatTolerance, Program, ProgramRun};
use syncline::report::{Analysis, StepKind};
use syncline_files::one_line;

use crate::provenance::Provenance;
use crate::units::{bytes, duration};

/// Memory of one device: buffers that are there from the start, and an arena for what comes and
/// goes.
struct Peak {
    device: String,
    bytes: u64,
    arena_bytes: u64,
    /// What the buffers in the arena would take side by side.
    apart_bytes: u64,
}

impl Peak {
    fn words(&self) -> String {
        match self.arena_bytes {
            0 => bytes(self.bytes),
            arena => format!(
                "{}, {} of it an arena for {} of intermediates and copies",
                bytes(self.bytes),
                bytes(arena),
                bytes(self.apart_bytes)
            ),
        }
    }
}

/// The summary at the end of a run.
pub(super) struct Facts {
    tasks: usize,
    lanes: Vec<(String, u64, f64)>,
    makespan_ns: u64,
    path_ns: u64,
    stall_ns: u64,
    devices: Vec<String>,
    /// Bytes by route, such as `cpu:0 -> vulkan:0`.
    routes: Vec<(String, u64)>,
    /// The most memory in use at one time, by device.
    peaks: Vec<Peak>,
    limit: String,
    differences: Option<Vec<String>>,
    tolerance: FloatTolerance,
}

impl Facts {
    pub(super) fn of(
        program: &Program,
        run: &ProgramRun,
        report: &syncline::report::RunRecord,
        analysis: &Analysis,
        differences: Option<&[String]>,
    ) -> Self {
        let summary = &analysis.summary;
        let makespan_ns = summary.makespan_ns;
        let lanes = report
            .lanes
            .iter()
            .zip(&summary.lanes)
            .map(|(lane, used)| {
                let share = used.busy_ns as f64 / makespan_ns.max(1) as f64;
                let name = match &*lane.device {
                    "" => lane.name.clone(),
                    device => format!("{device}/{}", lane.name),
                };
                (name, used.ops, share)
            })
            .collect();
        let stall_ns = analysis.path.time_ns(StepKind::Stall);
        Self {
            tasks: program.trace().tasks.len(),
            lanes,
            makespan_ns,
            path_ns: makespan_ns - stall_ns,
            stall_ns,
            devices: devices(run),
            routes: routes(run),
            peaks: peaks(program, run),
            limit: summary.limit.clone(),
            differences: differences.map(<[String]>::to_vec),
            tolerance: program.tolerance(run),
        }
    }

    /// Label and value of each.
    pub(super) fn lines(&self) -> Vec<(String, String)> {
        let mut lines = vec![
            ("devices".to_owned(), self.devices.join(", ")),
            ("tasks".to_owned(), self.tasks.to_string()),
            ("time".to_owned(), duration(self.makespan_ns)),
            (
                "critical path".to_owned(),
                format!(
                    "{} of work, {} of stalls",
                    duration(self.path_ns),
                    duration(self.stall_ns)
                ),
            ),
        ];
        for (name, ops, share) in &self.lanes {
            let what = if name.ends_with("/copy") { "copies" } else { "tasks" };
            let busy = share * 100.0;
            lines.push((format!("lane {name}"), format!("{ops} {what}, busy {busy:.0}%")));
        }
        for (route, moved) in &self.routes {
            lines.push((format!("moved {route}"), bytes(*moved)));
        }
        for peak in &self.peaks {
            lines.push((format!("peak memory {}", peak.device), peak.words()));
        }
        if let Some(differences) = &self.differences {
            let text = match (differences.len(), self.tolerance) {
                (0, FloatTolerance::Exact) => "the same as the serial run, bit for bit".to_owned(),
                (0, FloatTolerance::Relative(limit)) => {
                    format!("the same as the serial run, floats within {limit:.1e}")
                }
                (count, _) => format!("{count} buffers differ from the serial run"),
            };
            lines.push(("check".to_owned(), text));
        }
        lines
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let lines = self.lines();
        let width = lines.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        for (label, value) in &lines {
            writeln!(out, "{}", one_line(&format!("{label:width$}  {value}")))?;
        }
        for difference in self.differences.iter().flatten() {
            writeln!(out, "{}", one_line(difference))?;
        }
        writeln!(out, "{}", one_line(&self.limit))
    }

    /// How far floats may be from the serial run; zero is bit for bit.
    fn limit_of_floats(&self) -> f64 {
        match self.tolerance {
            FloatTolerance::Exact => 0.0,
            FloatTolerance::Relative(limit) => limit,
        }
    }

    pub(super) fn to_json(&self, provenance: &Provenance) -> Value {
        let lanes: Vec<Value> = self
            .lanes
            .iter()
            .map(|(name, ops, share)| json!({"name": name, "tasks": ops, "busy": share}))
            .collect();
        json!({"format": "syncline-run", "version": 1, "tasks": self.tasks, "makespan_ns": self.makespan_ns,
            "critical_path_ns": self.path_ns, "stall_ns": self.stall_ns, "lanes": lanes,
            "devices": self.devices, "bytes_moved": sum(&self.routes), "bytes_by_route": object(&self.routes),
            "peak_bytes": object(&by_device(&self.peaks, |peak| peak.bytes)),
            "arena_bytes": object(&by_device(&self.peaks, |peak| peak.arena_bytes)), "limit": self.limit,
            "differences": self.differences, "tolerance": self.limit_of_floats(),
            "provenance": provenance.to_json()})
    }
}

/// Those of the plan, or the one that a stream or a serial run uses.
pub(super) fn devices(run: &ProgramRun) -> Vec<String> {
    match &run.plan {
        Some(plan) => plan.machine().devices().iter().map(|device| device.name.clone()).collect(),
        None => vec![DeviceSpec::CPU.to_string()],
    }
}

fn routes(run: &ProgramRun) -> Vec<(String, u64)> {
    let mut routes: BTreeMap<&str, u64> = BTreeMap::new();
    for copy in &run.copies {
        *routes.entry(&copy.route).or_default() += copy.bytes;
    }
    routes.into_iter().map(|(route, moved)| (route.to_owned(), moved)).collect()
}

/// What a plan allocates on each of its devices; a stream and a serial run have every buffer from
/// the start.
fn peaks(program: &Program, run: &ProgramRun) -> Vec<Peak> {
    let Some(plan) = &run.plan else {
        let sizes = program.trace().buffers.iter().map(|buffer| buffer.bytes);
        let (device, bytes) = (DeviceSpec::CPU.to_string(), sizes.sum());
        return vec![Peak { device, bytes, arena_bytes: 0, apart_bytes: 0 }];
    };
    let peak = |(at, device): (u16, &syncline::plan::DeviceModel)| {
        let index = DeviceIndex(at);
        let inside = plan.memories().iter().filter(|memory| {
            memory.device == index && memory.place != syncline::plan::MemoryPlace::Bound
        });
        Peak {
            device: device.name.clone(),
            bytes: plan.device_bytes(index),
            arena_bytes: plan.arena_bytes()[index.index()],
            apart_bytes: inside.map(|memory| memory.bytes).sum(),
        }
    };
    (0..).zip(plan.machine().devices()).map(peak).filter(|peak| peak.bytes > 0).collect()
}

fn by_device(peaks: &[Peak], bytes: impl Fn(&Peak) -> u64) -> Vec<(String, u64)> {
    peaks.iter().map(|peak| (peak.device.clone(), bytes(peak))).collect()
}

fn sum(entries: &[(String, u64)]) -> u64 {
    entries.iter().map(|(_, bytes)| bytes).sum()
}

fn object(entries: &[(String, u64)]) -> Value {
    entries.iter().map(|(name, bytes)| (name.clone(), Value::from(*bytes))).collect()
}
