//! The task table of one ring: which task is in which slot, which slots and edge nodes are free,
//! and how a new task is linked to its predecessors.

use std::collections::HashMap;

use syncline_deps::{SubmitOptions, Submitter};
use syncline_tensor::TaskId;

use syncline_sync::prefetch::{prefetch, prefetch_all};

use super::fanout::{EdgeNodes, Fanout, Link, NEAR, Pushed};
use super::ring::Ring;
use super::slot::Slot;
use super::tuning::TUNING;

/// What the holder of the submit lock keeps about a ring.
#[derive(Debug)]
pub(crate) struct TaskTable {
    pub(crate) submitter: Submitter,
    /// Predecessors of the task being submitted, each once.
    pub(crate) preds: Vec<TaskId>,
    /// Scratch: the slots of those on whose lists it was put, and how it is known whether that was
    /// in time.
    linked: Vec<(u32, Link)>,
    entries: Box<[Entry]>,
    /// By slot, the buffers of tasks that have many.
    many_buffers: HashMap<u32, Vec<u32>>,
    free: Vec<u32>,
    index: Index,
    /// Number plus one of the first free node.
    free_node: u32,
    edges: Level,
    tasks: Level,
    accesses: Level,
}

/// How much of something is in use, and at most was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level {
    pub(crate) now: usize,
    pub(crate) high: usize,
}

impl Level {
    #[inline]
    fn add(&mut self, count: usize) {
        self.now += count;
        self.high = self.high.max(self.now);
    }
}

/// What is kept of a task beside its slot, which belongs to others most of the time.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Entry {
    id: Option<TaskId>,
    /// Nodes of this task's fan-out list, plus one: the latest, from which the others follow, and
    /// the first; zero where all successors are in place.
    latest_node: u32,
    first_node: u32,
    /// Successors in its fan-out list.
    edges: u32,
    accesses: u32,
    /// The numbers of the buffers that the task holds.
    buffers: [u32; BUFFERS],
    buffer_count: u32,
}

/// Views that discovery remembers although no unfinished task uses them, in a large ring: some ten
/// megabytes.
const VIEWS_KEPT: usize = 1 << 14;

/// Buffers of a task that are noted in place.
const BUFFERS: usize = 6;

impl TaskTable {
    pub(crate) fn new(ring_number: u8, tasks: usize, ring: &Ring, nodes: usize) -> Self {
        for node in 0..nodes as u32 {
            ring.nodes.link(node, if node + 1 < nodes as u32 { node + 2 } else { 0 });
        }
        Self {
            submitter: Submitter::new(SubmitOptions {
                ring: ring_number,
                views_kept: VIEWS_KEPT.min(4 * tasks),
                ..Default::default()
            }),
            preds: Vec::new(),
            linked: Vec::new(),
            entries: vec![Entry::default(); tasks].into(),
            many_buffers: HashMap::new(),
            // The last one is taken first: slots that were used lately are in the cache.
            free: (0..tasks as u32).rev().collect(),
            index: Index::new(tasks),
            free_node: 1,
            edges: Level::default(),
            tasks: Level::default(),
            accesses: Level::default(),
        }
    }

    /// Unfinished or not yet reclaimed tasks.
    pub(crate) fn tasks(&self) -> Level {
        self.tasks
    }

    /// Edges between them.
    pub(crate) fn edges(&self) -> Level {
        self.edges
    }

    /// Arguments of those tasks: what dependency discovery has to remember. (It also keeps some of
    /// tasks that have ended, until it sweeps them out; those are bounded by the ones counted
    /// here.)
    pub(crate) fn accesses(&self) -> Level {
        self.accesses
    }

