//! A plan as text.

use std::fmt::Write;

use crate::plan::{ExecutionPlan, LaneIndex, MemoryPlace};

pub(crate) fn print(plan: &ExecutionPlan) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(plan, &mut out);
    out
}

fn write(plan: &ExecutionPlan, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "plan: {} tasks, {} copies, {} waits, {} lanes, expected {} ns",
        plan.graph.tasks.len(),
        plan.copies.len(),
        plan.waits.len(),
        plan.lanes.len(),
        plan.makespan_ns()
    )?;
    for (at, device) in plan.machine.devices().iter().enumerate() {
        let needed = plan.device_bytes(crate::machine::DeviceIndex(at as u16));
        writeln!(
            out,
            "device {}: {needed} bytes, {} of them in the arena",
            device.name, plan.arena_bytes[at]
        )?;
    }
    for memory in &plan.memories {
        let place = match memory.place {
            MemoryPlace::Bound => "bound by the caller".to_owned(),
            MemoryPlace::Arena { offset } => format!("arena at {offset}"),
        };
        let buffer = plan.graph.buffer(memory.buffer);
        let device = &plan.machine.devices()[memory.device.index()].name;
        writeln!(out, "memory {} on {device}: {} bytes, {place}", buffer.name, memory.bytes)?;
    }
    for lane in 0..plan.lanes.len() {
        let index = LaneIndex(lane as u16);
        writeln!(out, "{index}, {}:", plan.lane_name(lane))?;
        for (position, op) in plan.lane_ops(index).iter().enumerate() {
            write!(
                out,
                "  {position:>4}  {:>8}..{:<8} {}",
                op.start_ns,
                op.end_ns,
                plan.op_name(op)
            )?;
            for wait in plan.waits_of(op) {
                write!(out, "  [after {} of {}]", wait.count, wait.lane)?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}
