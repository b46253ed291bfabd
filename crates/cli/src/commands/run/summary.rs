//! The end of a run in numbers: for people, for programs, and for the report.

use std::io::{self, Write};

use serde_json::{Value, json};
use syncline_program::{Program, Run};
use syncline_report::{Analysis, StepKind};

/// What is said at the end of a run.
pub(super) struct Facts {
    tasks: usize,
    lanes: Vec<(String, u64, f64)>,
    makespan_ns: u64,
    path_ns: u64,
    stall_ns: u64,
    moved_bytes: u64,
    buffer_bytes: u64,
    limit: String,
    differences: Option<Vec<String>>,
}

impl Facts {
    pub(super) fn of(
        program: &Program,
        run: &Run,
        report: &syncline_report::Run,
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
                (lane.name.clone(), used.ops, share)
            })
            .collect();
        let stall_ns = analysis.path.time_ns(StepKind::Stall);
        Self {
            tasks: program.trace().tasks.len(),
            lanes,
            makespan_ns,
            path_ns: makespan_ns - stall_ns,
            stall_ns,
            moved_bytes: run.copies.iter().map(|copy| copy.bytes).sum(),
            buffer_bytes: program.trace().buffers.iter().map(|buffer| buffer.bytes).sum(),
            limit: summary.limit.clone(),
            differences: differences.map(<[String]>::to_vec),
        }
    }

    /// Label and value of each.
    pub(super) fn lines(&self) -> Vec<(String, String)> {
        let mut lines = vec![
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
            lines
                .push((format!("lane {name}"), format!("{ops} tasks, busy {:.0}%", share * 100.0)));
        }
        lines.push(("moved between devices".to_owned(), bytes(self.moved_bytes)));
        lines.push(("buffers".to_owned(), bytes(self.buffer_bytes)));
        if let Some(differences) = &self.differences {
            let text = match differences.len() {
                0 => "the same as the serial run, bit for bit".to_owned(),
                count => format!("{count} buffers differ from the serial run"),
            };
            lines.push(("check".to_owned(), text));
        }
        lines
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let lines = self.lines();
        let width = lines.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        for (label, value) in &lines {
            writeln!(out, "{label:width$}  {value}")?;
        }
        for difference in self.differences.iter().flatten() {
            writeln!(out, "{difference}")?;
        }
        writeln!(out, "{}", self.limit)
    }

    pub(super) fn to_json(&self) -> Value {
        let lanes: Vec<Value> = self
            .lanes
            .iter()
            .map(|(name, ops, share)| json!({"name": name, "tasks": ops, "busy": share}))
            .collect();
        json!({"format": "syncline-run", "version": 1, "tasks": self.tasks, "makespan_ns": self.makespan_ns,
            "critical_path_ns": self.path_ns, "stall_ns": self.stall_ns, "lanes": lanes,
            "bytes_moved": self.moved_bytes, "buffer_bytes": self.buffer_bytes, "limit": self.limit,
            "differences": self.differences})
    }
}

fn duration(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..10_240 => format!("{count} bytes"),
        10_240..10_485_760 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}