    #[inline]
    pub(crate) fn has_slot(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether at least `count` slots are free.
    pub(crate) fn has_slots(&self, count: usize) -> bool {
        self.free.len() >= count
    }

    /// The slot that the next task will get.
    #[inline]
    pub(crate) fn next_slot(&self) -> u32 {
        *self.free.last().expect("checked: there is a free slot")
    }

    /// The slot of a task that has not been reclaimed.
    #[inline]
    pub(crate) fn find(&self, task: TaskId) -> Option<u32> {
        self.index.find(task, &self.entries)
    }

    /// All tasks that have not been reclaimed, with their slots.
    pub(crate) fn live(&self) -> impl Iterator<Item = (TaskId, u32)> + '_ {
        let tasks = self.entries.iter().enumerate();
        tasks.filter_map(|(slot, entry)| Some((entry.id?, slot as u32)))
    }

    /// Enters `task` into [`TaskTable::next_slot`], whose work has been written, behind
    /// [`TaskTable::preds`]. Returns `true` if it is ready.
    ///
    /// `buffers` are those that it holds until it is reclaimed, `accesses` its arguments.
    /// `origin_of` says which failure those inherit who depend on a task that has finished.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        ring: &Ring,
        task: TaskId,
        accesses: u32,
        buffers: &[u32],
        blocks: u32,
        origin_of: impl Fn(TaskId) -> Option<TaskId>,
    ) -> bool {
        let number = self.free.pop().expect("checked: there is a free slot");
        self.prefetch_free(ring);
        let slot = &ring.slots[number as usize];
        slot.prepare(self.preds.len() as u32, blocks);
        self.index.insert(task, number, &self.entries);
        let entry = &mut self.entries[number as usize];
        (entry.id, entry.edges, entry.accesses) = (Some(task), 0, accesses);
        entry.first_node = 0;
        entry.buffer_count = buffers.len() as u32;
        match entry.buffers.get_mut(..buffers.len()) {
            Some(places) => {
                places.iter_mut().zip(buffers).for_each(|(place, &buffer)| *place = buffer)
            }
            None => _ = self.many_buffers.insert(number, buffers.to_vec()),
        }
        self.tasks.add(1);
        self.accesses.add(accesses as usize);
        self.link_all(ring, number, origin_of)
    }

    /// Puts the task in slot `number` on the lists of its predecessors; whether none is left to
    /// wait for.
    #[inline]
    fn link_all(
        &mut self,
        ring: &Ring,
        number: u32,
        origin_of: impl Fn(TaskId) -> Option<TaskId>,
    ) -> bool {
        let slots = &*ring.slots;
        let slot = &slots[number as usize];
        let Self { preds, linked, index, entries, free_node, .. } = self;
        linked.clear();
        for &pred in preds.iter() {
            let place = index.find(pred, entries);
            let link = place.and_then(|place| {
                let (entry, list) = (&mut entries[place as usize], &slots[place as usize].fanout);
                entry.link(list, &ring.nodes, free_node, number).map(|link| (place, link))
            });
            match link {
                Some(link) => linked.push(link),
                None => inherit(slot, origin_of(pred)),
            }
        }
        if linked.is_empty() {
            // Nobody else knows of it.
            return true;
        }
        self.edges.add(linked.len());
        let settled = 1 + preds.len() - linked.len();
        let ready = slot.count_down_and_fence(settled as u32);
        let in_time = |&(pred, link): &(u32, Link)| slots[pred as usize].fanout.confirm(link);
        // Those that were late have not been counted, so that nobody else can have found the task
        // ready.
        ready || (!linked.iter().all(in_time) && self.unlink_late(ring, number, origin_of))
    }

    /// Takes the task in slot `number` off the lists where it came too late; whether none is left
    /// to wait for.
    #[cold]
    fn unlink_late(
        &mut self,
        ring: &Ring,
        number: u32,
        origin_of: impl Fn(TaskId) -> Option<TaskId>,
    ) -> bool {
        let slot = &ring.slots[number as usize];
        let mut late = 0;
        for position in 0..self.linked.len() {
            let (pred, link) = self.linked[position];
            // What was said of one that had finished before is said again.
            if !ring.slots[pred as usize].fanout.confirm(link) {
                late += 1;
                inherit(slot, origin_of(self.unlink(ring, pred)));
            }
        }
        slot.count_down(late)
    }

    /// Fetches a slot that is used a few submissions later: in a large ring it has gone from this
    /// processor's caches.
    #[inline]
    fn prefetch_free(&self, ring: &Ring) {
        if let Some(at) = self.free.len().checked_sub(TUNING.fetch_ahead) {
            let slot = self.free[at] as usize;
            prefetch_all(&ring.slots[slot]);
            prefetch_all(&self.entries[slot]);
        }
    }

    /// Takes the latest successor of the task in slot `pred`, which came too late, off the table;
    /// which task that is.
    #[cold]
    fn unlink(&mut self, ring: &Ring, pred: u32) -> TaskId {
        let entry = &mut self.entries[pred as usize];
        if entry.edges > NEAR as u32 {
            let node = entry.latest_node - 1;
            entry.latest_node = ring.nodes.next(node);
            if entry.first_node == node + 1 {
                entry.first_node = 0;
            }
            ring.nodes.link(node, self.free_node);
            self.free_node = node + 1;
        }
        entry.edges -= 1;
        self.edges.now -= 1;
        entry.id.expect("it has not been reclaimed")
    }

    /// Reclaims the slot of a task that has finished. `forget` unless its failure is still to be
    /// inherited; `let_go` is called for each of its buffers.
    #[inline]
    pub(crate) fn reclaim(
        &mut self,
        ring: &Ring,
        slot: u32,
        forget: bool,
        mut let_go: impl FnMut(u32),
    ) -> TaskId {
        let entry = &mut self.entries[slot as usize];
        let task = entry.id.take().expect("a slot is reclaimed once");
        match entry.buffers.get(..entry.buffer_count as usize) {
            Some(buffers) => buffers.iter().for_each(|&buffer| let_go(buffer)),
            None => {
                let buffers = self.many_buffers.remove(&slot).expect("entered with the task");
                buffers.into_iter().for_each(let_go);
            }
        }
        self.index.remove(task, slot);
        if entry.first_node > 0 {
            ring.nodes.link(entry.first_node - 1, self.free_node);
            self.free_node = entry.latest_node;
        }
        self.edges.now -= entry.edges as usize;
        if forget {
            self.submitter.retire(task);
        }
        self.tasks.now -= 1;
        self.accesses.now -= entry.accesses as usize;
        self.free.push(slot);
        // It is used again soon, and a finisher wrote to it last: its lines come over meanwhile.
        prefetch(&ring.slots[slot as usize]);
        task
    }
}

