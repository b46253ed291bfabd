//! Threads that are blocked, what they hold meanwhile, and circles among them.
//!
//! A thread that holds something (a map of a buffer, a host guard of a stream, a task that it runs)
//! and blocks may wait for a thread that waits for what it holds: within one stream, or across
//! streams and buffers. So there is one table for the process. A thread enters it before it sleeps,
//! and is refused if it could never wake up:
//!
//! Of all threads in the table, those are put aside again and again whose wait can end while the
//! others stand still. A thread that is left over waits for ever. What a thread holds changes only
//! while it is awake, so the last thread of a circle to fall asleep finds it. Threads with a
//! deadline wake up by themselves and are not entered. A thread that has ended, and forgot to drop
//! what it held, is one that never goes on.
//!
//! The table's lock is taken before the locks that obstacles take, and no user code runs under it.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{ThreadId, current};

use syncline_sync::lock;

/// What a blocked thread waits for.
pub trait Obstacle: Send + Sync {
    /// Returns `true` if the wait cannot end while all `stopped` threads stand still.
    fn is_stuck(&self, stopped: &Stopped<'_>) -> bool;

    /// Has the thread look again, and enter anew if it still waits.
    fn wake(&self);
}

/// A task that a thread runs: what it belongs to, and a number in there. Streams use their ids,
/// which are not zero; a thread that runs the work of a lane holds the lane.
pub type Held = (u64, u64);

/// Owner of lanes in a [`Held`], which are numbered by their ids.
pub const LANES: u64 = 0;

/// No task.
const NOTHING: Held = (0, u64::MAX);

#[derive(Clone)]
struct Entry {
    thread: ThreadId,
    number: u64,
    held: Vec<Held>,
    /// `None` for a thread that has ended.
    obstacle: Option<Arc<dyn Obstacle>>,
}

#[derive(Default)]
struct Table {
    entries: Vec<Entry>,
    number: u64,
}

static TABLE: Mutex<Table> = Mutex::new(Table { entries: Vec::new(), number: 0 });

fn table() -> MutexGuard<'static, Table> {
    lock(&TABLE)
}

thread_local! {
    /// The task that this thread runs, without a destructor: it is written for every task.
    static CURRENT: Cell<Held> = const { Cell::new(NOTHING) };
    /// What it runs below that, the outermost first.
    static BELOW: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
    /// The thread whose run of a plan this thread takes part in.
    static ACTS_FOR: Cell<Option<ThreadId>> = const { Cell::new(None) };
    static GUARDS: Guards = Guards { count: Cell::new(0), thread: current().id() };
}

/// Guards and maps that a thread has not dropped.
struct Guards {
    count: Cell<usize>,
    thread: ThreadId,
}

impl Drop for Guards {
    fn drop(&mut self) {
        if self.count.get() == 0 {
            return;
        }
        // They were forgotten, and cannot be dropped by another thread.
        let mut table = table();
        table.number += 1;
        let (thread, number) = (self.thread, table.number);
        table.entries.push(Entry { thread, number, held: Vec::new(), obstacle: None });
        let obstacles: Vec<_> =
            table.entries.iter().filter_map(|entry| entry.obstacle.clone()).collect();
        drop(table);
        obstacles.iter().for_each(|obstacle| obstacle.wake());
    }
}

/// Notes that this thread holds one more guard or map, which stays on it.
pub fn guard_opened() {
    let _ = GUARDS.try_with(|guards| guards.count.set(guards.count.get() + 1));
}

/// Notes that this thread has dropped one.
pub fn guard_dropped() {
    let _ = GUARDS.try_with(|guards| guards.count.set(guards.count.get().saturating_sub(1)));
}

/// Sets the task that this thread runs, and returns the one before.
#[inline]
pub fn swap_task(task: Held) -> Held {
    CURRENT.replace(task)
}

/// Returns the task that this thread runs.
#[inline]
pub fn current_task() -> Option<Held> {
    Some(CURRENT.get()).filter(|task| *task != NOTHING)
}

/// Notes what this thread uses until the result is dropped, below the tasks that it runs from now
/// on.
#[must_use]
pub fn run_above(held: impl IntoIterator<Item = Held>) -> Above {
    let current = CURRENT.replace(NOTHING);
    let depth = BELOW.with_borrow_mut(|below| {
        let depth = below.len();
        below.extend((current != NOTHING).then_some(current));
        below.extend(held);
        depth
    });
    Above { current, depth }
}

/// See [`run_above`].
#[derive(Debug)]
pub struct Above {
    current: Held,
    depth: usize,
}

