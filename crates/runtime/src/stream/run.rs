//! Running a task, and what follows when it has ended.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use syncline_deps::{Access, TaskId, View};
use syncline_device::{KernelArgs, RawArg};

use super::body::Body;
use super::context::TaskContext;
use super::error::{Cause, Failure};
use super::failure::Record;
use super::nested::Nested;
use super::ready::Pick;
use super::shared::{FAILED, Job, Shared, Via, lock};
use super::slot::{Slot, Work};
use super::task::TaskSpec;

/// The ring that a task lives in.
#[derive(Clone, Copy)]
pub(crate) enum Home<'a> {
    Root,
    Nested(&'a Arc<Nested>),
}

/// How a task ended: well, or with a failure and the task of the same ring that it goes back to.
pub(crate) type Ending = Result<(), Record>;

thread_local! {
    /// Room for the arguments of the task that this thread runs.
    static RAW: Cell<Vec<RawArg>> = const { Cell::new(Vec::new()) };
    /// The stream whose task this thread is running, zero for none.
    static INSIDE: Cell<u64> = const { Cell::new(0) };
}

/// The stream whose task the calling thread is running, zero for none.
pub(crate) fn inside() -> u64 {
    INSIDE.get()
}

/// Marks the calling thread as one that runs tasks of `stream`, and returns the mark before.
pub(crate) fn enter(stream: u64) -> u64 {
    INSIDE.replace(stream)
}