impl Entry {
    /// Puts the task in slot `successor` on this task's list, unless it has finished; in the first
    /// free node where there is no place nearer.
    #[inline]
    fn link(
        &mut self,
        list: &Fanout,
        nodes: &EdgeNodes,
        free_node: &mut u32,
        successor: u32,
    ) -> Option<Link> {
        let node = *free_node - 1;
        // The list of free nodes is looked at only where a node is taken: its lines are the
        // finishers' to read.
        let next = if self.edges < NEAR as u32 { 0 } else { nodes.next(node) };
        let link = match list.push(nodes, node, successor) {
            Pushed::TooLate => return None,
            Pushed::InPlace(link) => link,
            Pushed::InNode(link) => {
                *free_node = next;
                nodes.prefetch(next);
                self.latest_node = node + 1;
                if self.first_node == 0 {
                    self.first_node = node + 1;
                }
                link
            }
        };
        self.edges += 1;
        Some(link)
    }
}

/// The task in `slot` inherits a failure, if there is one.
#[inline]
fn inherit(slot: &Slot, origin: Option<TaskId>) {
    if let Some(origin) = origin {
        slot.inherit(origin);
    }
}

/// From a task's sequence number to its slot.
///
/// Sequence numbers of live tasks are mostly near each other, so that their low bits are a perfect
/// hash; a task that lives much longer than the others moves aside.
#[derive(Debug)]
struct Index {
    slots: Box<[u32]>,
    aside: HashMap<TaskId, u32>,
}

