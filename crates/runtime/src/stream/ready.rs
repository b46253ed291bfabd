//! The shared ready queue: priorities, blocks and gangs.
//!
//! Ordinary tasks of priority zero go through the lanes' own queues; everything else comes here.
//! Tasks leave by priority, then in the order in which they became ready; every [`AGING`]th one is
//! the oldest of all, so that nothing starves. A task with several blocks stays at its place until
//! all of its blocks have been handed out.
//!
//! Gangs: one at a time *forms*, of all streams that share their workers. While it does, every
//! thread that comes to this stream for work joins it before anything else. A gang has no more
//! blocks than there are workers and no other gang takes threads meanwhile, so it is complete as
//! soon as the tasks that are running have ended: two gangs can never hold half of the threads
//! each.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use syncline_device::cpu::WorkersHandle;
use syncline_sync::lock;
use syncline_sync::shim::{AtomicI32, AtomicUsize, Mutex, MutexGuard, Ordering};

/// One in so many tasks is taken by age, whatever its priority.
pub(crate) const AGING: u64 = 64;

/// Ready tasks that are not in a lane's own queue.
#[derive(Debug)]
pub(crate) struct ReadyQueue {
    workers: WorkersHandle,
    levels: Mutex<Levels>,
    /// Entries from which something can be taken; kept beside the lock so that sleepers can look
    /// without it.
    len: AtomicUsize,
    /// Gangs that wait until the workers are free for them.
    gangs: AtomicUsize,
    /// The priority of what would be taken, `i32::MIN` for nothing, `i32::MAX` while a gang forms.
    top: AtomicI32,
}

/// A task, or one block of it, to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) slot: u32,
    pub(crate) block: u32,
}

/// What is to be queued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) slot: u32,
    pub(crate) priority: i32,
    pub(crate) blocks: u32,
    pub(crate) gang: bool,
}

#[derive(Debug, Default)]
struct Levels {
    by_priority: BTreeMap<Reverse<i32>, VecDeque<Entry>>,
    arrivals: u64,
    picks: u64,
    forming: Option<Entry>,
    gangs: VecDeque<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    ready: Ready,
    arrival: u64,
    next_block: u32,
}

impl ReadyQueue {
    /// For tasks that `workers` run, which one gang at a time may call together.
    pub(crate) fn new(workers: WorkersHandle) -> Self {
        Self {
            workers,
            levels: Mutex::default(),
            len: AtomicUsize::new(0),
            gangs: AtomicUsize::new(0),
            top: AtomicI32::new(i32::MIN),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Levels> {
        lock(&self.levels)
    }

    /// Adds a ready task.
    pub(crate) fn push(&self, ready: Ready) {
        let mut levels = self.lock();
        levels.arrivals += 1;
        let entry = Entry { ready, arrival: levels.arrivals, next_block: 0 };
        levels.by_priority.entry(Reverse(ready.priority)).or_default().push_back(entry);
        self.publish(&levels);
    }

    /// Takes the next block of the next task whose priority is at least `least`.
    pub(crate) fn pop(&self, least: i32) -> Option<Pick> {
        // Acquire is enough: a sleeper's own check is the one that must not miss anything.
        if (self.top.load(Ordering::Acquire) < least || self.len.load(Ordering::Acquire) == 0)
            && !self.can_form()
        {
            return None;
        }
        let mut levels = self.lock();
        levels.picks += 1;
        let by_age = levels.picks.is_multiple_of(AGING);
        let pick = levels.take(&self.workers, least, by_age);
        self.publish(&levels);
        pick
    }

    /// Takes a block of the first task that is `wanted`. One of a gang is taken only if no other
    /// gang forms.
    pub(crate) fn pop_where(&self, wanted: impl Fn(u32) -> bool) -> Option<Pick> {
        if self.len() == 0 {
            return None;
        }
        let mut levels = self.lock();
        let pick = levels.take_where(&self.workers, wanted);
        self.publish(&levels);
        pick
    }

    /// Takes the next block of the task that has been ready for the longest time.
    pub(crate) fn pop_oldest(&self) -> Option<Pick> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut levels = self.lock();
        let pick = levels.take(&self.workers, i32::MIN, true);
        self.publish(&levels);
        pick
    }

    /// The priority of what would be taken next; `i32::MIN` for nothing, `i32::MAX` while a gang
    /// forms.
    #[inline]
    pub(crate) fn top(&self) -> i32 {
        self.top.load(Ordering::Acquire)
    }

    /// How many tasks something can be taken from.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // SeqCst: see `sleep.rs`.
        self.len.load(Ordering::SeqCst) + usize::from(self.can_form())
    }

    /// Returns `true` if a gang waits and may be called together now.
    #[inline]
    fn can_form(&self) -> bool {
        self.gangs.load(Ordering::SeqCst) > 0 && !self.workers.gang_forms()
    }

    /// Threads that the gang which is forming still needs.
    pub(crate) fn gang_needs(&self) -> u32 {
        self.lock().forming.map_or(0, |gang| gang.ready.blocks - gang.next_block)
    }

    fn publish(&self, levels: &Levels) {
        let queued: usize = levels.by_priority.values().map(VecDeque::len).sum();
        let top = match (&levels.forming, levels.by_priority.keys().next()) {
            (Some(_), _) => i32::MAX,
            (None, Some(Reverse(priority))) => *priority,
            (None, None) => i32::MIN,
        };
        self.top.store(top, Ordering::Release);
        self.len.store(queued + usize::from(levels.forming.is_some()), Ordering::SeqCst);
        self.gangs.store(levels.gangs.len(), Ordering::SeqCst);
    }
}

