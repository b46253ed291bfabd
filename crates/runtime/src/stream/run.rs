//! Running a task, and what follows when it has ended.

use std::sync::Arc;

use syncline_device::{KernelArgs, LateArgs, RawArg, drop_guarded, guarded};

use syncline_sync::shim::Ordering;

use super::body::Body;
use super::context::TaskContext;
use super::error::{Cause, Failure};
use super::failure::Record;
use super::holds::swap_task;
use super::ready::Pick;
use super::ring::Ring;
use super::shared::{FAILED, Job, RootState, Shared, Via, lock};
use super::slot::Slot;
use super::work::{Addresses, Traits, Work};

/// How a task ended: well, or with a failure and the task of the same ring that it goes back to.
pub(crate) type Ending = Result<(), Record>;

impl Shared {
    /// Runs a task, or one block of it, on the thread of `lane`.
    #[inline]
    pub(crate) fn run(self: &Arc<Self>, lane: usize, job: Job) {
        match job {
            Job::Root(pick) => self.run_in(Some(lane), &self.ring, pick),
            Job::Child(ring, pick) => self.run_in(Some(lane), &ring, pick),
        }
    }

    /// Runs a task on the thread of `lane`, or on one that has none and gives the slot back under
    /// the submit lock.
    #[inline]
    pub(crate) fn run_in(self: &Arc<Self>, lane: Option<usize>, ring: &Ring, pick: Pick) {
        let root = match &ring.parent {
            // SAFETY: this thread took the slot from a ready queue: it is the owner, or shares it.
            None => unsafe { ring.slot(pick.slot).work() }.id,
            Some(parent) => parent.root(),
        };
        let before = swap_task((self.stream_id, root.to_bits()));
        self.run_pick(lane, ring, pick);
        swap_task(before);
    }

    #[inline]
    fn run_pick(self: &Arc<Self>, lane: Option<usize>, ring: &Ring, pick: Pick) {
        let slot = ring.slot(pick.slot);
        let traits = slot.traits();
        if traits.has(Traits::BLOCKS) {
            return match &ring.parent {
                Some(parent) if traits.has(Traits::GANG) => {
                    self.run_child_gang(ring, parent, pick.slot);
                }
                _ => self.run_block(lane, ring, pick),
            };
        }
        // SAFETY: this thread took the slot from a ready queue, and there is one block only: it is
        // the owner.
        let work = unsafe { slot.work_mut() };
        let body = std::mem::replace(&mut work.body, Body::Empty);
        let ending = match self.reason_to_skip(ring, slot, work) {
            None => self.run_whole(lane, ring, body, work),
            Some(record) => {
                drop_guarded(body);
                Err(record)
            }
        };
        self.end(lane, ring, pick.slot, ending);
    }

    /// Runs a body that has the task to itself.
    #[inline]
    fn run_whole(
        self: &Arc<Self>,
        lane: Option<usize>,
        ring: &Ring,
        body: Body,
        work: &Work,
    ) -> Ending {
        let outcome = match body {
            Body::Empty => return Ok(()),
            Body::Once(body) => {
                let addresses = Addresses::of(work);
                // SAFETY: see `run_shared`.
                let mut args = unsafe { KernelArgs::from_late(&addresses, &[]) };
                guarded(|| body.call(&mut args))
            }
            Body::Parent(body) => return self.run_parent(lane, ring, body, work),
            Body::Kernel(..) | Body::Blocks(_) | Body::Parts(_) => {
                let ending = self.run_shared(&body, work, 0, 1);
                drop_guarded(body);
                return ending;
            }
        };
        ending_of(outcome, work)
    }

    fn run_parent(
        self: &Arc<Self>,
        lane: Option<usize>,
        ring: &Ring,
        body: Box<super::body::ParentFn>,
        work: &Work,
    ) -> Ending {
        let addresses = Addresses::of(work);
        let family = match &ring.parent {
            None => (work.scope.clone(), work.id),
            Some(parent) => (parent.scope(), parent.root()),
        };
        let mut context = TaskContext::new(self, lane, work, addresses.get(), family);
        let outcome = guarded(|| body(&mut context));
        // The children first: none may outlive its parent's right to the arguments.
        let (children, cancelled) = context.close();
        if let (Ok(Err(_)), Some(cause)) = (&outcome, cancelled) {
            // It passes on that it was refused children.
            return Err(Record { origin: work.id, failure: failure(work, cause) });
        }
        ending_of(outcome, work)?;
        match children {
            Some(failure) => Err(Record { origin: work.id, failure }),
            None => Ok(()),
        }
    }

