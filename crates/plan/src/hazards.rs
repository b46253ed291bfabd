//! Hazards: what each op must come after by the bytes it touches, in its own run and in the run
//! before.
//!
//! A plan's lanes order more than the data ask for: an op follows its neighbour whether or not the
//! two have anything to do with each other. The result is minimal: the ops go in an order
//! that the plan allows through the same [`Submitter`] that records graphs, twice over, as two runs
//! one after the other. Their buffers are the memories themselves, so that two temporaries in the
//! same bytes of an arena conflict like any two uses of one buffer.
//!
//! Replay needs it for two things: idle lanes take ops out of their lane's order, and a run begins
//! before the one before has ended.

use syncline_deps::{DepInputs, EdgeFlags, SubmitOptions, Submitter};
use syncline_tensor::{Access, Arg, BufferId, TaskId, View};

use crate::check::Happens;
use crate::plan::{ExecutionPlan, MemoryIndex, MemoryPlace, OpIndex, OpKind};

/// "Not before `op` has finished": in the same run, or in the run before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpDep {
    /// What must have finished.
    pub op: OpIndex,
    /// Whether the run before is meant.
    pub is_of_last_run: bool,
}

/// For every op of a plan what it must come after, and nothing that its bytes do not ask for.
///
/// That an op comes after itself in the run before goes without saying. Explicit deps are among
/// them; what other deps imply may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpDeps {
    ends: Vec<u32>,
    deps: Vec<OpDep>,
}

impl OpDeps {
    /// What `op` must come after.
    #[inline]
    pub fn of(&self, op: OpIndex) -> &[OpDep] {
        let start = if op.0 == 0 { 0 } else { self.ends[op.index() - 1] };
        &self.deps[start as usize..self.ends[op.index()] as usize]
    }

    /// How many ops there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no ops.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The same without dep number `at`, counted over all ops; such deps must not be run by.
    #[must_use]
    pub fn without(&self, at: usize) -> Self {
        let mut deps = self.clone();
        deps.deps.remove(at);
        deps.ends.iter_mut().for_each(|end| *end -= u32::from(*end as usize > at));
        deps
    }

    /// All of them, in the order of their ops.
    pub fn all(&self) -> &[OpDep] {
        &self.deps
    }
}

impl ExecutionPlan {
    /// What each op must come after by the bytes it touches.
    pub fn op_deps(&self) -> OpDeps {
        let happens =
            Happens::of(self).expect("the lanes of a plan that was checked come to their ends");
        let mut submitter = Submitter::new(SubmitOptions::default());
        let declared = "ids and sizes are the plan's own";
        for (device, &bytes) in self.arena_bytes.iter().enumerate() {
            submitter.declare_buffer(BufferId(device as u64), bytes).expect(declared);
        }
        for (memory, record) in self.bound_memories() {
            submitter.declare_buffer(self.block_of(memory), record.bytes).expect(declared);
        }
        let count = self.ops.len();
        // The place of each op in the sequence is its number as a task of the first run.
        let mut places = vec![0u64; count];
        for (at, op) in happens.sequence.iter().enumerate() {
            places[op.index()] = at as u64;
        }
        let mut found: Vec<(u32, OpDep)> = Vec::new();
        let (mut args, mut deps) = (Vec::new(), Vec::new());
        for run in 0..2u64 {
            let first = run * count as u64;
            for &op in &happens.sequence {
                args.clear();
                deps.clear();
                self.each_use(op, |block, view, access| args.push(Arg::new(access, block, view)));
                if let OpKind::Task(task) = self.ops[op.index()].kind {
                    deps.extend(self.graph.deps_of(task.index()).iter().map(|dep| {
                        TaskId::new(0, first + places[self.task_ops[dep.index()].index()])
                    }));
                }
                let inputs = DepInputs { args: &args, deps: &deps };
                let submitted = submitter.submit(inputs, |edge| {
                    if run == 1 && edge.flags.contains(EdgeFlags::WAIT) {
                        let pred = edge.pred.sequence();
                        let is_of_last_run = pred < first;
                        let place = if is_of_last_run { pred } else { pred - first };
                        let pred = happens.sequence[place as usize];
                        // After itself goes without saying.
                        if pred != op {
                            found.push((op.0, OpDep { op: pred, is_of_last_run }));
                        }
                    }
                });
                submitted.expect("views lie inside their memories, deps come first");
            }
        }
        found.sort_unstable();
        let mut ends = vec![0u32; count];
        for &(op, _) in &found {
            ends[op as usize] += 1;
        }
        for at in 1..count {
            ends[at] += ends[at - 1];
        }
        OpDeps { ends, deps: found.into_iter().map(|(_, dep)| dep).collect() }
    }

    /// The block of bytes that `memory` lies in: an arena, or what the caller binds.
    fn block_of(&self, memory: MemoryIndex) -> BufferId {
        let record = &self.memories[memory.index()];
        match record.place {
            MemoryPlace::Arena { .. } => BufferId(record.device.index() as u64),
            MemoryPlace::Bound => BufferId((self.machine.devices().len() + memory.index()) as u64),
        }
    }

    /// Returns `view` of `memory` as a view of the block that the memory lies in: in an arena it is
    /// shifted by the memory's offset.
    ///
    /// # Panics
    /// The view reaches past the end of the memory, so far that it cannot be expressed.
    pub fn view_in_block(&self, memory: MemoryIndex, view: &View) -> View {
        match self.memories[memory.index()].place {
            MemoryPlace::Bound => *view,
            MemoryPlace::Arena { offset } => {
                let (shape, strides) = (view.shape(), view.strides());
                View::strided(view.dtype(), view.offset() + offset, shape, strides)
                    .expect("the view lies inside its memory, and that inside the arena")
            }
        }
    }

    /// Calls `each` with every block, the bytes of it and the access that `op` makes; reading,
    /// writing or both.
    pub(crate) fn each_use(&self, op: OpIndex, mut each: impl FnMut(BufferId, View, Access)) {
        let mut one = |memory: MemoryIndex, view: &View, access: Access| {
            // An empty view touches nothing, and may lie anywhere.
            if view.is_empty() {
                return;
            }
            each(self.block_of(memory), self.view_in_block(memory, view), access);
        };
        match self.ops[op.index()].kind {
            OpKind::Task(task) => {
                for arg in self.args_of(task) {
                    let access = match (arg.access, arg.access.reads(), arg.access.writes()) {
                        (Access::NoDep, _, _) => continue,
                        // Updates that commute were put in an order, and a run is to give what that
                        // order gives.
                        (_, true, true) => Access::InOut,
                        (_, _, true) => Access::OutputExisting,
                        _ => Access::Input,
                    };
                    one(arg.memory, arg.view, access);
                }
            }
            OpKind::Copy(copy) => {
                let copy = &self.copies[copy.index()];
                for view in &copy.views {
                    one(copy.source, view, Access::Input);
                    one(copy.target, view, Access::OutputExisting);
                }
            }
        }
    }
}
