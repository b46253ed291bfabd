//! What the tasks of a recorded run took.

use syncline_plan::CostModel;
use syncline_trace::TraceTask;

use crate::program::{Program, ProgramTask};

/// Costs of a program's tasks, in the order of the trace.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// What each took in the recorded run; the expected time where nothing is recorded.
    pub costs_ns: Vec<u64>,
    /// What a planner that had seen the run would expect: what tasks of the same kernel and size
    /// took on average, or else what the signature makes one guess.
    pub expected_ns: Vec<u64>,
}

impl Recorded {
    pub(crate) fn of(program: &Program) -> Self {
        // Which device it was does not matter here: machines say how much faster or slower theirs
        // are.
        const DEVICE: &str = "";
        let tasks = || program.trace().tasks.iter().zip(program.tasks());
        let mut costs = CostModel::default();
        for (task, what) in tasks() {
            if let Some(ns) = took_ns(task) {
                costs.observe(what.kernel.name(), DEVICE, bytes_of(task), ns);
            }
        }
        let expected = |(task, what): (&TraceTask, &ProgramTask)| {
            let known = costs.estimate(what.kernel.name(), DEVICE, bytes_of(task));
            known.unwrap_or(what.cost_ns).max(1)
        };
        let expected_ns: Vec<u64> = tasks().map(expected).collect();
        let recorded = program.trace().tasks.iter().map(took_ns).zip(&expected_ns);
        let costs_ns = recorded.map(|(took, &expected)| took.unwrap_or(expected).max(1)).collect();
        Self { costs_ns, expected_ns }
    }
}

fn took_ns(task: &TraceTask) -> Option<u64> {
    Some(task.end_ns?.saturating_sub(task.start_ns?))
}

fn bytes_of(task: &TraceTask) -> u64 {
    task.args.iter().map(|arg| arg.arg.view.bytes()).fold(0, u64::saturating_add)
}
