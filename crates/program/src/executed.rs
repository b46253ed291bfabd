//! What a run executed, as a trace: its tasks and the copies between devices, over the memories that they touched.
//!
//! A program knows buffers; a plan keeps a buffer in several memories, one for each device that needs it, and copies
//! between them. Written down as a trace over memories, a run's copies are tasks like any other, and what waited for
//! what is found by the same replay that finds the dependencies of the program.

use serde_json::{Value, json};
use syncline_deps::trace::{Lane, Trace, TraceBuffer, TraceTask};
use syncline_deps::{Access, Arg, BufferId, ScopeKind};
use syncline_plan::{
    Copy, ExecutionPlan, LaneIndex, MemoryIndex, MemoryPlace, OpIndex, OpKind, TaskIndex,
};

use crate::program::Program;
use crate::run::{Run, Timing};

/// The trace of a run.
#[derive(Clone, Debug)]
pub struct Executed {
    /// Tasks and copies, in an order in which the plan could have run them one by one.
    pub trace: Trace,
    /// For each entry of the trace the id of the program's task; copies have ids above all of those.
    pub ids: Vec<u64>,
}

impl Program {
    /// What `run` executed. A run without a plan copies nothing: its trace is the program's own, with times.
    pub fn executed(&self, run: &Run) -> Executed {
        match &run.plan {
            Some(plan) => Writer::new(self, run, plan).write(),
            None => {
                let trace = self.timed_trace(run);
                let ids = trace.tasks.iter().map(|task| task.id).collect();
                Executed { trace, ids }
            }
        }
    }
}

struct Writer<'a> {
    program: &'a Program,
    run: &'a Run,
    plan: &'a ExecutionPlan,
    /// Which of the run's copies an op is, for ops that copy.
    copy_number: Vec<usize>,
    /// Position in the trace of every task that was written.
    written: Vec<Option<u64>>,
    is_used: Vec<bool>,
    trace: Trace,
    ids: Vec<u64>,
}

impl<'a> Writer<'a> {
    fn new(program: &'a Program, run: &'a Run, plan: &'a ExecutionPlan) -> Self {
        let mut copies = 0..;
        let number = |op: &syncline_plan::Op| match op.kind {
            OpKind::Copy(_) => copies.next().expect("endless"),
            OpKind::Task(_) => 0,
        };
        Self {
            program,
            run,
            plan,
            copy_number: plan.ops().iter().map(number).collect(),
            written: vec![None; plan.tasks().len()],
            is_used: vec![false; plan.memories().len()],
            trace: Trace { buffers: buffers(plan), ..Trace::default() },
            ids: Vec::with_capacity(plan.ops().len()),
        }
    }

    fn write(mut self) -> Executed {
        for op in serial_order(self.plan) {
            let entry = match self.plan.ops()[op.index()].kind {
                OpKind::Task(task) => self.task(task),
                OpKind::Copy(copy) => {
                    let number = self.copy_number[op.index()];
                    self.copy(&self.plan.copies()[copy.index()], number)
                }
            };
            self.trace.tasks.push(entry);
        }
        Executed { trace: self.trace, ids: self.ids }
    }

    fn task(&mut self, task: TaskIndex) -> TraceTask {
        let source = &self.program.trace().tasks[task.index()];
        let args: Vec<Arg> = self
            .plan
            .args_of(task)
            .map(|arg| Arg { access: arg.access, buffer: memory_id(arg.memory), view: *arg.view })
            .collect();
        let args: Vec<Arg> = args.into_iter().map(|arg| self.first_use(arg)).collect();
        let mut entry = TraceTask::new(self.next_id(), source.label(), args);
        // The plan is proven: what a manual scope orders by hand is ordered by conflicts too, or by its explicit
        // dependencies.
        entry.scope = ScopeKind::Auto;
        let position = |id: &u64| {
            let index = self.program.trace().tasks.binary_search_by_key(id, |task| task.id);
            index.ok().and_then(|index| self.written[index])
        };
        entry.deps = source.deps.iter().filter_map(position).collect();
        entry.extra = source.extra.clone();
        self.written[task.index()] = Some(entry.id);
        self.ids.push(source.id);
        self.timed(entry, self.run.timings[task.index()], self.plan.device_of(task).index())
    }

