//! The way of a task into the ring.

use std::sync::Arc;
use std::time::Instant;

use syncline_deps::{DepInputs, EdgeFlags, ScopeKind};
use syncline_device::{Backend, Buffer, Deadline};
use syncline_tensor::{Access, Region, TaskId};

use syncline_sync::shim::{Ordering, thread};

use super::body::Body;
use super::circle::Goal;
use super::failure::FAILURES_KEPT;
use super::heap::Heap;
use super::holds;
use super::scope::ScopeState;
use super::shared::{RootLock, RootState, Shared, Via, lock};
use super::sleep::Want;
use super::stats::Resource;
use super::task::{FRESH, TaskSpec};
use super::tuning::TUNING;
use super::wait::Wait;
use super::{StreamError, TaskHandle};

impl Shared {
    /// Refuses tasks from inside a task of this stream. What that task waits for in its turn does
    /// not matter, so that the outcome does not depend on the thread.
    #[inline]
    fn refuse_inside_task(&self, what: &'static str) -> Result<(), StreamError> {
        if holds::innermost() != Some(self.stream_id) {
            return Ok(());
        }
        let way_out = "use the task's own context (`Task::parent`), or an explicit dependency";
        Err(StreamError::InsideTask { what, way_out })
    }

    /// Submits a task; waits for room where there is none.
    #[inline]
    pub(crate) fn submit(
        self: &Arc<Self>,
        spec: Box<TaskSpec>,
        scope: Option<&Arc<ScopeState>>,
    ) -> Result<TaskHandle, StreamError> {
        self.refuse_inside_task("a task is submitted")?;
        let (entered, outputs) = self.submit_entered(spec, scope, Deadline::NEVER)?;
        Ok(TaskHandle::new(self.stream_id, entered.task, outputs))
    }

    /// Submits a task that stands for a host access: its id and slot.
    pub(crate) fn submit_host(
        self: &Arc<Self>,
        spec: Box<TaskSpec>,
        deadline: Deadline,
    ) -> Result<(TaskId, u32), StreamError> {
        self.submit_entered(spec, None, deadline).map(|(entered, _)| (entered.task, entered.slot))
    }

    #[inline]
    fn submit_entered(
        self: &Arc<Self>,
        mut spec: Box<TaskSpec>,
        scope: Option<&Arc<ScopeState>>,
        deadline: Deadline,
    ) -> Result<(Entered, Vec<Buffer>), StreamError> {
        self.check(&spec)?;
        let need = self.need(&spec)?;
        let mut state = self.lock();
        if let Some(lacking) = self.lacking(&mut state, need) {
            state = self.wait_for_room(state, &spec, need, lacking, scope)?;
        }
        while let Some(position) = self.find_places(&state, &mut spec) {
            drop(state);
            let deadline = scope.map_or(deadline, |scope| scope.deadline);
            self.fetch(&mut spec, position, deadline)?;
            state = self.lock();
            if let Some(lacking) = self.lacking(&mut state, need) {
                state = self.wait_for_room(state, &spec, need, lacking, scope)?;
            }
        }
        let entered = self.enter(&mut state, &mut spec, scope)?;
        drop(state);
        if entered.wake {
            self.sleep.work_arrived_guarded();
        }
        let outputs = if spec.outputs > 0 { std::mem::take(&mut spec.made) } else { Vec::new() };
        spec.recycle();
        Ok((entered, outputs))
    }

    /// What is wrong with a task whatever else is in the ring.
    #[inline]
    pub(crate) fn check(&self, spec: &TaskSpec) -> Result<(), StreamError> {
        if spec.stream != 0 && spec.stream != self.stream_id {
            return Err(StreamError::WrongStream { what: "buffer or dependency" });
        }
        match &spec.body {
            Body::Empty | Body::Once(_) | Body::Parent(_) if spec.blocks == 1 => Ok(()),
            _ => self.check_blocks(spec),
        }
    }