impl Shared {
    /// Runs a task, or one block of it, on the thread of `lane`.
    #[inline]
    pub(crate) fn run(self: &Arc<Self>, lane: usize, job: Job) {
        // Relaxed: only for those who want to know how many are running.
        self.lanes[lane].running.store(true, Ordering::Relaxed);
        match job {
            Job::Root(pick) => self.run_in(lane, Home::Root, pick),
            Job::Nested(nested, pick) => self.run_in(lane, Home::Nested(&nested), pick),
        }
        self.lanes[lane].running.store(false, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn run_in(self: &Arc<Self>, lane: usize, home: Home<'_>, pick: Pick) {
        let slot = self.slot(home, pick.slot);
        // SAFETY: this thread took the slot from a ready queue: it owns it, or shares it with those who run its blocks.
        let TaskSpec { blocks, gang: is_gang, .. } = unsafe { slot.work() }.spec;
        if blocks > 1 {
            return match home {
                Home::Nested(nested) if is_gang => self.run_nested_gang(nested, pick.slot),
                _ => self.run_block(lane, home, pick, blocks),
            };
        }
        // SAFETY: as above, and there is one block only: this thread is the owner.
        let work = unsafe { slot.work_mut() };
        let body = std::mem::replace(&mut work.spec.body, Body::Empty);
        let ending = match self.reason_to_skip(home, slot, work) {
            None => self.run_whole(lane, body, work),
            Some(record) => {
                drop_quietly(body);
                Err(record)
            }
        };
        self.end(lane, home, pick.slot, ending);
    }

    /// Runs a body that has the task to itself.
    #[inline]
    fn run_whole(self: &Arc<Self>, lane: usize, body: Body, work: &Work) -> Ending {
        let outcome = match body {
            Body::Empty => return Ok(()),
            Body::Once(body) => with_args(&work.spec, 0..work.spec.args.len(), |raw| {
                // SAFETY: see `with_args`.
                let mut args = unsafe { KernelArgs::from_raw(raw, &[]) };
                catch_unwind(AssertUnwindSafe(|| body.call(&mut args)))
            }),
            Body::Parent(body) => return self.run_parent(lane, body, work),
            Body::Kernel(..) | Body::Blocks(_) | Body::Parts(_) => {
                let ending = self.run_shared(&body, &work.spec, 0, 1, work.id);
                drop_quietly(body);
                return ending;
            }
        };
        ending_of(outcome, work.id, &work.spec)
    }

    fn run_parent(
        self: &Arc<Self>,
        lane: usize,
        body: Box<super::body::ParentFn>,
        work: &Work,
    ) -> Ending {
        with_args(&work.spec, 0..work.spec.args.len(), |raw| {
            let mut context = TaskContext::new(self, lane, work.id, &work.spec, raw);
            let outcome = catch_unwind(AssertUnwindSafe(|| body(&mut context)));
            // The children first: none may outlive its parent's right to the arguments.
            let children = context.close();
            ending_of(outcome, work.id, &work.spec)?;
            match children {
                Some(failure) => Err(Record { origin: work.id, failure }),
                None => Ok(()),
            }
        })
    }

    fn run_block(self: &Arc<Self>, lane: usize, home: Home<'_>, pick: Pick, blocks: u32) {
        let slot = self.slot(home, pick.slot);
        // SAFETY: this thread runs one of the blocks, and nobody changes the work before all have ended.
        let work = unsafe { slot.work() };
        let ending = match self.reason_to_skip(home, slot, work) {
            None => self.run_shared(&work.spec.body, &work.spec, pick.block, blocks, work.id),
            Some(record) => Err(record),
        };
        if let Err(record) = ending {
            lock(&slot.block_failure).get_or_insert(record);
        }
        // AcqRel: the last one sees what all the others did.
        if slot.blocks_left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // SAFETY: all other blocks have ended: this thread is the owner.
        let work = unsafe { slot.work_mut() };
        let body = std::mem::replace(&mut work.spec.body, Body::Empty);
        drop_quietly(body);
        let ending = lock(&slot.block_failure).take().map_or(Ok(()), Err);
        self.end(lane, home, pick.slot, ending);
    }

    /// Runs one block of a body that several threads share.
    pub(crate) fn run_shared(
        &self,
        body: &Body,
        spec: &TaskSpec,
        block: u32,
        blocks: u32,
        id: TaskId,
    ) -> Ending {
        let all = 0..spec.args.len();
        let outcome = match body {
            Body::Blocks(body) => with_args(spec, all, |raw| {
                // SAFETY: see `with_args`; blocks take what is written in disjoint parts.
                let mut args = unsafe { KernelArgs::from_raw(raw, &[]) }.with_block(block, blocks);
                catch_unwind(AssertUnwindSafe(|| body(&mut args)))
            }),
            Body::Kernel(kernel, scalars) => with_args(spec, all, |raw| {
                // SAFETY: as above.
                let args = unsafe { KernelArgs::from_raw(raw, scalars) };
                let mut args = args.with_block(block, blocks);
                let function = kernel.cpu_function().expect("checked at submission");
                catch_unwind(AssertUnwindSafe(|| function(&mut args)))
            }),
            Body::Parts(parts) => {
                let part = &parts[block as usize];
                let body = lock(&part.body).take().expect("each part runs once");
                with_args(spec, part.first..part.first + part.count, |raw| {
                    // SAFETY: see `with_args`; it was checked that parts do not write what others touch.
                    let mut args = unsafe { KernelArgs::from_raw(raw, &[]) };
                    catch_unwind(AssertUnwindSafe(|| body.call(&mut args)))
                })
            }
            Body::Empty | Body::Once(_) | Body::Parent(_) => Ok(Ok(())),
        };
        ending_of(outcome, id, spec)
    }

    /// Why a task that is ready should not run.
    #[inline]
    pub(crate) fn reason_to_skip(
        &self,
        home: Home<'_>,
        slot: &Slot,
        work: &Work,
    ) -> Option<Record> {
        if let Some(origin) = slot.inherited() {
            let failure = match home {
                Home::Root => lock(&self.failures).of_origin(origin),
                Home::Nested(nested) => nested.failure_of(origin),
            };
            return Some(Record { origin, failure });
        }
        let cause = match &work.scope {
            None if !self.dropping.load(Ordering::Relaxed) => return None,
            None => Cause::Dropped,
            Some(scope) => scope.reason_to_skip()?,
        };
        Some(Record { origin: work.id, failure: failure(work.id, &work.spec, cause) })
    }

    #[inline]
    pub(crate) fn slot<'a>(&'a self, home: Home<'a>, slot: u32) -> &'a Slot {
        match home {
            Home::Root => &self.ring.slots[slot as usize],
            Home::Nested(nested) => &nested.ring.slots[slot as usize],
        }
    }

    /// A task has ended: tells those who wait for it, and gives its slot back.
    #[inline]
    fn end(&self, lane: usize, home: Home<'_>, slot: u32, ending: Ending) {
        match home {
            Home::Root => self.end_root(slot, ending, Via::Lane(lane)),
            Home::Nested(nested) => self.end_nested(nested, slot, ending),
        }
    }

    /// Ends a task of the root ring. Where `via` is the submit lock, the caller takes the slot back itself.
    #[inline]
    pub(crate) fn end_root(&self, number: u32, ending: Ending, via: Via) {
        let slot = &self.ring.slots[number as usize];
        let origin = ending.as_ref().err().map(|record| record.origin);
        // SAFETY: this thread ran the task and owns the slot until it is closed and given back below.
        let work = unsafe { slot.work() };
        if work.spec.exclusive {
            for next in lock(&self.exclusion).release(number) {
                self.enqueue_owned(next, via);
            }
        }
        if origin.is_some() || work.scope.is_some() {
            self.note_ending(work, ending);
        }
        let closed = slot.fanout.close();
        for successor in closed.successors(&self.ring.nodes) {
            let next = &self.ring.slots[successor as usize];
            if let Some(origin) = origin {
                next.inherit(origin);
            }
            if next.count_down(1) {
                self.enqueue(successor, via);
            }
        }
        match via {
            Via::Lane(lane) => {
                let failed = if origin.is_some() { FAILED } else { 0 };
                self.lanes[lane].done.push(number | failed);
                // One of the tasks that have become ready is this thread's next; others are for others.
                if self.lanes[lane].ready.len() > 1 {
                    self.sleep.work_arrived();
                }
                self.sleep.room_made();
            }
            Via::Submit => self.sleep.work_arrived(),
        }
        if closed.waited {
            self.sleep.alarm();
        }
    }

    /// Failures and scopes, which most tasks have nothing to do with.
    #[cold]
    fn note_ending(&self, work: &Work, ending: Ending) {
        let record = ending.err();
        if let Some(record) = &record {
            let quiet = record.failure.cause.is_cancellation() && record.origin == work.id;
            let mut failures = lock(&self.failures);
            failures.record(work.id, record.clone(), quiet);
            self.failures_live.store(failures.live_count(), Ordering::Release);
        }
        if let Some(scope) = &work.scope
            && scope.task_ended(record.as_ref().map(|record| (work.id, &record.failure)))
        {
            self.sleep.alarm();
        }
    }
}

/// What a body holds may panic when it is dropped: that must not end the thread, and neither must what is thrown then,
/// which may panic in its turn.
pub(crate) fn drop_quietly(body: Body) {
    catch_unwind(AssertUnwindSafe(|| drop(body))).unwrap_or_else(std::mem::forget);
}

/// Calls `run` with the arguments `range` of a task as addresses.
///
/// What the callers rely on: buffers stay while an unfinished task uses them, their views lie inside (checked at
/// submission), and discovery orders this task against every other that writes the same bytes, or touches what it
/// writes; in a manual scope, whoever opened that promised as much.
#[inline]
fn with_args<R>(
    spec: &TaskSpec,
    range: std::ops::Range<usize>,
    run: impl FnOnce(&[RawArg]) -> R,
) -> R {
    let mut raw = RAW.take();
    raw.clear();
    raw.extend(spec.args[range.clone()].iter().zip(&spec.places[range]).map(|(arg, place)| {
        RawArg {
            base: place.base,
            view: if arg.access == Access::NoDep { nothing_of(&arg.view) } else { arg.view },
            writes: arg.access.writes(),
        }
    }));
    let result = run(&raw);
    RAW.set(raw);
    result
}

/// An argument without order has no element that could be taken: others may write them at any time.
#[cold]
fn nothing_of(view: &View) -> View {
    let (dtype, offset) = (view.dtype(), view.offset());
    View::strided(dtype, offset, &[0], &[dtype.bytes() as i64]).expect("an empty view is valid")
}

fn ending_of(
    outcome: Result<Result<(), String>, Box<dyn std::any::Any + Send>>,
    id: TaskId,
    spec: &TaskSpec,
) -> Ending {
    let cause = match outcome {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(message)) => Cause::Failed(message.into()),
        Err(panic) => Cause::of_panic(panic),
    };
    Err(Record { origin: id, failure: failure(id, spec, cause) })
}

fn failure(task: TaskId, spec: &TaskSpec, cause: Cause) -> Arc<Failure> {
    Arc::new(Failure { task, name: spec.name.clone(), cause })
}
