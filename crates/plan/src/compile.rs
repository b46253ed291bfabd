//! From a graph and a machine to a plan, one step a file.
//!
//! 1. [`place`]: a device for every task.
//! 2. [`coherence`]: copies where a task's bytes are not on its device, over [`blocks`] of bytes
//!    that every task treats alike.
//! 3. [`order`]: critical path first, onto lanes.
//! 4. [`arena`]: memory for what lives inside the plan, reused by lifetime; each reuse is an edge.
//! 5. [`waits`]: the edges that lanes do not already imply.
//!
//! Nothing after a step changes what it decided, so that each can be read, tested and replaced
//! alone.

mod arena;
mod blocks;
mod coherence;
mod error;
mod lower;
mod order;
mod place;
mod runs;
mod waits;

use std::sync::Arc;

pub use error::CompileError;
pub(crate) use runs::runs_count;
pub use runs::{ByteRun, runs_of};

use crate::cost::CostModel;
use crate::graph::GraphData;
use crate::machine::{DeviceIndex, Machine};
use crate::plan::{ExecutionPlan, LaneIndex, LaneKind, Op, OpIndex, PlanLane};
use lower::Lowered;
use order::Schedule;
use waits::OpWaits;

/// How a plan is to be made.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CompileOptions<'a> {
    /// What kernels were measured to cost; declared costs are used where nothing was.
    pub costs: Option<&'a CostModel>,
}

impl<'a> CompileOptions<'a> {
    /// The same, with measured costs.
    pub fn with_costs(mut self, costs: &'a CostModel) -> Self {
        self.costs = Some(costs);
        self
    }
}

pub(crate) fn compile(
    graph: &Arc<GraphData>,
    machine: &Machine,
    options: &CompileOptions<'_>,
) -> Result<ExecutionPlan, CompileError> {
    let placement = place::place(graph, machine, options.costs)?;
    let mut lowered = coherence::lower(graph, machine, &placement)?;
    let mut schedule = order::by_critical_path(&lowered, machine);
    let mut lay_out =
        |schedule: &Schedule, reuse| arena::lay_out(graph, machine, &mut lowered, schedule, reuse);
    let mut arenas = lay_out(&schedule, arena::Reuse::WhenIdle);
    if arenas.is_err() {
        arenas = lay_out(&schedule, arena::Reuse::AsSoonAsPossible);
    }
    if arenas.is_err() {
        // Wide orders keep more alive at a time: go by submission before giving up.
        schedule = order::by_submission(&lowered, machine);
        arenas =
            arena::lay_out(graph, machine, &mut lowered, &schedule, arena::Reuse::AsSoonAsPossible);
    }
    Ok(assemble(graph, machine, lowered, schedule, arenas?))
}

fn assemble(
    graph: &Arc<GraphData>,
    machine: &Machine,
    lowered: Lowered,
    schedule: Schedule,
    arenas: arena::Arenas,
) -> ExecutionPlan {
    let op_waits = waits::reduce(&lowered, &schedule, &arenas.edges);
    let lanes = plan_lanes(machine, &schedule);
    let (ops, waits) = flatten(&lowered, &schedule, &lanes, &op_waits);
    let mut task_ops = vec![OpIndex(0); graph.tasks.len()];
    for (at, op) in ops.iter().enumerate() {
        if let crate::plan::OpKind::Task(task) = op.kind {
            task_ops[task.index()] = OpIndex(at as u32);
        }
    }
    ExecutionPlan {
        graph_fingerprint: graph.fingerprint(),
        graph: Arc::clone(graph),
        machine: machine.clone(),
        task_devices: lowered.task_devices,
        task_ops,
        arg_memories: lowered.arg_memories,
        lanes,
        ops,
        waits,
        copies: lowered.copies,
        memories: lowered.memories,
        arena_bytes: arenas.bytes,
        is_proven: !graph.tasks.iter().any(|task| task.manual),
    }
}

/// The lanes of a machine: device after device, compute lanes first.
pub(crate) fn machine_lanes(machine: &Machine) -> Vec<(DeviceIndex, LaneKind)> {
    let mut lanes = Vec::new();
    for (at, device) in machine.devices().iter().enumerate() {
        let index = DeviceIndex(at as u16);
        lanes.extend((0..device.compute_lanes).map(|_| (index, LaneKind::Compute)));
        lanes.extend(device.copy_lane.then_some((index, LaneKind::Copy)));
    }
    lanes
}

fn plan_lanes(machine: &Machine, schedule: &Schedule) -> Vec<PlanLane> {
    let mut first = 0;
    (machine_lanes(machine).into_iter().zip(&schedule.lane_counts))
        .map(|((device, kind), &count)| {
            let lane = PlanLane { device, kind, first: OpIndex(first), count };
            first += count;
            lane
        })
        .collect()
}

/// Puts the ops in their lanes' order, with their waits and whether another op waits for them.
fn flatten(
    lowered: &Lowered,
    schedule: &Schedule,
    lanes: &[PlanLane],
    op_waits: &OpWaits,
) -> (Vec<Op>, Vec<crate::plan::Wait>) {
    let count = lowered.kinds.len();
    let mut by_place = vec![0u32; count];
    for op in 0..count {
        let lane = &lanes[schedule.lanes[op].index()];
        by_place[lane.first.index() + schedule.positions[op] as usize] = op as u32;
    }
    let mut waits = Vec::with_capacity(op_waits.waits.len());
    let mut ops: Vec<Op> = Vec::with_capacity(count);
    for &op in &by_place {
        let op = op as usize;
        let waits_start = waits.len() as u32;
        waits.extend_from_slice(op_waits.of(op));
        ops.push(Op {
            kind: lowered.kinds[op],
            waits_start,
            waits_end: waits.len() as u32,
            is_awaited: false,
            start_ns: schedule.starts[op],
            end_ns: schedule.ends[op],
        });
    }
    for wait in &waits {
        let LaneIndex(lane) = wait.lane;
        ops[lanes[lane as usize].first.index() + wait.count as usize - 1].is_awaited = true;
    }
    (ops, waits)
}
