//! Execution plans: per lane a flat list of ops, with only the waits that order does not already
//! imply.

mod index;

use std::sync::Arc;

use syncline_tensor::{Access, BufferId, View};

pub use index::{CopyIndex, LaneIndex, MemoryIndex, OpIndex, TaskIndex};

use crate::compile::{self, CompileError, CompileOptions};
use crate::graph::{BufferInfo, BufferKind, GraphData, TaskGraph, TaskInfo};
use crate::machine::{DeviceIndex, Machine};

/// Every memory in an arena begins at a multiple of this: the cache line, and what keeps `memcpy`
/// fast.
pub(crate) const ARENA_ALIGN: u64 = 64;

/// A compiled graph: what runs on which lane, in which order, waiting for what, in which memory.
///
/// A plan never changes, holds no device and no pointer, and can be shared by any number of
/// threads.
///
/// Ops are numbered lane after lane, so that a lane's ops are neighbours. Op number `n` of a lane
/// has finished when the lane's count is above `n`; a [`Wait`] names a lane and the count to be
/// reached.
#[derive(Clone, Debug)]
pub struct ExecutionPlan {
    pub(crate) graph: Arc<GraphData>,
    pub(crate) machine: Machine,
    pub(crate) graph_fingerprint: u64,
    pub(crate) task_devices: Vec<DeviceIndex>,
    pub(crate) task_ops: Vec<OpIndex>,
    /// Parallel to the graph's arguments.
    pub(crate) arg_memories: Vec<MemoryIndex>,
    pub(crate) lanes: Vec<PlanLane>,
    pub(crate) ops: Vec<Op>,
    pub(crate) waits: Vec<Wait>,
    pub(crate) copies: Vec<Copy>,
    /// By buffer, then by device.
    pub(crate) memories: Vec<Memory>,
    pub(crate) arena_bytes: Vec<u64>,
    /// Made by the compiler or proven since, and without anything that its author orders by hand.
    pub(crate) is_proven: bool,
}

/// An in-order list of ops on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLane {
    /// Whose lane it is.
    pub device: DeviceIndex,
    /// What it is for.
    pub kind: LaneKind,
    /// Number of its first op.
    pub first: OpIndex,
    /// How many ops it has.
    pub count: u32,
}

/// What a lane is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    /// Tasks, and copies where the device has no copy lane.
    Compute,
    /// Copies only.
    Copy,
}

/// One entry of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// What it does.
    pub kind: OpKind,
    pub(crate) waits_start: u32,
    pub(crate) waits_end: u32,
    /// Whether another lane waits for exactly this op: only then need its completion be made known.
    pub is_awaited: bool,
    /// When it is expected to begin, from the start of a run.
    pub start_ns: u64,
    /// When it is expected to end.
    pub end_ns: u64,
}

/// What an op does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Runs a task's kernel.
    Task(TaskIndex),
    /// Copies bytes from one memory to another.
    Copy(CopyIndex),
}

/// "Not before `count` ops of `lane` have finished."
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wait {
    /// The lane waited for.
    pub lane: LaneIndex,
    /// How many of its ops must have finished.
    pub count: u32,
}

/// Bytes moved between two memories of one buffer: the views are the same in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The memory read.
    pub source: MemoryIndex,
    /// The memory written.
    pub target: MemoryIndex,
    /// Which bytes: views that are disjoint.
    pub views: Box<[View]>,
}

impl Copy {
    /// How many bytes are moved.
    pub fn bytes(&self) -> u64 {
        self.views.iter().map(View::bytes).fold(0, u64::saturating_add)
    }
}

/// The memory of one buffer on one device; its offsets are the buffer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Whose bytes they are.
    pub buffer: BufferId,
    /// Where.
    pub device: DeviceIndex,
    /// How many; the buffer's size.
    pub bytes: u64,
    /// Who brings it.
    pub place: MemoryPlace,
}

/// Who brings a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPlace {
    /// The caller binds it at each run.
    Bound,
    /// It lies at `offset` in its device's arena, where others may lie before and after it in time.
    Arena {
        /// Bytes from the arena's start; a multiple of 64.
        offset: u64,
    },
}

/// An argument of a task as the plan resolved it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanArg<'a> {
    /// What the task does with the bytes.
    pub access: Access,
    /// The memory that they are in.
    pub memory: MemoryIndex,
    /// Which bytes of it.
    pub view: &'a View,
}

impl ExecutionPlan {
    /// Compiles `graph` for `machine`.
    pub fn compile(
        graph: &TaskGraph,
        machine: &Machine,
        options: &CompileOptions<'_>,
    ) -> Result<Self, CompileError> {
        compile::compile(graph.data(), machine, options)
    }

    /// The machine it was made for.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The fingerprint of the graph it was made from.
    pub fn graph_fingerprint(&self) -> u64 {
        self.graph_fingerprint
    }