impl Drop for Above {
    fn drop(&mut self) {
        CURRENT.set(self.current);
        let _ = BELOW.try_with(|below| below.borrow_mut().truncate(self.depth));
    }
}

/// Returns the tasks that this thread runs, the innermost last.
pub fn tasks() -> Vec<Held> {
    let mut tasks = BELOW.try_with(|below| below.borrow().clone()).unwrap_or_default();
    tasks.extend(current_task());
    tasks
}

/// Returns `true` if this thread runs `task`, be it below others.
pub fn runs(task: impl Fn(Held) -> bool) -> bool {
    current_task().is_some_and(&task)
        || BELOW.try_with(|below| below.borrow().iter().any(|held| task(*held))).unwrap_or(false)
}

/// Returns `true` if other threads may wait for something that this thread holds.
pub fn holds_anything() -> bool {
    runs(|_| true) || GUARDS.try_with(|guards| guards.count.get() > 0).unwrap_or(false)
}

/// Notes that this thread works for `thread`, which waits for it, until the result is dropped.
#[must_use]
#[inline]
pub fn act_for(thread: ThreadId) -> ActsFor {
    ActsFor(ACTS_FOR.replace(Some(thread)))
}

/// See [`act_for`].
#[derive(Debug)]
pub struct ActsFor(Option<ThreadId>);

impl Drop for ActsFor {
    #[inline]
    fn drop(&mut self) {
        ACTS_FOR.set(self.0);
    }
}

/// Returns the thread that this thread works for.
pub fn acts_for() -> Option<ThreadId> {
    ACTS_FOR.get()
}

/// Threads that stand still, as far as one knows.
pub struct Stopped<'a> {
    entries: &'a [Entry],
    asks: ThreadId,
}

impl Stopped<'_> {
    /// Returns `true` if `thread` is one of them.
    pub fn contains(&self, thread: ThreadId) -> bool {
        self.entries.iter().any(|entry| entry.thread == thread)
    }

    /// Returns the tasks of `owner` that they run.
    pub fn tasks(&self, owner: u64) -> impl Iterator<Item = u64> + '_ {
        let held = self.entries.iter().flat_map(|entry| &entry.held);
        held.filter(move |held| held.0 == owner).map(|held| held.1)
    }

    /// Returns `true` if one of them, other than the thread whose wait it is, runs `task`.
    pub fn others_run(&self, task: Held) -> bool {
        let others = self.entries.iter().filter(|entry| entry.thread != self.asks);
        others.flat_map(|entry| &entry.held).any(|held| *held == task)
    }
}

/// The wait could never end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverEnds;

/// A thread in the table, until this is dropped.
#[derive(Debug)]
pub struct Blocked(u64);

impl Drop for Blocked {
    fn drop(&mut self) {
        table().entries.retain(|entry| entry.number != self.0);
    }
}

/// Enters the calling thread, which is about to sleep until `obstacle` is gone. Call it under no
/// lock.
///
/// # Errors
/// Where it would sleep for ever.
pub fn block(obstacle: Arc<dyn Obstacle>) -> Result<Blocked, NeverEnds> {
    let (blocked, never_ends) = enter(obstacle);
    if never_ends { Err(NeverEnds) } else { Ok(blocked) }
}

/// As [`block`], for a thread that sleeps in any case: another thread of the circle is woken, to
/// find it in its turn.
pub fn block_anyway(obstacle: Arc<dyn Obstacle>) -> Blocked {
    let (blocked, never_ends) = enter(obstacle);
    if never_ends {
        let own = blocked.0;
        let others: Vec<_> = {
            let table = table();
            let others = table.entries.iter().filter(|entry| entry.number != own);
            others.filter_map(|entry| entry.obstacle.clone()).collect()
        };
        others.iter().for_each(|obstacle| obstacle.wake());
    }
    blocked
}

fn enter(obstacle: Arc<dyn Obstacle>) -> (Blocked, bool) {
    let (thread, held) = (current().id(), tasks());
    let mut table = table();
    table.number += 1;
    let number = table.number;
    table.entries.push(Entry { thread, number, held, obstacle: Some(obstacle) });
    let mut stopped = table.entries.clone();
    loop {
        let can_go_on = stopped.iter().position(|entry| {
            let all = Stopped { entries: &stopped, asks: entry.thread };
            entry.obstacle.as_ref().is_some_and(|obstacle| !obstacle.is_stuck(&all))
        });
        match can_go_on {
            Some(at) => drop(stopped.swap_remove(at)),
            None => break,
        }
    }
    let never_ends = stopped.iter().any(|entry| entry.number == number);
    drop(table);
    (Blocked(number), never_ends)
}
