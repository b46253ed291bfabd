//! The verdict: one paragraph on what limited a run, resting on figures that no single op decides.

use std::collections::HashMap;

use crate::outliers::Outlier;
use crate::path::{CriticalPath, StepKind};
use crate::summary::{KernelSummary, LaneUse};
use crate::whatif::{Change, Scenario};
use crate::{RunOpKind, RunRecord};

/// Outliers that make the run longer by less than this share of it are not named here.
const OUTLIERS_MIN: f64 = 0.02;

/// What the verdict is made from.
pub(crate) struct Findings<'a> {
    pub(crate) run: &'a RunRecord,
    pub(crate) path: &'a CriticalPath,
    pub(crate) kernels: &'a [KernelSummary],
    pub(crate) lanes: &'a [LaneUse],
    pub(crate) outliers: &'a [Outlier],
    pub(crate) scenarios: &'a [Scenario],
}

impl Findings<'_> {
    /// Outliers that made the run longer, the largest part of the critical path without them, and
    /// the best remedy for the run as a whole.
    pub(crate) fn verdict(&self) -> String {
        if !self.run.is_timed() {
            return "This trace has no timings: it shows what must wait for what, not how long it took.".into();
        }
        let outliers = self.outliers().map_or(String::new(), |text| format!("{text} "));
        let (cause, remedy) = (self.cause(), self.remedy());
        let besides = if outliers.is_empty() { "" } else { "Besides, " };
        format!("{outliers}{besides}{cause}{remedy}.")
    }

    /// The outlier that costs most, where outliers matter.
    fn outliers(&self) -> Option<String> {
        let worst = self.outliers.first()?;
        let usual = self.scenarios.iter().find(|one| one.change == Change::NoOutliers)?;
        let makespan_ns = self.path.makespan_ns();
        let gain_ns = makespan_ns - usual.makespan_ns;
        if (gain_ns as f64) < makespan_ns as f64 * OUTLIERS_MIN {
            return None;
        }
        let others = match self.outliers.len() - 1 {
            0 => "without it",
            _ => "without it and its like",
        };
        let (took, usual) = (duration(makespan_ns), duration(usual.makespan_ns));
        let named = self.outlier(worst);
        Some(format!("{named}; {others} the run takes {usual} instead of {took}."))
    }

    /// Names one outlier: "One `syrk` took 4.05 ms, 128 times the median: likely preempted".
    fn outlier(&self, one: &Outlier) -> String {
        let times = one.duration_ns as f64 / one.median_ns.max(1) as f64;
        format!(
            "One `{}` took {}, {times:.0} times the median: {}",
            self.run.ops[one.op as usize].name,
            duration(one.duration_ns),
            one.cause.words()
        )
    }

    /// What outliers on the critical path took beyond their medians, by name and kind.
    fn excess_ns(&self) -> HashMap<(&str, RunOpKind), u64> {
        let medians: HashMap<u32, u64> =
            self.outliers.iter().map(|one| (one.op, one.median_ns)).collect();
        let mut excess = HashMap::new();
        for step in self.path.steps.iter().filter(|step| step.kind.ran()) {
            let Some(&median_ns) = medians.get(&step.op) else { continue };
            let op = &self.run.ops[step.op as usize];
            *excess.entry((&*op.name, op.kind)).or_default() +=
                step.duration_ns().saturating_sub(median_ns);
        }
        excess
    }

    /// The largest part of the critical path.
    fn cause(&self) -> String {
        let excess_ns = self.excess_ns();
        let whole_ns = self.path.makespan_ns().saturating_sub(excess_ns.values().sum());
        let percent = |ns: u64| 100.0 * ns as f64 / whole_ns.max(1) as f64;
        let usual_ns = |one: &KernelSummary| {
            let excess_ns = excess_ns.get(&(&*one.name, one.kind)).copied().unwrap_or(0);
            one.path_ns.saturating_sub(excess_ns)
        };
        let of_kind = |kind| self.kernels.iter().filter(move |one| one.kind == kind);
        let copies: u64 = of_kind(RunOpKind::Copy).map(usual_ns).sum();
        let kernels = of_kind(RunOpKind::Compute).map(|one| (usual_ns(one), one));
        let kernel = kernels.max_by_key(|(usual_ns, _)| *usual_ns);
        let kernel_ns = kernel.map_or(0, |(usual_ns, _)| usual_ns);
        let stalls = self.path.time_ns(StepKind::Stall);
        let late = self.path.time_ns(StepKind::Late);
        match kernel {
            Some((ns, kernel)) if kernel_ns >= stalls.max(copies).max(late) => {
                format!("`{}` takes {:.0}% of the critical path", kernel.name, percent(ns))
            }
            _ if copies >= stalls.max(late) => {
                format!("copies take {:.0}% of the critical path", percent(copies))
            }
            _ if stalls >= late => {
                format!("stalls take {:.0}% of the critical path", percent(stalls))
            }
            _ => format!(
                "{:.0}% of the run had passed when the first task of its critical path started",
                percent(late)
            ),
        }
    }

    fn remedy(&self) -> String {
        let mut changes = self.scenarios.iter().filter(|one| one.change != Change::NoOutliers);
        let Some(best) = changes.next() else { return String::new() };
        let less = |one: &Scenario| {
            100.0 - 100.0 * one.makespan_ns as f64 / self.path.makespan_ns().max(1) as f64
        };
        let idle = self.lanes.iter().filter(|lane| lane.ops == 0).count();
        let change = match (&best.change, idle) {
            (Change::MoreLanes | Change::Lanes { .. }, 0) => "more lanes".to_owned(),
            (Change::MoreLanes | Change::Lanes { .. }, 1) => {
                "more lanes at work, one ran nothing,".to_owned()
            }
            (Change::MoreLanes | Change::Lanes { .. }, idle) => {
                format!("more lanes at work, {idle} ran nothing,")
            }
            (change, _) => change.to_string(),
        };
        let mut text =
            format!("; {change} would shorten the run most, by up to {:.0}%", less(best));
        // No one buys a lane for every task: what a step in that direction gains is said too.
        let step = changes.find(|one| matches!(one.change, Change::Lanes { .. }));
        if let (Change::MoreLanes, Some(step)) = (&best.change, step) {
            text += &format!(" ({}: {:.0}%)", step.change, less(step));
        }
        text
    }
}

/// A time with three digits: `6.73 ms`.
pub(crate) fn duration(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}
