//! Arenas: memory for what lives inside a plan, by lifetime.
//!
//! Memories whose lifetimes do not meet may share bytes. A later user then waits for all
//! that used the bytes before: each reuse becomes edges, which `waits` reduces like any other.

mod free;

use std::collections::BTreeMap;

use super::error::CompileError;
use super::lower::Lowered;
use super::order::Schedule;
use super::waits::ReuseEdge;
use crate::graph::GraphData;
use crate::machine::Machine;
use crate::plan::{ARENA_ALIGN, MemoryPlace, OpKind};
use free::FreeList;

/// When bytes may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// When by the estimated times the old use is over before the new one begins: no lane loses
    /// time.
    WhenIdle,
    /// When the old use comes before the new one in the schedule: needs the least memory, may
    /// serialise lanes.
    AsSoonAsPossible,
}

/// What was laid out.
#[derive(Debug)]
pub(crate) struct Arenas {
    /// By device.
    pub bytes: Vec<u64>,
    /// Sorted by successor.
    pub edges: Vec<ReuseEdge>,
}

/// Gives every memory of the plan its offset; refuses if a device's memory does not suffice.
pub(crate) fn lay_out(
    graph: &GraphData,
    machine: &Machine,
    lowered: &mut Lowered,
    schedule: &Schedule,
    reuse: Reuse,
) -> Result<Arenas, CompileError> {
    let devices = machine.devices().len();
    let mut out = Arenas { bytes: vec![0; devices], edges: Vec::new() };
    let mut arenas: Vec<Arena> = (0..devices).map(|_| Arena::default()).collect();
    for memory in lowered.memories.iter().filter(|memory| memory.place == MemoryPlace::Bound) {
        let arena = &mut arenas[memory.device.index()];
        arena.bound_bytes = arena.bound_bytes.saturating_add(memory.bytes);
    }
    let lifetimes = lifetimes(graph, lowered, schedule);
    let mut order: Vec<u32> =
        (0..lifetimes.len() as u32).filter(|&at| lifetimes[at as usize].is_used()).collect();
    order.sort_unstable_by_key(|&at| lifetimes[at as usize].first);
    for memory in order {
        let lifetime = &lifetimes[memory as usize];
        let record = &mut lowered.memories[memory as usize];
        let bytes = record.bytes.next_multiple_of(ARENA_ALIGN);
        let arena = &mut arenas[record.device.index()];
        arena.release(lifetime, reuse);
        let offset = arena.take(memory, bytes, lifetime);
        record.place = MemoryPlace::Arena { offset };
        arena.paint(offset, bytes, memory, |old| {
            edges_between(&lifetimes[old as usize], lifetime, &mut out.edges);
        });
    }
    out.edges.sort_unstable();
    out.edges.dedup();
    for (at, arena) in arenas.iter().enumerate() {
        out.bytes[at] = arena.free.high_water();
        arena.check_fit(at, graph, machine, lowered, schedule)?;
    }
    Ok(out)
}

/// From when to when a memory is used, and by whom.
#[derive(Clone, Debug)]
struct Lifetime {
    /// Places of its first and last user in the schedule's sequence.
    first: u32,
    last: u32,
    start_ns: u64,
    end_ns: u64,
    /// By lane that uses it: lane, first user, last user.
    users: Vec<(u16, u32, u32)>,
}

impl Lifetime {
    fn is_used(&self) -> bool {
        !self.users.is_empty()
    }
}

/// Lifetimes of the memories that lie in arenas; those of the others stay empty.
fn lifetimes(graph: &GraphData, lowered: &Lowered, schedule: &Schedule) -> Vec<Lifetime> {
    let unused = Lifetime { first: 0, last: 0, start_ns: u64::MAX, end_ns: 0, users: Vec::new() };
    let mut lifetimes = vec![unused; lowered.memories.len()];
    if lowered.memories.iter().all(|memory| memory.place == MemoryPlace::Bound) {
        return lifetimes;
    }
    for (at, &op) in schedule.sequence.iter().enumerate() {
        let lane = schedule.lanes[op as usize].0;
        let mut touch = |memory: usize| {
            if lowered.memories[memory].place == MemoryPlace::Bound {
                return;
            }
            let lifetime = &mut lifetimes[memory];
            if !lifetime.is_used() {
                lifetime.first = at as u32;
            }
            lifetime.last = at as u32;
            lifetime.start_ns = lifetime.start_ns.min(schedule.starts[op as usize]);
            lifetime.end_ns = lifetime.end_ns.max(schedule.ends[op as usize]);
            match lifetime.users.iter_mut().find(|user| user.0 == lane) {
                Some(user) => user.2 = op,
                None => lifetime.users.push((lane, op, op)),
            }
        };
        match lowered.kinds[op as usize] {
            OpKind::Task(task) => {
                let args = graph.args_range(task.index());
                lowered.arg_memories[args].iter().for_each(|memory| touch(memory.index()));
            }
            OpKind::Copy(copy) => {
                let copy = &lowered.copies[copy.index()];
                touch(copy.source.index());
                touch(copy.target.index());
            }
        }
    }
    lifetimes
}