impl Index {
    fn new(tasks: usize) -> Self {
        Self { slots: vec![0; (2 * tasks).next_power_of_two()].into(), aside: HashMap::new() }
    }

    #[inline]
    fn place(&self, task: TaskId) -> usize {
        task.sequence() as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn find(&self, task: TaskId, entries: &[Entry]) -> Option<u32> {
        let slot = self.slots[self.place(task)].checked_sub(1);
        if slot.is_some_and(|slot| entries[slot as usize].id == Some(task)) {
            return slot;
        }
        if self.aside.is_empty() { None } else { self.aside.get(&task).copied() }
    }

    #[inline]
    fn insert(&mut self, task: TaskId, slot: u32, entries: &[Entry]) {
        let place = self.place(task);
        if let Some(older) = self.slots[place].checked_sub(1) {
            let id = entries[older as usize].id.expect("removed when reclaimed");
            self.aside.insert(id, older);
        }
        self.slots[place] = slot + 1;
    }

    #[inline]
    fn remove(&mut self, task: TaskId, slot: u32) {
        let place = self.place(task);
        if self.slots[place] == slot + 1 {
            self.slots[place] = 0;
        } else {
            self.aside.remove(&task);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn enter(table: &mut TaskTable, ring: &Ring, preds: &[TaskId]) -> (TaskId, u32, bool) {
        let task = table.submitter.submit(Default::default(), |_| ()).expect("no arguments");
        let slot = table.next_slot();
        table.preds.clear();
        table.preds.extend_from_slice(preds);
        let ready = table.enter(ring, task, 0, &[], 1, |_| None);
        (task, slot, ready)
    }

    #[test]
    fn tasks_are_found_until_they_are_taken_back_also_a_very_old_one() {
        let ring = Ring::new(4, 4);
        let mut table = TaskTable::new(0, 4, &ring, 8);
        let (old, old_slot, ready) = enter(&mut table, &ring, &[]);
        assert!(ready);
        for _ in 0..100 {
            let (task, slot, ready) = enter(&mut table, &ring, &[old]);
            assert!(!ready && table.find(task) == Some(slot));
            assert_eq!(table.find(old), Some(old_slot));
            assert_eq!(table.reclaim(&ring, slot, true, |_| ()), task);
            assert_eq!(table.find(task), None);
            // The list of `old` still names the slot, so take its nodes back too before they run
            // out.
            if table.edges().now == 8 {
                break;
            }
        }
        let told: Vec<_> =
            ring.slots[old_slot as usize].fanout.close().successors(&ring.nodes).collect();
        assert_eq!(told.len(), 8);
        table.reclaim(&ring, old_slot, true, |_| ());
        assert_eq!((table.edges().now, table.edges().high, table.tasks().now), (0, 8, 0));
    }

    #[test]
    fn nodes_come_back_however_the_lists_were_mixed() {
        let ring = Ring::new(8, 8);
        let mut table = TaskTable::new(0, 8, &ring, 16);
        for _ in 0..50 {
            let first = enter(&mut table, &ring, &[]);
            let second = enter(&mut table, &ring, &[first.0]);
            let third = enter(&mut table, &ring, &[first.0, second.0]);
            let fourth = enter(&mut table, &ring, &[second.0, first.0, third.0]);
            for (task, slot, _) in [first, second, third, fourth] {
                let closed = ring.slots[slot as usize].fanout.close();
                for successor in closed.successors(&ring.nodes) {
                    ring.slots[successor as usize].count_down(1);
                }
                assert_eq!(table.reclaim(&ring, slot, true, |_| ()), task);
            }
            assert_eq!(table.edges().now, 0);
        }
        assert_eq!(table.edges().high, 6);
    }
}
