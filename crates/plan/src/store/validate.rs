//! Every number by which a plan's parts find each other is in range.

use crate::check::CheckError;
use crate::compile::machine_lanes;
use crate::graph::{BufferKind, GraphData, TaskGraph};
use crate::plan::{ExecutionPlan, MemoryPlace, OpKind};

impl ExecutionPlan {
    /// Whether the plan refers to nothing outside itself, and each task and copy is run exactly
    /// once.
    ///
    /// Executors of a plan rely on this for memory safety: views end inside their memories,
    /// memories inside their arenas.
    pub(crate) fn validate(&self) -> Result<(), CheckError> {
        validate_graph(&self.graph)?;
        let graph = &*self.graph;
        let devices = self.machine.devices().len();
        ensure(self.task_devices.len() == graph.tasks.len(), "a device for each task")?;
        ensure(self.task_devices.iter().all(|device| device.index() < devices), "tasks' devices")?;
        ensure(self.arg_memories.len() == graph.args.len(), "a memory for each argument")?;
        ensure(self.arena_bytes.len() == devices, "an arena for each device")?;
        let fits = |&bytes: &u64| bytes <= TaskGraph::BYTES_MAX;
        ensure(self.arena_bytes.iter().all(fits), "arenas that can be addressed")?;
        self.validate_memories()?;
        self.validate_args()?;
        self.validate_copies()?;
        self.validate_ops()
    }

    fn validate_memories(&self) -> Result<(), CheckError> {
        for memory in &self.memories {
            let buffer = self.graph.buffers.get(memory.buffer.0 as usize);
            ensure(buffer.is_some_and(|buffer| buffer.bytes == memory.bytes), "memories' sizes")?;
            let arena = self.arena_bytes.get(memory.device.index());
            let fits = match memory.place {
                MemoryPlace::Bound => {
                    buffer.is_some_and(|buffer| buffer.kind == BufferKind::External)
                }
                MemoryPlace::Arena { offset } => arena.is_some_and(|&bytes| {
                    offset.checked_add(memory.bytes).is_some_and(|end| end <= bytes)
                }),
            };
            ensure(fits && arena.is_some(), "memories inside their arenas")?;
        }
        let key = |at: usize| (self.memories[at].buffer, self.memories[at].device);
        let sorted = (1..self.memories.len()).all(|at| key(at - 1) < key(at));
        ensure(sorted, "memories by buffer and device")
    }

    fn validate_args(&self) -> Result<(), CheckError> {
        for (task, device) in self.task_devices.iter().enumerate() {
            let args = self.graph.args_range(task);
            for (arg, memory) in self.graph.args[args.clone()].iter().zip(&self.arg_memories[args])
            {
                let place = &self.graph.places[arg.place as usize];
                let memory = self.memories.get(memory.index());
                let right = memory.is_some_and(|memory| {
                    memory.device == *device && memory.buffer.0 == u64::from(place.buffer)
                });
                ensure(right, "arguments in memories of their tasks' devices")?;
            }
        }
        Ok(())
    }

    fn validate_copies(&self) -> Result<(), CheckError> {
        for copy in &self.copies {
            let source = self.memories.get(copy.source.index());
            let target = self.memories.get(copy.target.index());
            let (Some(source), Some(target)) = (source, target) else {
                return ensure(false, "copies' memories");
            };
            ensure(source.buffer == target.buffer, "copies within one buffer")?;
            ensure(copy.source != copy.target, "copies between two memories")?;
            for view in &copy.views {
                let inside = view.span().is_none_or(|(_, end)| end <= source.bytes);
                ensure(inside && !view.is_broadcast(), "copies inside their buffers")?;
            }
        }
        Ok(())
    }

