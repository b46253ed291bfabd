//! A plan as a DOT graph.

use std::fmt::Write;

use crate::plan::{ExecutionPlan, LaneIndex};

pub(crate) fn print(plan: &ExecutionPlan) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(plan, &mut out);
    out
}

fn write(plan: &ExecutionPlan, out: &mut String) -> std::fmt::Result {
    writeln!(out, "digraph plan {{\n  rankdir=LR;\n  node [shape=box];")?;
    for lane in 0..plan.lanes.len() {
        writeln!(
            out,
            "  subgraph cluster_{lane} {{\n    label=\"{}\";",
            quoted(&plan.lane_name(lane))
        )?;
        let ops = plan.lane_ops(LaneIndex(lane as u16));
        for (position, op) in ops.iter().enumerate() {
            writeln!(out, "    n{lane}_{position} [label=\"{}\"];", quoted(&plan.op_name(op)))?;
        }
        for position in 1..ops.len() {
            writeln!(out, "    n{lane}_{} -> n{lane}_{position} [color=gray];", position - 1)?;
        }
        writeln!(out, "  }}")?;
    }
    for lane in 0..plan.lanes.len() {
        for (position, op) in plan.lane_ops(LaneIndex(lane as u16)).iter().enumerate() {
            for wait in plan.waits_of(op) {
                let from = wait.lane.0;
                writeln!(out, "  n{from}_{} -> n{lane}_{position};", wait.count - 1)?;
            }
        }
    }
    writeln!(out, "}}")
}

/// Inside the quotes of a DOT string.
fn quoted(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