    #[cold]
    fn check_blocks(&self, spec: &TaskSpec) -> Result<(), StreamError> {
        let task = || spec.name.clone();
        if spec.blocks == 0 {
            return Err(StreamError::NoBlocks { task: task() });
        }
        if spec.gang && spec.blocks as usize > self.options.workers {
            let (size, resource) = (self.options.workers as u64, "threads at the same time");
            return Err(never_fits(spec, resource, "workers", size, spec.blocks.into()));
        }
        match &spec.body {
            Body::Kernel(kernel, scalars) => kernel
                .check(Backend::Cpu, &spec.args, scalars, spec.blocks)
                .map_err(|source| StreamError::Device { task: task(), source }),
            Body::Parts(parts) if parts.len() == spec.blocks as usize => check_parts(spec),
            Body::Parts(parts) => Err(blocks_of_bodies(spec, parts.len())),
            Body::Once(_) | Body::Parent(_) if spec.blocks > 1 => Err(blocks_of_bodies(spec, 1)),
            _ => Ok(()),
        }
    }

    /// What a task takes of the resources that tasks take different amounts of; refused where that
    /// is more than all.
    #[inline]
    pub(crate) fn need(&self, spec: &TaskSpec) -> Result<Need, StreamError> {
        let need = Need { bytes: output_bytes(spec), args: spec.args.len() };
        if need.bytes > self.options.heap_bytes {
            let (size, setting) = (self.options.heap_bytes, "heap_bytes");
            return Err(never_fits(spec, "bytes of outputs", setting, size, need.bytes));
        }
        if need.args > self.options.map_entries {
            let (size, setting) = (self.options.map_entries as u64, "map_entries");
            return Err(never_fits(
                spec,
                "entries of the tensor map",
                setting,
                size,
                need.args as u64,
            ));
        }
        Ok(need)
    }

    /// The resource that a task would have to wait for.
    #[inline]
    fn lacking(&self, state: &mut RootState, need: Need) -> Option<Resource> {
        state.turn += 1;
        if state.turn.is_multiple_of(TUNING.reclaim_every) {
            self.reclaim(state);
        }
        let lacking = self.lacking_now(state, need)?;
        self.reclaim(state);
        self.lacking_now(state, need).map(|_| lacking)
    }

    #[inline]
    pub(crate) fn lacking_now(&self, state: &RootState, need: Need) -> Option<Resource> {
        if !state.table.has_slot() {
            return Some(Resource::Ring);
        }
        if need.bytes > 0 && !state.heap.fits(need.bytes) {
            return Some(Resource::Heap);
        }
        if state.table.edges().now >= self.options.edge_pool {
            return Some(Resource::Edges);
        }
        if state.table.accesses().now + need.args > self.options.map_entries {
            return Some(Resource::Map);
        }
        None
    }