    fn run_block(self: &Arc<Self>, lane: Option<usize>, ring: &Ring, pick: Pick) {
        let slot = ring.slot(pick.slot);
        // SAFETY: this thread runs one of the blocks, and nobody changes the work before all have
        // ended.
        let work = unsafe { slot.work() };
        let ending = match self.reason_to_skip(ring, slot, work) {
            None => self.run_shared(&work.body, work, pick.block, work.blocks),
            Some(record) => Err(record),
        };
        if let Err(record) = ending {
            ring.keep_block_failure(pick.slot, record);
        }
        // AcqRel: the last one sees what all the others did.
        if slot.blocks_left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // SAFETY: all other blocks have ended: this thread is the owner.
        let work = unsafe { slot.work_mut() };
        let body = std::mem::replace(&mut work.body, Body::Empty);
        drop_guarded(body);
        let ending = ring.take_block_failure(pick.slot).map_or(Ok(()), Err);
        self.end(lane, ring, pick.slot, ending);
    }

    /// Runs one block of a body that several threads share.
    ///
    /// What all bodies rely on: buffers stay while an unfinished task uses them, their views lie
    /// inside (checked at submission), and discovery orders this task against every other that
    /// writes the same bytes, or touches what it writes; in a manual scope, whoever opened that
    /// promised as much.
    pub(crate) fn run_shared(&self, body: &Body, work: &Work, block: u32, blocks: u32) -> Ending {
        let addresses = Addresses::of(work);
        let outcome = match body {
            Body::Blocks(body) => {
                // SAFETY: see above; each block runs once, and takes what is written in parts of
                // its own.
                let mut args =
                    unsafe { KernelArgs::from_late(&addresses, &[]).with_block(block, blocks) };
                guarded(|| body(&mut args))
            }
            Body::Kernel(kernel, scalars) => {
                // SAFETY: as above.
                let mut args =
                    unsafe { KernelArgs::from_late(&addresses, scalars).with_block(block, blocks) };
                // SAFETY: the call was checked at submission.
                guarded(|| unsafe { kernel.call_checked(&mut args) })
            }
            Body::Parts(parts) => {
                let part = &parts[block as usize];
                let body = lock(&part.body).take().expect("each part runs once");
                let raw: &[RawArg] = &addresses.get()[part.first..part.first + part.count];
                // SAFETY: see above; it was checked that parts do not write what others touch.
                let mut args = unsafe { KernelArgs::from_raw(raw, &[]) };
                guarded(|| body.call(&mut args))
            }
            Body::Empty | Body::Once(_) | Body::Parent(_) => Ok(Ok(())),
        };
        ending_of(outcome, work)
    }

    /// Why a task that is ready should not run.
    #[inline]
    pub(crate) fn reason_to_skip(&self, ring: &Ring, slot: &Slot, work: &Work) -> Option<Record> {
        if let Some(origin) = slot.inherited() {
            return Some(Record { origin, failure: ring.failure_of(origin) });
        }
        let cause = match &ring.parent {
            _ if self.cancel.is_cancelled() => Cause::Dropped,
            None if !slot.traits().has(Traits::SCOPED) => return None,
            None => work.scope.as_ref()?.reason_to_skip()?,
            Some(parent) => parent.scope()?.reason_to_skip()?,
        };
        Some(Record { origin: work.id, failure: failure(work, cause) })
    }

    /// A task has ended: tells those who wait for it, and gives its slot back.
    #[inline]
    fn end(&self, lane: Option<usize>, ring: &Ring, slot: u32, ending: Ending) {
        match (&ring.parent, lane) {
            (None, Some(lane)) => self.end_root(slot, ending, Via::Lane(lane)),
            (None, None) => self.end_outside(slot, ending),
            (Some(parent), _) => self.end_child(ring, parent, slot, ending),
        }
    }

