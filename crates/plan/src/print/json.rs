//! A plan as JSON.

use serde_json::{Value, json};
use syncline_tensor::View;

use crate::plan::{ExecutionPlan, LaneIndex, LaneKind, MemoryPlace, Op, OpKind};

/// Whole numbers above this are written as strings: readers that know only doubles would round
/// them.
const EXACT_MAX: u64 = 1 << 53;

pub(crate) fn print(plan: &ExecutionPlan) -> String {
    let devices: Vec<Value> = (plan.machine.devices().iter().zip(&plan.arena_bytes))
        .map(|(device, &arena)| {
            json!({"name": device.name, "lanes": device.compute_lanes, "copy_lane": device.copy_lane,
                   "memory_bytes": number(device.memory_bytes), "arena_bytes": number(arena)})
        })
        .collect();
    let lanes: Vec<Value> = (0..plan.lanes.len()).map(|lane| lane_value(plan, lane)).collect();
    let value = json!({
        "format": "syncline-plan",
        "version": 1,
        "graph": format!("{:016x}", plan.graph_fingerprint),
        "expected_ns": number(plan.makespan_ns()),
        "tasks": plan.graph.tasks.len(),
        "devices": devices,
        "memories": plan.memories.iter().map(|memory| memory_value(plan, memory)).collect::<Vec<_>>(),
        "lanes": lanes,
    });
    value.to_string()
}

fn number(number: u64) -> Value {
    if number > EXACT_MAX { json!(number.to_string()) } else { json!(number) }
}

fn memory_value(plan: &ExecutionPlan, memory: &crate::plan::Memory) -> Value {
    let offset = match memory.place {
        MemoryPlace::Bound => Value::Null,
        MemoryPlace::Arena { offset } => number(offset),
    };
    json!({"buffer": memory.buffer.0, "name": plan.graph.buffer(memory.buffer).name,
           "device": plan.machine.devices()[memory.device.index()].name, "bytes": number(memory.bytes),
           "arena_offset": offset})
}

fn lane_value(plan: &ExecutionPlan, lane: usize) -> Value {
    let record = &plan.lanes[lane];
    let kind = match record.kind {
        LaneKind::Compute => "compute",
        LaneKind::Copy => "copy",
    };
    let ops = plan.lane_ops(LaneIndex(lane as u16));
    json!({"device": plan.machine.devices()[record.device.index()].name, "kind": kind,
           "ops": ops.iter().map(|op| op_value(plan, op)).collect::<Vec<_>>()})
}

fn op_value(plan: &ExecutionPlan, op: &Op) -> Value {
    let waits: Vec<Value> = (plan.waits_of(op).iter())
        .map(|wait| json!({"lane": wait.lane.0, "count": wait.count}))
        .collect();
    let mut value = match op.kind {
        OpKind::Task(task) => {
            let info = plan.task(task);
            json!({"task": task.0, "name": info.name(), "kernel": info.kernel()})
        }
        OpKind::Copy(copy) => {
            let copy = &plan.copies[copy.index()];
            json!({"copy": {"source": copy.source.0, "target": copy.target.0,
                            "bytes": number(copy.bytes()),
                            "views": copy.views.iter().map(view_value).collect::<Vec<_>>()}})
        }
    };
    value["waits"] = waits.into();
    value["start_ns"] = number(op.start_ns);
    value["end_ns"] = number(op.end_ns);
    value
}

fn view_value(view: &View) -> Value {
    json!({"dtype": view.dtype().name(), "offset": number(view.offset()), "shape": view.shape(),
           "strides": view.strides()})
}
