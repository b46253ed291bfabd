//! Stealing: lanes that take whatever op is ready, their own first.
//!
//! A [`Board`] has a word for every op. It says in which run the op was claimed and in which it was
//! done, so that there is nothing to reset between runs: in run `n` it goes from `2n - 2` (done in
//! the run before) to `2n - 1` (claimed, by whoever changes it first) to `2n` (done). An op is
//! ready when the words of all that it must come after say so; those are the plan's [`OpDeps`], not
//! the order on lanes. What a lane's order still means is where to look first.
//!
//! `README.md` beside this file argues why some lane always finds something to do.

use std::ops::Range;

use syncline_plan::{ExecutionPlan, OpDeps, OpIndex};
use syncline_sync::CachePadded;

use super::crew::Attendant;
use super::lane::Progress;
use super::run::{call_alone, fail};
use super::shared::{RUNS_MAX, Shared};
use syncline_sync::shim::{AtomicU64, Ordering};

/// How many ops of a lane that nobody has claimed are looked at, from the first on.
const WINDOW: usize = 64;

/// What lanes that steal share.
#[derive(Debug)]
pub struct Board {
    /// By op.
    words: Box<[AtomicU64]>,
    /// By op: where its deps end.
    deps_ends: Box<[u32]>,
    deps: Box<[Dep]>,
    lanes: Box<[BoardLane]>,
    /// By slot of a run: how many of its ops are done.
    done: [CachePadded<AtomicU64>; RUNS_MAX as usize],
    /// The last run of which all ops are done.
    ended: Progress,
}

/// What an op must come after.
#[derive(Clone, Copy, Debug)]
struct Dep {
    op: u32,
    /// How much less than twice the run's number the word of `op` may say.
    slack: u32,
}

#[derive(Debug)]
struct BoardLane {
    ops: Range<usize>,
    /// The lanes that run each other's ops.
    pool: Range<usize>,
    /// How many ops of the lane have been claimed without a gap, over all runs.
    cursor: CachePadded<AtomicU64>,
}

/// An op that this thread, and no other, is to run in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub op: usize,
    pub run: u64,
}

impl Board {
    /// A board for the runs after run number `last`.
    pub fn new(plan: &ExecutionPlan, deps: &OpDeps, last: u64) -> Self {
        let lanes = plan.lanes();
        let same = |a: usize, b: usize| {
            (lanes[a].device, lanes[a].kind) == (lanes[b].device, lanes[b].kind)
        };
        let lanes: Vec<(Range<usize>, Range<usize>)> = (lanes.iter().enumerate())
            .map(|(at, lane)| {
                let ops = lane.first.index()..lane.first.index() + lane.count as usize;
                // Lanes of one device and kind are neighbours.
                let first = (0..at).rev().take_while(|&other| same(other, at)).last().unwrap_or(at);
                let count = (at + 1..lanes.len()).take_while(|&other| same(other, at)).count();
                (ops, first..at + 1 + count)
            })
            .collect();
        let deps = (0..plan.ops().len() as u32).map(|op| {
            let deps = deps.of(OpIndex(op)).iter();
            deps.map(|dep| (dep.op.0, u32::from(dep.is_of_last_run))).collect()
        });
        Self::of(lanes, deps.collect(), last)
    }

    /// Lanes by their ops and pools; by op, what it must come after, and how many runs before.
    fn of(lanes: Vec<(Range<usize>, Range<usize>)>, deps: Vec<Vec<(u32, u32)>>, last: u64) -> Self {
        let mut ends = Vec::with_capacity(deps.len());
        let mut all = Vec::new();
        for deps in &deps {
            all.extend(deps.iter().map(|&(op, runs)| Dep { op, slack: 2 * runs }));
            ends.push(all.len() as u32);
        }
        let lanes = lanes.into_iter().map(|(ops, pool)| {
            let cursor = CachePadded::new(AtomicU64::new(last * ops.len() as u64));
            BoardLane { ops, pool, cursor }
        });
        Self {
            words: deps.iter().map(|_| AtomicU64::new(2 * last)).collect(),
            deps_ends: ends.into(),
            deps: all.into(),
            lanes: lanes.collect(),
            done: std::array::from_fn(|_| CachePadded::new(AtomicU64::new(0))),
            ended: Progress::starting_at(last),
        }
    }

    /// Whether anybody could run an op of a lane that is not theirs.
    pub fn can_steal(plan: &ExecutionPlan) -> bool {
        plan.lanes().windows(2).any(|pair| {
            (pair[0].device, pair[0].kind) == (pair[1].device, pair[1].kind)
                && pair[0].count + pair[1].count > 1
        })
    }

    pub fn has_ended(&self, run: u64) -> bool {
        self.ended.get() >= run || self.words.is_empty()
    }

    /// The last run that has ended.
    pub fn last_ended(&self) -> u64 {
        self.ended.get()
    }

    /// To be called before run `run` begins, when the run [`RUNS_MAX`] before has ended.
    pub fn begin(&self, run: u64) {
        // Relaxed: seen by whoever sees the run begin.
        self.done[(run % RUNS_MAX) as usize].store(0, Ordering::Relaxed);
    }