    /// Ends a task on a thread without a lane.
    #[cold]
    fn end_outside(&self, slot: u32, ending: Ending) {
        let mut state = self.lock();
        self.end_guarded(&mut state, slot, ending);
        drop(state);
        self.sleep.room_made();
        self.sleep.ran_dry();
    }

    /// Ends a task under the submit lock, and takes its slot back.
    pub(crate) fn end_guarded(&self, state: &mut RootState, slot: u32, ending: Ending) {
        let failed = ending.is_err();
        self.end_root(slot, ending, Via::Submit);
        self.ended_outside.fetch_add(1, Ordering::SeqCst);
        self.reclaim_slot(state, slot, failed);
    }

    /// Ends a task of the root ring. Where `via` is the submit lock, the caller takes the slot back
    /// itself.
    #[inline]
    pub(crate) fn end_root(&self, number: u32, ending: Ending, via: Via<'_>) {
        let failed = ending.is_err();
        let waited = self.finish(&self.ring, number, ending, via);
        match via {
            Via::Lane(lane) => {
                let failed = if failed { FAILED } else { 0 };
                self.lanes[lane].done.push(number | failed);
                // One of the tasks that have become ready is this thread's next; others are for
                // others.
                if self.lanes[lane].ready.len() > 1 {
                    self.sleep.work_arrived();
                }
                self.sleep.room_made();
            }
            _ if self.sleep.anybody_idle() => self.sleep.work_arrived_guarded(),
            _ => {}
        }
        if waited {
            self.sleep.alarm();
        }
    }

    /// Closes the list of a task's successors, and queues those that become ready. Returns `true`
    /// if a thread asked to be told.
    #[inline]
    pub(crate) fn finish(&self, ring: &Ring, number: u32, ending: Ending, via: Via<'_>) -> bool {
        let slot = ring.slot(number);
        let origin = ending.as_ref().err().map(|record| record.origin);
        if origin.is_some() || slot.traits().has(Traits::EXCLUSIVE.and(Traits::SCOPED)) {
            self.note_ending(ring, number, ending, via);
        }
        let closed = slot.fanout.close();
        for successor in closed.successors(&ring.nodes) {
            let next = ring.slot(successor);
            if let Some(origin) = origin {
                next.inherit(origin);
            }
            if next.count_down(1) {
                self.enqueue(ring, successor, via);
            }
        }
        closed.waited
    }

    /// Exclusion, failures and scopes, which most tasks have nothing to do with.
    #[inline(never)]
    fn note_ending(&self, ring: &Ring, number: u32, ending: Ending, via: Via<'_>) {
        let slot = ring.slot(number);
        if slot.traits().has(Traits::EXCLUSIVE) {
            for next in lock(&ring.exclusion).release(number) {
                self.enqueue_owned(ring, next, via);
            }
        }
        // SAFETY: this thread ran the task and owns the slot until it is closed and given back.
        let (task, scope) = unsafe { (slot.work().id, slot.take_scope()) };
        let record = ending.err();
        if let Some(record) = &record {
            // A parent reports that children were cancelled; a stream does not.
            let quiet = ring.parent.is_none()
                && record.failure.cause.is_cancellation()
                && record.origin == task;
            ring.record_failure(task, record.clone(), quiet);
        }
        if let Some(scope) = scope
            && scope.task_ended(record.as_ref().map(|record| (task, &record.failure)))
        {
            self.sleep.alarm();
        }
    }
}

fn ending_of(outcome: Result<Result<(), String>, Arc<str>>, work: &Work) -> Ending {
    let cause = match outcome {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(message)) => Cause::Failed(message.into()),
        Err(message) => Cause::Panicked(message),
    };
    Err(Record { origin: work.id, failure: failure(work, cause) })
}

fn failure(work: &Work, cause: Cause) -> Arc<Failure> {
    Arc::new(Failure { task: work.id, name: work.name.clone(), cause })
}