    fn validate_ops(&self) -> Result<(), CheckError> {
        let lanes = self.lanes.iter().map(|lane| (lane.device, lane.kind));
        ensure(lanes.eq(machine_lanes(&self.machine)), "the lanes of the machine")?;
        let total: u64 = self.lanes.iter().map(|lane| u64::from(lane.count)).sum();
        ensure(total == self.ops.len() as u64, "as many ops as the lanes have")?;
        let mut first = 0;
        for lane in &self.lanes {
            ensure(lane.first.0 == first, "lanes one after the other")?;
            first += lane.count;
        }
        ensure(self.task_ops.len() == self.graph.tasks.len(), "an op for each task")?;
        let mut seen_tasks = vec![false; self.graph.tasks.len()];
        let mut seen_copies = vec![false; self.copies.len()];
        let mut waits_end = 0;
        let lanes = self.lanes.iter().flat_map(|lane| (0..lane.count).map(|_| lane.device));
        for ((at, op), lane_device) in self.ops.iter().enumerate().zip(lanes) {
            let seen = match op.kind {
                OpKind::Task(task) => {
                    let here = self.task_ops.get(task.index()).is_some_and(|op| op.index() == at);
                    ensure(here, "ops of tasks")?;
                    let device = self.task_devices[task.index()];
                    ensure(lane_device == device, "tasks on lanes of their devices")?;
                    seen_tasks.get_mut(task.index())
                }
                OpKind::Copy(copy) => {
                    if let Some(copy) = self.copies.get(copy.index()) {
                        let ends =
                            [copy.source, copy.target].map(|memory| self.memories[memory.index()]);
                        let near = ends.iter().any(|memory| memory.device == lane_device);
                        ensure(near, "copies on lanes of one of their devices")?;
                    }
                    seen_copies.get_mut(copy.index())
                }
            };
            let fresh = seen.is_some_and(|seen| !std::mem::replace(seen, true));
            ensure(fresh, "each task and copy once")?;
            ensure(op.start_ns <= op.end_ns, "ops that end after they begin")?;
            ensure(op.waits_start == waits_end && op.waits_end >= waits_end, "waits in order")?;
            waits_end = op.waits_end;
        }
        ensure(seen_tasks.iter().chain(&seen_copies).all(|&seen| seen), "every task and copy")?;
        ensure(waits_end as usize == self.waits.len(), "as many waits as the ops have")?;
        for wait in &self.waits {
            let lane = self.lanes.get(wait.lane.index());
            let inside = lane.is_some_and(|lane| wait.count >= 1 && wait.count <= lane.count);
            ensure(inside, "waits for ops that there are")?;
            let op = self.lanes[wait.lane.index()].first.index() + wait.count as usize - 1;
            ensure(self.ops[op].is_awaited, "awaited ops are marked")?;
        }
        Ok(())
    }
}

fn validate_graph(graph: &GraphData) -> Result<(), CheckError> {
    let named = |name: u32| (name as usize) < graph.names.len();
    for buffer in &graph.buffers {
        ensure(buffer.bytes <= TaskGraph::BYTES_MAX, "buffers that can be addressed")?;
        ensure(named(buffer.name.0) && buffer.home.is_none_or(|home| named(home.0)), "names")?;
    }
    for place in &graph.places {
        let buffer = graph.buffers.get(place.buffer as usize);
        let inside = buffer
            .is_some_and(|buffer| place.view.span().is_none_or(|(_, end)| end <= buffer.bytes));
        ensure(inside, "places inside their buffers")?;
    }
    for arg in &graph.args {
        let place = graph.places.get(arg.place as usize);
        let sound = place.is_some_and(|place| !(arg.access.writes() && place.view.is_broadcast()));
        ensure(sound, "arguments' places")?;
    }
    let (mut args, mut edges, mut deps) = (0, 0, 0);
    for (at, task) in graph.tasks.iter().enumerate() {
        ensure(named(task.name.0) && named(task.kernel.0), "names")?;
        let ordered = task.args_end >= args && task.edges_end >= edges && task.deps_end >= deps;
        (args, edges, deps) = (task.args_end, task.edges_end, task.deps_end);
        let inside = args as usize <= graph.args.len()
            && edges as usize <= graph.edges.len()
            && deps as usize <= graph.deps.len()
            && task.choice as usize <= graph.choices.len();
        ensure(ordered && inside, "tasks' tables")?;
        let earlier = graph.edges_of(at).iter().map(|edge| edge.pred);
        let mut earlier = earlier.chain(graph.deps_of(at).iter().copied());
        ensure(earlier.all(|pred| pred.index() < at), "edges from earlier tasks")?;
    }
    ensure(args as usize == graph.args.len(), "as many arguments as the tasks have")?;
    ensure(graph.choices.iter().flatten().all(|name| named(name.0)), "names")
}

fn ensure(holds: bool, what: &str) -> Result<(), CheckError> {
    if holds {
        Ok(())
    } else {
        Err(CheckError::Malformed { what: format!("expected {what}").into() })
    }
}