    /// Waits, helping, until there is room; or finds that there never will be.
    #[cold]
    fn wait_for_room<'a>(
        self: &'a Arc<Self>,
        mut state: RootLock<'a>,
        spec: &TaskSpec,
        need: Need,
        resource: Resource,
        scope: Option<&Arc<ScopeState>>,
    ) -> Result<RootLock<'a>, StreamError> {
        let started = Instant::now();
        let _blocked = self.counters.blocked_on(resource, started);
        let share = self.options.ring_tasks / TUNING.room_share;
        if let Some(scope) = scope {
            scope.cancel.watch(self);
        }
        let deadline = scope.map_or(Deadline::NEVER, |scope| scope.deadline);
        loop {
            drop(state);
            let mut looks = 0;
            let name = || "room".to_owned();
            let (want, goal) = (Want::Room, Goal::Room(need));
            let wait = Wait { want, goal, deadline, what: "submitting a task", name: &name };
            let in_time = self.wait_until(&wait, |state, sleepy| {
                if let Some(scope) = scope {
                    scope.refuse()?;
                }
                self.reclaim(state);
                looks += 1;
                match self.lacking_now(state, need) {
                    // With room for one, the next submission would wait again.
                    None => Ok(sleepy || looks > TUNING.room_polls || state.table.has_slots(share)),
                    Some(_) if !sleepy => Ok(false),
                    Some(lacking) => self.refuse_stuck(state, spec, lacking, need).map(|()| false),
                }
            })?;
            if let Some(scope) = scope.filter(|_| !in_time) {
                scope.refuse()?;
            }
            state = self.lock();
            if self.lacking_now(&state, need).is_none() {
                return Ok(state);
            }
        }
    }

    /// An error where no task can go on unless this very thread does something else first.
    fn refuse_stuck(
        &self,
        state: &RootState,
        spec: &TaskSpec,
        lacking: Resource,
        need: Need,
    ) -> Result<(), StreamError> {
        let behind = self.behind_own(state);
        let others = state.table.live().any(|(_, slot)| !behind[slot as usize]);
        if others {
            return Ok(());
        }
        let guarded = state.table.tasks().now > 0;
        let own = thread::current().id();
        let (holder, way_out) = match guarded {
            true if state.guards.iter().any(|guard| guard.thread == own) => {
                ("tasks that wait for a host guard of this thread", "drop the guard first")
            }
            true => ("tasks that wait for the running task", "end it first"),
            false => ("outputs that the program still holds", "drop some of their handles"),
        };
        let (setting, size, in_use) = match lacking {
            Resource::Ring => {
                ("ring_tasks", self.options.ring_tasks as u64, state.table.tasks().now as u64)
            }
            Resource::Heap => ("heap_bytes", self.options.heap_bytes, state.heap.use_bytes().0),
            Resource::Edges => {
                ("edge_pool", self.options.edge_pool as u64, state.table.edges().now as u64)
            }
            Resource::Map => {
                ("map_entries", self.options.map_entries as u64, state.table.accesses().now as u64)
            }
        };
        let need = match lacking {
            Resource::Heap => need.bytes,
            Resource::Map => need.args as u64,
            Resource::Ring | Resource::Edges => 1,
        };
        let (task, resource) = (spec.name.clone(), lacking.name());
        Err(StreamError::Exhausted { task, resource, setting, size, in_use, need, holder, way_out })
    }

    /// Puts a task into the ring, in which there is room for it. After an error it is as if the
    /// task had never come, and `spec` is the caller's to drop without the lock: what a body holds
    /// may do anything then.
    #[inline]
    fn enter(
        self: &Arc<Self>,
        state: &mut RootState,
        spec: &mut TaskSpec,
        scope: Option<&Arc<ScopeState>>,
    ) -> Result<Entered, StreamError> {
        if self.ring.failures_live() >= FAILURES_KEPT {
            return Err(self.too_many_failures());
        }
        if spec.outputs > 0 {
            self.allocate_outputs(state, spec)?;
        }
        let task = self.discover(state, spec, scope)?;
        state.hold_buffers(spec);
        let number = state.table.next_slot();
        let slot = &self.ring.slots[number as usize];
        if let Some(scope) = scope {
            scope.task_entered();
            state.note_scope(number, scope);
        }
        // SAFETY: the slot is free and this thread holds the submit lock.
        slot.set_traits(unsafe { slot.work_mut() }.fill(task, spec, scope));
        // Before the task can end, so that there are never more that ended than that were
        // submitted. Release is enough: who compares the two holds the submit lock, too.
        state.submitted += 1;
        self.submitted.store(state.submitted, Ordering::Release);
        let (blocks, accesses) = (spec.blocks, spec.args.len() as u32);
        let RootState { table, held, .. } = state;
        let ready =
            table.enter(&self.ring, task, accesses, held, blocks, |pred| self.ring.origin_of(pred));
        if ready {
            self.enqueue(&self.ring, number, Via::Submit);
        }
        // Relaxed: the lock, which a sleeper takes before it looks for the last time, orders this
        // (`sleep.rs`).
        let wake = ready && self.sleep.anybody_idle();
        Ok(Entered { task, slot: number, wake })
    }

    /// Finds what the task depends on.
    #[inline]
    fn discover(
        &self,
        state: &mut RootState,
        spec: &mut TaskSpec,
        scope: Option<&Arc<ScopeState>>,
    ) -> Result<TaskId, StreamError> {
        let TaskSpec { args, deps, .. } = spec;
        let args = &**args;
        if deps.iter().any(|dep| dep.ring() != 0) {
            return Err(StreamError::WrongStream {
                what: "dependency, a task inside another task,",
            });
        }
        let manual = scope.is_some_and(|scope| scope.kind == ScopeKind::Manual);
        let table = &mut state.table;
        if manual {
            table.submitter.enter_scope(ScopeKind::Manual);
        }
        table.preds.clear();
        let preds = &mut table.preds;
        let task = table.submitter.submit(DepInputs { args, deps }, |edge| {
            if edge.flags.contains(EdgeFlags::WAIT) {
                preds.push(edge.pred);
            }
        });
        if manual {
            table.submitter.leave_scope()?;
        }
        let task = task?;
        if let Some(capture) = &mut state.capture {
            capture.task(task, spec, manual);
        }
        Ok(task)
    }

    /// Allocates the outputs, which fit.
    fn allocate_outputs(
        self: &Arc<Self>,
        state: &mut RootState,
        spec: &mut TaskSpec,
    ) -> Result<(), StreamError> {
        spec.made.reserve_exact(spec.outputs as usize);
        for (arg, place) in spec.args.iter_mut().zip(&mut spec.places) {
            if place.buffer != FRESH {
                continue;
            }
            // Where the submission fails after this, the handle goes with the description, and with
            // it the buffer.
            let buffer = state.make_output(self, arg, place)?;
            spec.made.push(buffer);
        }
        Ok(())
    }

    #[cold]
    fn too_many_failures(&self) -> StreamError {
        let failures = lock(&self.ring.failures);
        let first = failures.first().expect("there are many").clone();
        StreamError::TooManyFailures { failures: failures.live_count(), first }
    }
}