/// Every user of `old` before every user of `new`: by the last and the first of each lane.
fn edges_between(old: &Lifetime, new: &Lifetime, edges: &mut Vec<ReuseEdge>) {
    for &(old_lane, _, pred) in &old.users {
        for &(new_lane, succ, _) in &new.users {
            if old_lane != new_lane {
                edges.push(ReuseEdge { succ, pred });
            }
        }
    }
}

/// The arena of one device while it is laid out.
#[derive(Default)]
struct Arena {
    free: FreeList,
    bound_bytes: u64,
    /// Memories in use, by the place of their last user in the sequence.
    in_use: BTreeMap<(u32, u32), InUse>,
    /// Who used the bytes from this offset on last, and up to where.
    painted: BTreeMap<u64, (u64, u32)>,
    live_bytes: u64,
    live_bytes_max: u64,
    /// Place in the sequence at which the arena grew last.
    peak_at: u32,
}

struct InUse {
    offset: u64,
    bytes: u64,
    end_ns: u64,
}

impl Arena {
    /// Frees memories that end before `lifetime` begins.
    fn release(&mut self, lifetime: &Lifetime, reuse: Reuse) {
        let over: Vec<(u32, u32)> = (self.in_use.range(..(lifetime.first, 0)))
            .filter(|(_, used)| {
                reuse == Reuse::AsSoonAsPossible || used.end_ns <= lifetime.start_ns
            })
            .map(|(key, _)| *key)
            .collect();
        for key in over {
            let used = self.in_use.remove(&key).expect("just found");
            self.free.give(used.offset, used.bytes);
            self.live_bytes -= used.bytes;
        }
    }

    fn take(&mut self, memory: u32, bytes: u64, lifetime: &Lifetime) -> u64 {
        let before = self.free.high_water();
        let offset = self.free.take(bytes);
        if self.free.high_water() > before {
            self.peak_at = lifetime.first;
        }
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.live_bytes_max = self.live_bytes_max.max(self.live_bytes);
        let used = InUse { offset, bytes, end_ns: lifetime.end_ns };
        self.in_use.insert((lifetime.last, memory), used);
        offset
    }

    /// Notes that `memory` uses these bytes, and calls `each` with the last users of any of them.
    fn paint(&mut self, offset: u64, bytes: u64, memory: u32, mut each: impl FnMut(u32)) {
        if bytes == 0 {
            return;
        }
        let end = offset + bytes;
        let before = self.painted.range(..offset).next_back().map(|(&start, _)| start);
        let start = before.filter(|start| self.painted[start].0 > offset).unwrap_or(offset);
        let over: Vec<(u64, (u64, u32))> =
            self.painted.range(start..end).map(|(&start, &entry)| (start, entry)).collect();
        for (old_start, (old_end, old)) in over {
            each(old);
            self.painted.remove(&old_start);
            if old_start < offset {
                self.painted.insert(old_start, (offset, old));
            }
            if old_end > end {
                self.painted.insert(end, (old_end, old));
            }
        }
        self.painted.insert(offset, (end, memory));
    }

    fn check_fit(
        &self,
        device: usize,
        graph: &GraphData,
        machine: &Machine,
        lowered: &Lowered,
        schedule: &Schedule,
    ) -> Result<(), CompileError> {
        let model = &machine.devices()[device];
        let peak_bytes = self.free.high_water().saturating_add(self.bound_bytes);
        if peak_bytes <= model.memory_bytes {
            return Ok(());
        }
        let culprit = schedule.sequence.get(self.peak_at as usize).map(|&op| op as usize);
        let (task, index) = match culprit.map(|op| lowered.kinds[op]) {
            Some(OpKind::Task(task)) => (graph.task(task).name().to_owned(), task.0),
            Some(OpKind::Copy(copy)) => {
                let memory = lowered.copies[copy.index()].target;
                let buffer = graph.buffer(lowered.memories[memory.index()].buffer);
                (format!("copy of {}", buffer.name), copy.0)
            }
            None => ("(before the first)".to_owned(), 0),
        };
        Err(CompileError::DoesNotFit {
            device: model.name.clone(),
            memory_bytes: model.memory_bytes,
            peak_bytes,
            lower_bound_bytes: self.live_bytes_max.saturating_add(self.bound_bytes),
            task,
            index,
        })
    }
}