    /// Whether this is a plan of `graph` for `machine`.
    pub fn is_of(&self, graph: &TaskGraph, machine: &Machine) -> bool {
        self.machine == *machine && self.graph_fingerprint == graph.fingerprint()
    }

    /// The lanes.
    pub fn lanes(&self) -> &[PlanLane] {
        &self.lanes
    }

    /// All ops, lane after lane.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The ops of one lane, in order.
    pub fn lane_ops(&self, lane: LaneIndex) -> &[Op] {
        let lane = &self.lanes[lane.index()];
        &self.ops[lane.first.index()..][..lane.count as usize]
    }

    /// What `op` waits for.
    #[inline]
    pub fn waits_of(&self, op: &Op) -> &[Wait] {
        &self.waits[op.waits_start as usize..op.waits_end as usize]
    }

    /// All waits, in the order of their ops.
    pub fn waits(&self) -> &[Wait] {
        &self.waits
    }

    /// The copies that were inserted.
    pub fn copies(&self) -> &[Copy] {
        &self.copies
    }

    /// The memories, by buffer and then by device.
    pub fn memories(&self) -> &[Memory] {
        &self.memories
    }

    /// Bytes of each device's arena.
    pub fn arena_bytes(&self) -> &[u64] {
        &self.arena_bytes
    }

    /// Bytes that `device` needs in all: its arena and the buffers bound there.
    pub fn device_bytes(&self, device: DeviceIndex) -> u64 {
        let bound = (self.memories.iter())
            .filter(|memory| memory.device == device && memory.place == MemoryPlace::Bound)
            .map(|memory| memory.bytes);
        bound.fold(self.arena_bytes[device.index()], u64::saturating_add)
    }

    /// The tasks, in submission order.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = TaskInfo<'_>> {
        self.graph.tasks()
    }

    /// One task.
    pub fn task(&self, task: TaskIndex) -> TaskInfo<'_> {
        self.graph.task(task)
    }

    /// The device that `task` runs on.
    pub fn device_of(&self, task: TaskIndex) -> DeviceIndex {
        self.task_devices[task.index()]
    }

    /// The op that runs `task`.
    pub fn op_of(&self, task: TaskIndex) -> OpIndex {
        self.task_ops[task.index()]
    }

    /// The arguments of `task`, each with its memory on the task's device.
    pub fn args_of(&self, task: TaskIndex) -> impl ExactSizeIterator<Item = PlanArg<'_>> {
        let range = self.graph.args_range(task.index());
        let memories = &self.arg_memories[range.clone()];
        self.graph.args[range].iter().zip(memories).map(|(arg, &memory)| PlanArg {
            access: arg.access,
            memory,
            view: &self.graph.places[arg.place as usize].view,
        })
    }

    /// The graph's buffers, by id.
    pub fn buffers(&self) -> impl ExactSizeIterator<Item = BufferInfo<'_>> {
        self.graph.buffers()
    }

    /// The memories that the caller binds at each run.
    pub fn bound_memories(&self) -> impl Iterator<Item = (MemoryIndex, &Memory)> {
        let numbered = self.memories.iter().enumerate();
        numbered
            .filter(|(_, memory)| memory.place == MemoryPlace::Bound)
            .map(|(at, memory)| (MemoryIndex(at as u32), memory))
    }

    /// Whether any task writes `buffer`.
    ///
    /// Two buffers may be bound to overlapping memory only where neither is written.
    pub fn writes(&self, buffer: BufferId) -> bool {
        self.graph.args.iter().any(|arg| {
            u64::from(self.graph.places[arg.place as usize].buffer) == buffer.0
                && arg.access.writes()
        })
    }

    /// How long a run is expected to take.
    pub fn makespan_ns(&self) -> u64 {
        self.ops.iter().map(|op| op.end_ns).max().unwrap_or(0)
    }

    /// The same plan without wait number `wait` of [`ExecutionPlan::waits`].
    ///
    /// Such a plan must not be run. Checking it tells why the wait is there: see
    /// [`ExecutionPlan::reason_for`].
    pub fn without_wait(&self, wait: usize) -> Self {
        let mut plan = self.clone();
        plan.is_proven = false;
        plan.waits.remove(wait);
        for op in &mut plan.ops {
            op.waits_start -= u32::from(op.waits_start as usize > wait);
            op.waits_end -= u32::from(op.waits_end as usize > wait);
        }
        plan
    }

    pub(crate) fn is_temporary(&self, buffer: BufferId) -> bool {
        self.graph.buffers[buffer.0 as usize].kind == BufferKind::Temporary
    }

    /// The lane of an op and its position there.
    pub fn position_of(&self, op: OpIndex) -> (LaneIndex, u32) {
        let lane = self.lanes.partition_point(|lane| lane.first <= op) - 1;
        // Empty lanes begin where the next one does; the last that begins at or before the op is
        // the one that has it.
        (LaneIndex(lane as u16), op.0 - self.lanes[lane].first.0)
    }
}