/// A task that has just been put into the ring.
pub(crate) struct Entered {
    pub(crate) task: TaskId,
    pub(crate) slot: u32,
    /// It is ready, and somebody sleeps who could run it.
    pub(crate) wake: bool,
}

/// What a task takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) bytes: u64,
    args: usize,
}

#[cold]
fn never_fits(
    spec: &TaskSpec,
    resource: &'static str,
    setting: &'static str,
    size: u64,
    need: u64,
) -> StreamError {
    StreamError::NeverFits { task: spec.name.clone(), resource, setting, size, need }
}

#[cold]
fn blocks_of_bodies(spec: &TaskSpec, bodies: usize) -> StreamError {
    StreamError::BlocksOfBodies { task: spec.name.clone(), bodies, blocks: spec.blocks }
}

/// What a task's outputs take from the heap.
#[inline]
fn output_bytes(spec: &TaskSpec) -> u64 {
    if spec.outputs == 0 {
        return 0;
    }
    let outputs = spec.args.iter().filter(|arg| arg.access == Access::Output);
    outputs
        .map(|arg| Heap::cost(arg.view.span().map_or(0, |(_, end)| end)))
        .fold(0, u64::saturating_add)
}

/// Parts run at the same time: none may write what another touches.
fn check_parts(spec: &TaskSpec) -> Result<(), StreamError> {
    let Body::Parts(parts) = &spec.body else { return Ok(()) };
    for (second, later) in parts.iter().enumerate() {
        for (first, earlier) in parts[..second].iter().enumerate() {
            for a in &spec.args[earlier.first..earlier.first + earlier.count] {
                for b in &spec.args[later.first..later.first + later.count] {
                    let conflict = (a.access.writes() || b.access.writes())
                        && a.access != Access::Output
                        && a.buffer == b.buffer
                        && b.access != Access::Output;
                    if conflict && Region::of(&a.view).overlaps(&Region::of(&b.view)) {
                        let (task, buffer) = (spec.name.clone(), a.buffer);
                        return Err(StreamError::PartsOverlap { task, first, second, buffer });
                    }
                }
            }
        }
    }
    Ok(())
}