    fn copy(&mut self, copy: &Copy, number: usize) -> TraceTask {
        let reads = copy.views.iter().map(|&view| (Access::Input, copy.source, view));
        let writes = copy.views.iter().map(|&view| (Access::OutputExisting, copy.target, view));
        let args: Vec<Arg> = reads
            .chain(writes)
            .map(|(access, memory, view)| Arg { access, buffer: memory_id(memory), view })
            .map(|arg| self.first_use(arg))
            .collect();
        let timing = &self.run.copies[number];
        let mut entry = TraceTask::new(self.next_id(), &timing.route, args);
        entry.extra.insert("kind".to_owned(), Value::from("copy"));
        entry.extra.insert("bytes".to_owned(), Value::from(copy.bytes()));
        let after_tasks = self.program.trace().tasks.last().map_or(0, |task| task.id + 1);
        self.ids.push(after_tasks + number as u64);
        // Where it ran: copies are pulled by one device's lane or pushed by the other's.
        let device = self.plan.lanes()[timing.timing.lane].device.index();
        self.timed(entry, timing.timing, device)
    }

    /// Memory in an arena begins with whoever first writes it; what is bound was there before.
    fn first_use(&mut self, arg: Arg) -> Arg {
        let memory = arg.buffer.0 as usize;
        let is_first = !std::mem::replace(&mut self.is_used[memory], true);
        let in_arena = self.plan.memories()[memory].place != MemoryPlace::Bound;
        let access = match arg.access {
            Access::Output | Access::OutputExisting if is_first && in_arena => Access::Output,
            Access::Output => Access::OutputExisting,
            other => other,
        };
        Arg { access, ..arg }
    }

    fn next_id(&self) -> u64 {
        self.trace.tasks.len() as u64
    }

    fn timed(&self, mut entry: TraceTask, timing: Timing, device: usize) -> TraceTask {
        entry.start_ns = Some(timing.start_ns);
        entry.end_ns = Some(timing.end_ns);
        entry.lane = Some(Lane::Name(self.run.lanes[timing.lane].as_str().into()));
        entry.device = Some(Value::from(self.plan.machine().devices()[device].name.as_str()));
        entry
    }
}

fn memory_id(memory: MemoryIndex) -> BufferId {
    BufferId(memory.index() as u64)
}

/// A buffer for each memory: called as the program's is, and lying on its device, or at a place in its arena.
fn buffers(plan: &ExecutionPlan) -> Vec<TraceBuffer> {
    let names: Vec<String> = plan
        .buffers()
        .map(|buffer| match buffer.name {
            "" => buffer.id.to_string(),
            name => name.to_owned(),
        })
        .collect();
    let buffer = |(index, memory): (u64, &syncline_plan::Memory)| {
        let name = &names[memory.buffer.0 as usize];
        let mut buffer = TraceBuffer::new(BufferId(index), memory.bytes).named(name);
        let device = &plan.machine().devices()[memory.device.index()].name;
        let place = match memory.place {
            MemoryPlace::Bound => device.clone(),
            MemoryPlace::Arena { offset } => {
                buffer.extra.insert("offset".to_owned(), json!(offset));
                format!("{device} arena")
            }
        };
        buffer.extra.insert("device".to_owned(), Value::from(place));
        buffer
    };
    (0..).zip(plan.memories()).map(buffer).collect()
}

/// An order in which a plan's ops could run one by one: lane after lane, each as far as its waits allow.
fn serial_order(plan: &ExecutionPlan) -> Vec<OpIndex> {
    let mut done = vec![0u32; plan.lanes().len()];
    let mut order = Vec::with_capacity(plan.ops().len());
    while order.len() < plan.ops().len() {
        let before = order.len();
        for (lane, info) in plan.lanes().iter().enumerate() {
            let ops = plan.lane_ops(LaneIndex(lane as u16));
            for op in &ops[done[lane] as usize..] {
                let ready = |wait: &syncline_plan::Wait| done[wait.lane.index()] >= wait.count;
                if !plan.waits_of(op).iter().all(ready) {
                    break;
                }
                order.push(OpIndex(info.first.0 + done[lane]));
                done[lane] += 1;
            }
        }
        assert!(order.len() > before, "a plan that was run cannot hang");
    }
    order
}
