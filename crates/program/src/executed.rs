//! What a run executed, as a trace: its tasks and the copies between devices, over the memories
//! that they touched.
//!
//! A program knows buffers; a plan keeps a buffer in several memories, one for each device that
//! needs it, and copies between them. Written down as a trace over memories, a run's copies are
//! tasks like any other, and the waits are found by the same replay that finds the
//! dependencies of the program. Only that memories share bytes of an arena is not to be seen there:
//! [`Executed::reuses`] says who waited for whom because of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use syncline_deps::ScopeKind;
use syncline_plan::{
    Copy, ExecutionPlan, LaneIndex, MemoryIndex, MemoryPlace, OpIndex, OpKind, TaskIndex,
};
use syncline_tensor::{Access, Arg, BufferId, Region};
use syncline_trace::{Trace, TraceBuffer, TraceLane, TraceTask};

use crate::program::Program;
use crate::run::{ProgramRun, TaskTiming};

/// The trace of a run.
#[derive(Clone, Debug)]
pub struct Executed {
    /// Tasks and copies, in an order in which the plan could have run them one by one.
    pub trace: Trace,
    /// For each entry of the trace the id of the program's task; copies have ids above all of
    /// those.
    pub ids: Vec<u64>,
    /// Who had to wait for bytes that another memory lay in.
    pub reuses: Vec<ByteReuse>,
}

/// An op that had to wait until another had done with bytes of an arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteReuse {
    /// Position in the trace of an op that used the old memory: the last on its lane, or, where
    /// lanes steal, one that used these very bytes.
    pub pred: usize,
    /// Position in the trace of an op that used the new memory: the first on its lane, or, where
    /// lanes steal, one that used these very bytes.
    pub succ: usize,
    /// What people call the bytes, such as `cpu:0 arena[0:4096], where `q` lay`.
    pub region: String,
}

impl Program {
    /// What `run` executed. A run without a plan copies nothing: its trace is the program's own,
    /// with times, and all its memory was there from the start.
    pub fn executed(&self, run: &ProgramRun) -> Executed {
        match &run.plan {
            Some(plan) => Writer::new(self, run, plan).write(),
            None => {
                let mut trace = self.timed_trace(run);
                let args = trace.tasks.iter_mut().flat_map(|task| &mut task.args);
                for arg in args.filter(|arg| arg.arg.access == Access::Output) {
                    arg.arg.access = Access::OutputExisting;
                }
                let ids = trace.tasks.iter().map(|task| task.id).collect();
                Executed { trace, ids, reuses: Vec::new() }
            }
        }
    }
}

struct Writer<'a> {
    program: &'a Program,
    run: &'a ProgramRun,
    plan: &'a ExecutionPlan,
    /// Which of the run's copies an op is, for ops that copy.
    copy_number: Vec<usize>,
    /// Position in the trace of every task that was written.
    written: Vec<Option<u64>>,
    /// By op: its position in the trace.
    entry_of: Vec<usize>,
    /// By memory: on each lane of the plan the first and the last entry that used it.
    users: Vec<Vec<(LaneIndex, u64, u64)>>,
    lanes: Vec<TraceLane>,
    trace: Trace,
    ids: Vec<u64>,
}

