//! What a thread runs next.
//!
//! By priority, then in the order in which tasks became ready, as far as a thread can see: its own
//! queue, what was submitted lately, the shared queue, tasks inside tasks, and last the queues of
//! others. Every so often it looks at the others first, so that nothing starves.

use syncline_sync::{pause, prefetch::prefetch};

use super::index_ring::IndexRing;
use super::ready::Pick;
use super::shared::{Job, Shared};
use super::tuning::TUNING;
use super::worker::Moment;

/// What a thread remembers from one pick to the next.
#[derive(Debug, Default)]
pub(crate) struct Picker {
    turn: u32,
    batch: Vec<u32>,
    /// The queue of each lane when one task was last seen in it.
    seen: Vec<Option<Glimpse>>,
}

/// How many tasks had been taken from a queue by when.
#[derive(Clone, Copy, Debug)]
struct Glimpse {
    taken: u64,
    at: Moment,
}

impl Glimpse {
    fn of(queue: &IndexRing) -> Self {
        Self { taken: queue.taken(), at: Moment::now() }
    }

    /// Returns `true` if the queue's lane has gone through short tasks since `before`.
    fn is_racing(self, before: Option<Self>) -> bool {
        before.is_some_and(|before| {
            let tasks = u32::try_from(self.taken - before.taken).unwrap_or(u32::MAX);
            tasks > 1 && self.at.since(before.at) < TUNING.racing.saturating_mul(tasks)
        })
    }
}

impl Shared {
    /// What the thread of `lane` should run next.
    #[inline]
    pub(crate) fn pick(&self, lane: usize, picker: &mut Picker) -> Option<Job> {
        picker.turn = picker.turn.wrapping_add(1);
        if picker.turn.is_multiple_of(TUNING.look_around)
            && let Some(job) = self.pick_elsewhere(lane, picker)
        {
            return Some(job);
        }
        if self.queue.top() > 0
            && let Some(pick) = self.queue.pop(1)
        {
            return Some(self.picked(pick));
        }
        let own = &self.lanes[lane].ready;
        if let Some(slot) = own.pop() {
            return Some(Job::Root(Pick { slot, block: 0 }));
        }
        self.pick_inbox(lane, picker).or_else(|| self.pick_rest(lane, picker, true))
    }

    /// A share of what was submitted lately: one to run, the others to the lane's own queue.
    fn pick_inbox(&self, lane: usize, picker: &mut Picker) -> Option<Job> {
        let waiting = self.inbox.len();
        if waiting == 0 {
            return None;
        }
        let batch = &mut picker.batch;
        batch.clear();
        self.inbox.pop_into(waiting.div_ceil(self.options.workers).min(TUNING.batch), batch);
        for &slot in batch.iter() {
            prefetch(&self.ring.slots[slot as usize]);
        }
        let (&slot, rest) = batch.split_first()?;
        for &slot in rest {
            self.lanes[lane].ready.push(slot);
        }
        if !rest.is_empty() {
            self.sleep.work_arrived();
        }
        Some(Job::Root(Pick { slot, block: 0 }))
    }

    /// The shared queue, the tasks inside tasks, and the queues of other lanes; last, what has a
    /// low priority.
    fn pick_rest(&self, lane: usize, picker: &mut Picker, settle: bool) -> Option<Job> {
        if let Some(pick) = self.queue.pop(0) {
            return Some(self.picked(pick));
        }
        if let Some((ring, pick)) = self.children.pick() {
            return Some(Job::Child(ring, pick));
        }
        if let Some(slot) = self.steal(lane, picker, settle) {
            return Some(Job::Root(Pick { slot, block: 0 }));
        }
        self.queue.pop(i32::MIN).map(|pick| self.picked(pick))
    }

    /// A task from another lane's queue.
    ///
    /// The only one of a lane that goes through short tasks is the lane's next, with everything
    /// about it in that processor's cache; a chain would wander to and fro with every link. It is
    /// left alone until the lane turns out to be busy with something long: nothing has been taken
    /// from its queue since it was seen last, or, where there is time to `settle` that, for a
    /// moment.
    fn steal(&self, lane: usize, picker: &mut Picker, settle: bool) -> Option<u32> {
        picker.seen.resize(self.lanes.len(), None);
        for other in (lane + 1..self.lanes.len()).chain(0..lane) {
            let queue = &self.lanes[other].ready;
            match queue.len() {
                0 => continue,
                1 => {
                    let seen = Glimpse::of(queue);
                    let before = picker.seen[other].replace(seen);
                    let known = before.is_some_and(|before| before.taken == seen.taken);
                    let is_left = || seen.is_racing(before) && !self.is_stuck(other);
                    if !known && (!settle || is_left()) {
                        continue;
                    }
                }
                _ => {}
            }
            if let Some(slot) = queue.pop() {
                return Some(slot);
            }
        }
        None
    }

    /// Whether nothing is taken from the queue of a lane for a moment.
    fn is_stuck(&self, lane: usize) -> bool {
        let queue = &self.lanes[lane].ready;
        let before = queue.taken();
        pause(TUNING.settle);
        queue.taken() == before
    }

    /// Keeps a lane that always has work of its own from starving the rest.
    #[cold]
    fn pick_elsewhere(&self, lane: usize, picker: &mut Picker) -> Option<Job> {
        if picker.turn.is_multiple_of(2 * TUNING.look_around)
            && let Some(pick) = self.queue.pop_oldest()
        {
            return Some(self.picked(pick));
        }
        if let Some(slot) = self.inbox.pop() {
            return Some(Job::Root(Pick { slot, block: 0 }));
        }
        self.pick_rest(lane, picker, false)
    }

    /// A gang that has begun to form calls the threads that it needs.
    fn picked(&self, pick: Pick) -> Job {
        if self.queue.top() == i32::MAX {
            self.sleep.wake(self.queue.gang_needs());
        }
        Job::Root(pick)
    }
}