impl Levels {
    /// Begins to call a gang together that waits for it, if no other does.
    fn form(&mut self, workers: &WorkersHandle) {
        if self.forming.is_none() && !self.gangs.is_empty() && workers.try_form_gang() {
            self.forming = self.gangs.pop_front();
        }
    }

    fn take_where(
        &mut self,
        workers: &WorkersHandle,
        wanted: impl Fn(u32) -> bool,
    ) -> Option<Pick> {
        self.form(workers);
        if self.forming.as_ref().is_some_and(|gang| wanted(gang.ready.slot)) {
            return self.take(workers, i32::MIN, false);
        }
        let may_form = self.forming.is_none() && !workers.gang_forms();
        let fits = |entry: &Entry| wanted(entry.ready.slot) && (may_form || !entry.ready.gang);
        let find = |(level, queue): (&Reverse<i32>, &VecDeque<Entry>)| {
            Some((*level, queue.iter().position(fits)?))
        };
        let (level, at) = self.by_priority.iter().find_map(find)?;
        let queue = self.by_priority.get_mut(&level).expect("a level that was just seen");
        let entry = &mut queue[at];
        let (gang, pick) = (*entry, Pick { slot: entry.ready.slot, block: entry.next_block });
        entry.next_block += 1;
        if gang.ready.gang || entry.next_block == entry.ready.blocks {
            queue.remove(at);
            if queue.is_empty() {
                self.by_priority.remove(&level);
            }
        }
        if gang.ready.gang {
            self.gangs.push_front(Entry { next_block: 0, ..gang });
            self.form(workers);
            // Another source may have been faster.
            return self.forming.and_then(|_| self.take(workers, i32::MIN, false));
        }
        Some(pick)
    }

    fn take(&mut self, workers: &WorkersHandle, least: i32, by_age: bool) -> Option<Pick> {
        loop {
            self.form(workers);
            if let Some(gang) = &mut self.forming {
                let pick = Pick { slot: gang.ready.slot, block: gang.next_block };
                gang.next_block += 1;
                if gang.next_block == gang.ready.blocks {
                    self.forming = None;
                    workers.gang_formed();
                }
                return Some(pick);
            }
            let level = match by_age {
                true => *self.by_priority.iter().min_by_key(|(_, level)| level[0].arrival)?.0,
                false => *self.by_priority.keys().next()?,
            };
            if level.0 < least && !by_age {
                return None;
            }
            let queue = self.by_priority.get_mut(&level).expect("a level that was just seen");
            let entry = queue.front_mut().expect("empty levels are removed");
            let gang = entry.ready.gang.then_some(*entry);
            let pick = Pick { slot: entry.ready.slot, block: entry.next_block };
            entry.next_block += 1;
            if gang.is_some() || entry.next_block == entry.ready.blocks {
                queue.pop_front();
                if queue.is_empty() {
                    self.by_priority.remove(&level);
                }
            }
            match gang {
                None => return Some(pick),
                Some(gang) => self.gangs.push_back(gang),
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn one(slot: u32, priority: i32) -> Ready {
        Ready { slot, priority, blocks: 1, gang: false }
    }

    fn drain(queue: &ReadyQueue) -> Vec<(u32, u32)> {
        std::iter::from_fn(|| queue.pop(i32::MIN)).map(|pick| (pick.slot, pick.block)).collect()
    }

    #[test]
    fn by_priority_then_first_in_first_out() {
        let queue = ReadyQueue::new(WorkersHandle::none());
        for (slot, priority) in [(0, 0), (1, 5), (2, -3), (3, 5), (4, 0)] {
            queue.push(one(slot, priority));
        }
        assert_eq!((queue.len(), queue.top()), (5, 5));
        assert_eq!(queue.pop(6), None);
        assert_eq!(drain(&queue), [(1, 0), (3, 0), (0, 0), (4, 0), (2, 0)]);
        assert_eq!((queue.len(), queue.top()), (0, i32::MIN));
    }

    #[test]
    fn blocks_are_handed_out_one_by_one_without_losing_the_place() {
        let queue = ReadyQueue::new(WorkersHandle::none());
        queue.push(Ready { slot: 7, priority: 0, blocks: 3, gang: false });
        queue.push(one(8, 0));
        assert_eq!(drain(&queue), [(7, 0), (7, 1), (7, 2), (8, 0)]);
    }

    #[test]
    fn a_gang_that_forms_comes_before_everything_and_gangs_form_one_after_the_other() {
        let queue = ReadyQueue::new(WorkersHandle::none());
        queue.push(Ready { slot: 1, priority: 0, blocks: 2, gang: true });
        queue.push(Ready { slot: 2, priority: 0, blocks: 2, gang: true });
        queue.push(one(3, 0));
        assert_eq!(queue.pop(i32::MIN), Some(Pick { slot: 1, block: 0 }));
        assert_eq!((queue.gang_needs(), queue.top()), (1, i32::MAX));
        queue.push(one(4, 100));
        assert_eq!(drain(&queue), [(1, 1), (4, 0), (2, 0), (2, 1), (3, 0)]);
    }

    #[test]
    fn the_lowest_priority_is_taken_by_age_in_the_end() {
        let queue = ReadyQueue::new(WorkersHandle::none());
        queue.push(one(0, -100));
        let turns = (1..).find(|&slot| {
            queue.push(one(slot, 100));
            queue.pop(i32::MIN).is_some_and(|pick| pick.slot == 0)
        });
        assert!(turns.is_some_and(|turns| u64::from(turns) <= AGING), "{turns:?}");
    }
}
