//! Plans on paper: text for people, JSON for programs, DOT for pictures.

mod dot;
#[cfg(feature = "json")]
mod json;
mod text;

use crate::plan::{ExecutionPlan, Op, OpKind};

impl ExecutionPlan {
    /// The plan as text: devices, memory, and each lane's ops with what they wait for.
    pub fn to_text(&self) -> String {
        text::print(self)
    }

    /// The plan as JSON, format `syncline-plan`.
    #[cfg(feature = "json")]
    pub fn to_json(&self) -> String {
        json::print(self)
    }

    /// The plan as a graph in the DOT language: a cluster a lane, an edge a wait.
    pub fn to_dot(&self) -> String {
        dot::print(self)
    }

    fn op_name(&self, op: &Op) -> String {
        match op.kind {
            OpKind::Task(task) => format!("{task} {}", self.task(task).name()),
            OpKind::Copy(copy) => {
                let index = copy;
                let copy = &self.copies[index.index()];
                let device = |memory: crate::plan::MemoryIndex| {
                    &*self.machine.devices()[self.memories[memory.index()].device.index()].name
                };
                format!(
                    "{index} copy {} {} -> {}, {} bytes",
                    self.buffer_name(copy.source),
                    device(copy.source),
                    device(copy.target),
                    copy.bytes()
                )
            }
        }
    }

    /// `cpu:0 compute`, as lanes are called on paper.
    fn lane_name(&self, lane: usize) -> String {
        let lane = &self.lanes[lane];
        let kind = match lane.kind {
            crate::plan::LaneKind::Compute => "compute",
            crate::plan::LaneKind::Copy => "copy",
        };
        format!("{} {kind}", self.machine.devices()[lane.device.index()].name)
    }
}