impl<'a> Writer<'a> {
    fn new(program: &'a Program, run: &'a ProgramRun, plan: &'a ExecutionPlan) -> Self {
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
            entry_of: vec![0; plan.ops().len()],
            users: vec![Vec::new(); plan.memories().len()],
            lanes: run.lanes.iter().map(|name| TraceLane::Name(name.as_str().into())).collect(),
            trace: Trace { buffers: buffers(plan), ..Trace::default() },
            ids: Vec::with_capacity(plan.ops().len()),
        }
    }

    fn write(mut self) -> Executed {
        self.trace.tasks.reserve_exact(self.plan.ops().len());
        for (lane, op) in serial_order(self.plan) {
            let entry = match self.plan.ops()[op.index()].kind {
                OpKind::Task(task) => self.task(task, lane),
                OpKind::Copy(copy) => {
                    let number = self.copy_number[op.index()];
                    self.copy(&self.plan.copies()[copy.index()], number, lane)
                }
            };
            self.entry_of[op.index()] = self.trace.tasks.len();
            self.trace.tasks.push(entry);
        }
        let reuses = match self.run.steals {
            true => self.reuses_by_bytes(),
            false => self.reuses_by_lane(),
        };
        self.run.list_lanes(&mut self.trace);
        Executed { trace: self.trace, ids: self.ids, reuses }
    }

    fn task(&mut self, task: TaskIndex, lane: LaneIndex) -> TraceTask {
        let source = &self.program.trace().tasks[task.index()];
        let plan = self.plan;
        let args: Vec<Arg> = (plan.args_of(task))
            .map(|arg| Arg { access: arg.access, buffer: memory_id(arg.memory), view: *arg.view })
            .map(|arg| self.used(arg, lane))
            .collect();
        let mut entry = TraceTask::new(self.next_id(), source.label(), args);
        // The plan is proven: what a manual scope orders by hand is ordered by conflicts too, or by
        // its explicit dependencies.
        entry.scope = ScopeKind::Auto;
        let position = |id: &u64| {
            let index = self.program.trace().tasks.binary_search_by_key(id, |task| task.id);
            index.ok().and_then(|index| self.written[index])
        };
        entry.deps = source.deps.iter().filter_map(position).collect();
        self.written[task.index()] = Some(entry.id);
        self.ids.push(source.id);
        self.timed(entry, self.run.timings[task.index()], self.plan.device_of(task).index())
    }

    fn copy(&mut self, copy: &Copy, number: usize, lane: LaneIndex) -> TraceTask {
        let reads = copy.views.iter().map(|&view| (Access::Input, copy.source, view));
        let writes = copy.views.iter().map(|&view| (Access::OutputExisting, copy.target, view));
        let args: Vec<Arg> = reads
            .chain(writes)
            .map(|(access, memory, view)| Arg { access, buffer: memory_id(memory), view })
            .map(|arg| self.used(arg, lane))
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

    /// Notes who uses a memory. In an arena it begins with its first writer; bound memory
    /// was there before.
    fn used(&mut self, arg: Arg, lane: LaneIndex) -> Arg {
        let memory = arg.buffer.0 as usize;
        let in_arena = self.plan.memories()[memory].place != MemoryPlace::Bound;
        let (entry, users) = (self.next_id(), &mut self.users[memory]);
        let is_first = users.is_empty();
        match users.iter_mut().find(|user| user.0 == lane) {
            Some(user) => user.2 = entry,
            None if in_arena => users.push((lane, entry, entry)),
            None => {}
        }
        let access = match arg.access {
            Access::Output | Access::OutputExisting if is_first && in_arena => Access::Output,
            Access::Output => Access::OutputExisting,
            other => other,
        };
        Arg { access, ..arg }
    }

    /// Returns the reuses that lanes which steal go by: of two ops that use the same bytes of an
    /// arena for two memories. A memory may begin to be used where the old one is over, while other
    /// bytes of the old one are still in use.
    fn reuses_by_bytes(&self) -> Vec<ByteReuse> {
        let deps = self.plan.op_deps();
        let mut reuses = Vec::new();
        for op in 0..deps.len() as u32 {
            for dep in deps.of(OpIndex(op)).iter().filter(|dep| !dep.is_of_last_run) {
                let [pred, succ] = [dep.op, OpIndex(op)].map(|op| self.entry_of[op.index()]);
                reuses.extend(self.reuse_between(pred, succ));
            }
        }
        reuses
    }

    /// Returns the first bytes found that both entries use, one of them to write, as two memories.
    fn reuse_between(&self, pred: usize, succ: usize) -> Option<ByteReuse> {
        let uses = |entry: usize| {
            let args = self.trace.tasks[entry].args.iter().map(|arg| arg.arg);
            args.filter(|arg| arg.access != Access::NoDep && !arg.view.is_empty())
        };
        let place = |arg: &Arg| {
            let memory = &self.plan.memories()[arg.buffer.0 as usize];
            (memory.place != MemoryPlace::Bound).then_some(memory.device)
        };
        let region = |arg: &Arg| {
            Region::of(&self.plan.view_in_block(MemoryIndex(arg.buffer.0 as u32), &arg.view))
        };
        let pairs = uses(pred).flat_map(|old| uses(succ).map(move |new| (old, new)));
        let mut reusing = pairs.filter(|(old, new)| {
            old.buffer != new.buffer
                && (old.access.writes() || new.access.writes())
                && place(old).is_some()
                && place(old) == place(new)
        });
        reusing.find_map(|(old, new)| {
            let [a, b] = [&old, &new].map(region);
            let bytes = (a.start().max(b.start()), a.end().min(b.end()));
            let shares = a.overlaps(&b);
            let [old, new] = [old, new].map(|arg| arg.buffer.0 as usize);
            shares.then(|| ByteReuse { pred, succ, region: self.words(old, new, bytes) })
        })
    }

    /// Returns the reuses that lanes in order go by: all users of the old memory come before those
    /// of the new one, lane by lane.
    fn reuses_by_lane(&self) -> Vec<ByteReuse> {
        let first = |memory: &usize| self.users[*memory].iter().map(|user| user.1).min();
        let mut order: Vec<usize> =
            (0..self.users.len()).filter(|memory| first(memory).is_some()).collect();
        order.sort_by_key(first);
        // By device and offset: up to where the bytes are the memory's that used them last.
        let mut painted: BTreeMap<(usize, u64), (u64, usize)> = BTreeMap::new();
        let mut reuses = Vec::new();
        for memory in order {
            let record = &self.plan.memories()[memory];
            let MemoryPlace::Arena { offset } = record.place else { continue };
            let (device, end) = (record.device.index(), offset + record.bytes);
            while let Some((&key, &(old_end, old))) = painted.range(..(device, end)).next_back()
                && key.0 == device
                && old_end > offset
            {
                painted.remove(&key);
                let (start, stop) = (offset.max(key.1), end.min(old_end));
                self.wait_for(old, memory, (start, stop), &mut reuses);
                if old_end > end {
                    painted.insert((device, end), (old_end, old));
                }
                if key.1 < offset {
                    painted.insert(key, (offset, old));
                }
            }
            painted.insert((device, offset), (end, memory));
        }
        reuses
    }

    fn wait_for(&self, old: usize, new: usize, bytes: (u64, u64), reuses: &mut Vec<ByteReuse>) {
        let region = self.words(old, new, bytes);
        for &(old_lane, _, pred) in &self.users[old] {
            for &(_, succ, _) in self.users[new].iter().filter(|user| user.0 != old_lane) {
                let (pred, succ) = (pred as usize, succ as usize);
                reuses.push(ByteReuse { pred, succ, region: region.clone() });
            }
        }
    }

    fn words(&self, old: usize, new: usize, (start, end): (u64, u64)) -> String {
        let buffer = |memory: usize| &self.trace.buffers[memory];
        let place = buffer(new).extra.get("device").and_then(Value::as_str).unwrap_or("arena");
        let name = buffer(old).name.as_deref().unwrap_or("another");
        format!("{place}[{start}:{end}], where `{name}` lay")
    }

    fn next_id(&self) -> u64 {
        self.trace.tasks.len() as u64
    }

    fn timed(&self, mut entry: TraceTask, timing: TaskTiming, device: usize) -> TraceTask {
        entry.start_ns = Some(timing.start_ns);
        entry.end_ns = Some(timing.end_ns);
        entry.lane = Some(self.lanes[timing.lane].clone());
        entry.device = Some(Value::from(self.plan.machine().devices()[device].name.as_str()));
        entry
    }
}

fn memory_id(memory: MemoryIndex) -> BufferId {
    BufferId(memory.index() as u64)
}

/// A buffer for each memory: called as the program's is, and lying on its device, or at a place in
/// its arena.
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

/// An order in which a plan's ops could run one by one: lane after lane, each as far as its waits
/// allow.
fn serial_order(plan: &ExecutionPlan) -> Vec<(LaneIndex, OpIndex)> {
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
                order.push((LaneIndex(lane as u16), OpIndex(info.first.0 + done[lane])));
                done[lane] += 1;
            }
        }
        assert!(order.len() > before, "a plan that was run cannot hang");
    }
    order
}
