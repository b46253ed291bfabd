//! A run as its numbers need it, straight from the plan: no words, no second discovery of
//! dependencies.
//!
//! For a million tasks, writing down what was executed and reading it again takes longer than
//! simulating it.

use syncline::deps::EdgeFlags;
use syncline::plan::{ExecutionPlan, LaneKind, TaskInfo};
use syncline::program::{Program, ProgramRun};
use syncline::report::{RunEdge, RunLane, RunOp, RunOpKind, RunTiming};

/// The run; `None` where it has copies or shares bytes in arenas, whose dependencies the plan does
/// not list.
pub(super) fn of(program: &Program, run: &ProgramRun) -> Option<syncline::report::RunRecord> {
    let plan = run.plan.as_ref().filter(|plan| {
        plan.copies().is_empty() && plan.arena_bytes().iter().all(|&bytes| bytes == 0)
    })?;
    let (lanes, numbers) = lanes(plan, run);
    let tasks = program.trace().tasks.iter().zip(&run.timings);
    let op =
        |(task, timing): (&syncline::trace::TraceTask, &syncline::program::TaskTiming)| RunOp {
            timing: Some(RunTiming {
                lane: numbers[timing.lane],
                start_ns: timing.start_ns,
                end_ns: timing.end_ns,
            }),
            ..RunOp::new(task.id, named(task.label()), RunOpKind::Compute)
        };
    let ops = tasks.map(op).collect();
    let edges = plan.tasks().flat_map(edges_of).collect();
    Some(syncline::report::RunRecord {
        lanes,
        ops,
        edges,
        ..syncline::report::RunRecord::new("numbers")
    })
}

fn named(label: &str) -> &str {
    if label.is_empty() { "task" } else { label }
}

fn edges_of(task: TaskInfo<'_>) -> impl Iterator<Item = RunEdge> {
    let succ = task.index().0;
    let waits = task.edges().iter().filter(|edge| edge.flags.contains(EdgeFlags::WAIT));
    waits.map(move |edge| RunEdge {
        pred: edge.pred.0,
        succ,
        kinds: edge.kinds,
        region: String::new(),
    })
}

/// The lanes on which anything could have run, and for each of the run's lanes its number among
/// them.
fn lanes(plan: &ExecutionPlan, run: &ProgramRun) -> (Vec<RunLane>, Vec<u32>) {
    let mut lanes = Vec::new();
    let numbers = run.lanes.iter().enumerate().map(|(at, name)| {
        let number = lanes.len() as u32;
        let lane = &plan.lanes()[at];
        // Without copies, nothing runs on their lanes.
        if lane.kind == LaneKind::Compute {
            let device = &plan.machine().devices()[lane.device.index()].name;
            let short = name.strip_prefix(device.as_str()).and_then(|rest| rest.strip_prefix('/'));
            lanes.push(RunLane::new(short.unwrap_or(name), device));
        }
        number
    });
    let numbers = numbers.collect();
    (lanes, numbers)
}

#[cfg(test)]
mod tests {
    use syncline::program::{Keep, ProgramOptions, RunOptions, example};
    use syncline::report::{Analysis, Detail};

    use super::*;

    /// The short way must say what the long way says.
    #[test]
    fn numbers_are_those_of_what_was_executed() {
        for name in ["cholesky", "stencil", "butterfly", "random"] {
            let trace = example(name, &[]).unwrap();
            let program = Program::from_trace(trace, &ProgramOptions::default()).unwrap();
            let options = RunOptions::default().with_keep(Keep::Results(Vec::new()));
            let run = program.run_planned(&options).unwrap();
            let short = Analysis::of(&of(&program, &run).unwrap()).unwrap().summary;
            let executed = program.executed(&run);
            let long = syncline::report::RunRecord::from_trace_in(&executed.trace, Detail::Numbers);
            let long = Analysis::of(&long.unwrap()).unwrap().summary;
            assert_eq!(short, long, "{name}");
        }
    }
}