    /// Runs ops, of `lane` first, until none is ready or the thread must leave. Returns `false` if
    /// it must.
    pub fn work<A: Attendant>(&self, shared: &Shared, lane: usize, attendant: &mut A) -> bool {
        let claim = || self.claim(lane, self.last_ended() + 1, shared.started.get());
        loop {
            let mut found = claim();
            if found.is_none() && A::LINGERS {
                shared.is_soon(attendant, || self.could_claim(lane, shared.started.get()));
                found = claim();
            }
            let Some(claim) = found else { return !attendant.is_awaited() };
            self.run(shared, lane, claim);
            let ends_run = self.finish(claim);
            shared.published(ends_run);
            if !attendant.goes_on() {
                return false;
            }
        }
    }

    /// Returns `true` if a thread that takes `lane` would find an op that is ready, in a run up to
    /// `last`.
    pub fn could_claim(&self, lane: usize, last: u64) -> bool {
        self.find(lane, self.last_ended() + 1, last, |op, run| self.is_ready(op, run)).is_some()
    }

    /// A ready op of the runs from `first` to `last`, the earliest run first, the lane's own before
    /// others'.
    fn claim(&self, lane: usize, first: u64, last: u64) -> Option<Claim> {
        self.find(lane, first, last, |op, run| self.is_ready(op, run) && self.take(op, run))
    }

    fn find(
        &self,
        lane: usize,
        first: u64,
        last: u64,
        takes: impl Fn(usize, u64) -> bool,
    ) -> Option<Claim> {
        let pool = self.lanes[lane].pool.clone();
        for run in first..=last.min(first + RUNS_MAX - 1) {
            let from_own = (lane..pool.end).chain(pool.start..lane);
            let found = from_own.into_iter().find_map(|lane| self.find_of(lane, run, &takes));
            if let Some(op) = found {
                return Some(Claim { op, run });
            }
        }
        None
    }

    fn find_of(&self, lane: usize, run: u64, takes: impl Fn(usize, u64) -> bool) -> Option<usize> {
        let lane = &self.lanes[lane];
        let count = lane.ops.len() as u64;
        let base = (run - 1) * count;
        // Relaxed: a hint. What it leaves out was claimed.
        let cursor = lane.cursor.load(Ordering::Relaxed);
        let start = cursor.saturating_sub(base).min(count);
        let (mut unclaimed, mut gapless) = (0, start);
        let mut found = None;
        for op in lane.ops.start + start as usize..lane.ops.end {
            // Relaxed: taking it acquires.
            let word = self.words[op].load(Ordering::Relaxed);
            if word >= 2 * run - 1 {
                gapless += u64::from(unclaimed == 0);
                continue;
            }
            if word == 2 * run - 2 && takes(op, run) {
                found = Some(op);
                break;
            }
            unclaimed += 1;
            if unclaimed == WINDOW {
                break;
            }
        }
        if gapless > start && cursor >= base {
            lane.cursor.fetch_max(base + gapless, Ordering::Relaxed);
        }
        found
    }

    fn is_ready(&self, op: usize, run: u64) -> bool {
        let start = if op == 0 { 0 } else { self.deps_ends[op - 1] };
        let deps = &self.deps[start as usize..self.deps_ends[op] as usize];
        // Acquire: what the ops before wrote is seen.
        deps.iter().all(|dep| {
            let needed = (2 * run).saturating_sub(dep.slack.into());
            self.words[dep.op as usize].load(Ordering::Acquire) >= needed
        })
    }

    fn take(&self, op: usize, run: u64) -> bool {
        // Acquire: what the op itself did in the run before is seen, whoever ran it.
        self.words[op]
            .compare_exchange(2 * run - 2, 2 * run - 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn run(&self, shared: &Shared, lane: usize, Claim { op, run }: Claim) {
        // SAFETY: the run does not end before this op is done.
        let mode = unsafe { shared.mode(run) };
        if mode.must_stop(&shared.stop) {
            shared.skip(run);
            return;
        }
        if mode.is_timed {
            shared.ran_on[op].store(lane as u16, Ordering::Relaxed);
        }
        let home = self.lanes.partition_point(|lane| lane.ops.end <= op);
        let place = op - self.lanes[home].ops.start;
        // SAFETY: the run is under way; all that the op must come after is done and seen; the claim
        // makes this the only call of it in this run.
        if let Some(failure) = unsafe { call_alone(&shared.lanes[home], place, &mode) } {
            fail(shared, OpIndex(op as u32), run, failure);
        }
    }

    /// Says that a claimed op is done, or left out. Returns `true` if it was the last of its run.
    fn finish(&self, Claim { op, run }: Claim) -> bool {
        // Counted before its word changes: once it does, the op may go on in the next run, and that
        // must not be over before this one. Release and acquire: whoever counts the last one has
        // seen all, and says so for all.
        let before = self.done[(run % RUNS_MAX) as usize].fetch_add(1, Ordering::AcqRel);
        let is_last = before + 1 == self.words.len() as u64;
        if is_last {
            self.ended.raise_max(run);
        }
        self.words[op].store(2 * run, Ordering::Release);
        is_last
    }
}

#[cfg(all(test, loom))]
mod loom_models;
