//! What a worker does: serves sources in turn, searches, parks.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_sync::shim::{Ordering, fence, thread_local};
use syncline_sync::{Polls, barrier, blocking, lock};

use super::registry::Entry;
use super::{Pool, Source};

/// Pieces of work that a source gets in a row while another one has work, too.
const SHARE: u32 = 32;

/// How long a spare thread stays parked before it ends.
const SPARE_STAYS: Duration = Duration::from_secs(1);

thread_local! {
    /// The pool whose thread this is, by its address.
    #[allow(clippy::missing_const_for_thread_local)] // Unknown to model checkers.
    static POOL: Cell<usize> = Cell::new(0);
    /// The entry of the source that this thread serves, by its address.
    #[allow(clippy::missing_const_for_thread_local)]
    static SERVES: Cell<usize> = Cell::new(0);
}

/// Returns `true` if the calling thread is one of `pool`.
pub(super) fn is_thread_of(pool: &Pool) -> bool {
    POOL.try_with(|own| own.get() == std::ptr::from_ref(pool).addr()).unwrap_or(false)
}

/// Returns `true` if the calling thread serves the source of `entry`.
pub(super) fn serves(entry: &Arc<Entry>) -> bool {
    SERVES.try_with(|own| own.get() == Arc::as_ptr(entry).addr()).unwrap_or(false)
}

/// A worker's turn at one source.
pub struct Turn<'a> {
    pool: &'a Pool,
    known: &'a Known,
    at: usize,
    source: &'a dyn Source,
    number: usize,
    left: u32,
    pieces: u64,
    has_searched: bool,
}

impl Turn<'_> {
    /// The number of the worker: less than [`Workers::count`](super::Workers::count), but for a
    /// thread in the place of one that is blocked.
    pub fn worker(&self) -> usize {
        self.number
    }

    /// Returns `true` if the worker came here by searching, and has not begun a piece since.
    pub fn has_searched(&self) -> bool {
        self.has_searched
    }

    /// Notes that a piece of work was taken and is about to run. A worker that has searched for it
    /// makes sure that a thread searches on, if there is more.
    #[inline]
    pub fn starts(&mut self) {
        if std::mem::take(&mut self.has_searched)
            // Not by the entry, which this worker has entered already.
            && (self.source.has_work() || self.known.others_have_work(self.at))
        {
            self.pool.work_arrived();
        }
    }

    /// Notes that a piece of work has ended. Returns `false` if the worker should turn to another
    /// source.
    #[inline]
    pub fn goes_on(&mut self) -> bool {
        self.pieces += 1;
        self.left -= 1;
        self.left > 0 || self.goes_on_after_share()
    }

    #[cold]
    fn goes_on_after_share(&mut self) -> bool {
        self.left = SHARE;
        !self.is_awaited()
    }

    /// Returns `true` if another source has work for this worker, or it should leave for another
    /// reason. For a source that waits for its own next piece.
    #[cold]
    pub fn is_awaited(&self) -> bool {
        self.pool.is_superfluous(self.number)
            || self.known.entries[self.at].is_removed.load(Ordering::Relaxed)
            || self.known.version != self.pool.registry.version()
            || self.known.others_have_work(self.at)
    }
}

/// The sources that a worker knows of.
#[derive(Default)]
pub(super) struct Known {
    entries: Vec<Arc<Entry>>,
    version: u64,
}

impl Known {
    fn refresh(&mut self, pool: &Pool) {
        if self.version != pool.registry.version() {
            self.version = pool.registry.copy(&mut self.entries);
        }
    }

    fn has_work(&self) -> bool {
        self.entries.iter().any(|entry| has_work(entry))
    }

    fn others_have_work(&self, at: usize) -> bool {
        let mut others = self.entries.iter().enumerate().filter(|(other, _)| *other != at);
        others.any(|(_, entry)| has_work(entry))
    }

    fn for_each(&self, call: impl Fn(&dyn Source)) {
        for entry in &self.entries {
            if let Some(source) = entry.enter() {
                source.as_deref().map(&call);
            }
        }
    }
}

fn has_work(entry: &Entry) -> bool {
    entry.enter().is_some_and(|source| source.as_ref().is_some_and(|source| source.has_work()))
}

impl Pool {
    /// Serves sources until the pool closes; a spare also ends when it was not needed for a while.
    pub(super) fn run(&self, number: usize) {
        POOL.with(|own| own.set(std::ptr::from_ref(self).addr()));
        let mut known = Known::default();
        let mut next = number;
        let mut has_searched = true;
        // Polls become rarer until work was found, also where there is some that better stays where
        // it is.
        let mut polls = Polls::new(self.is_crowded());
        loop {
            if self.is_superfluous(number) && !self.stand_aside(&mut known) {
                return;
            }
            known.refresh(self);
            let pieces = self.serve_all(&known, number, &mut next, &mut has_searched);
            if pieces > 0 {
                polls = Polls::new(self.is_crowded());
                continue;
            }
            self.forget_what_is_over(&known);
            if self.is_closed() {
                return;
            }
            has_searched = true;
            if !self.search(&mut known, &mut polls) {
                let crowded = self.is_crowded();
                polls = match self.park(number, &mut known) {
                    true => Polls::new(crowded),
                    false => Polls::rare(crowded),
                };
            }
        }
    }

    /// Gives every source a turn, from number `next` on. Returns how many pieces of work ran.
    fn serve_all(
        &self,
        known: &Known,
        number: usize,
        next: &mut usize,
        has_searched: &mut bool,
    ) -> u64 {
        let mut pieces = 0;
        let count = known.entries.len();
        for _ in 0..count {
            let at = *next % count;
            *next = at + 1;
            let Some(source) = known.entries[at].enter() else { continue };
            let Some(source) = source.as_ref() else { continue };
            let mut turn = Turn {
                pool: self,
                known,
                at,
                source: &**source,
                number,
                left: SHARE,
                pieces: 0,
                has_searched: *has_searched,
            };
            SERVES.with(|serves| serves.set(Arc::as_ptr(&known.entries[at]).addr()));
            let works = blocking::work();
            source.serve(&mut turn);
            drop(works);
            SERVES.with(|serves| serves.set(0));
            pieces += turn.pieces;
            *has_searched &= turn.pieces == 0;
            if self.is_superfluous(number) {
                break;
            }
        }
        pieces
    }

    /// Polls for work for a while. Returns `true` if there is some.
    fn search(&self, known: &mut Known, polls: &mut Polls) -> bool {
        self.searching.fetch_add(1, Ordering::SeqCst);
        let found = polls.any(|()| {
            known.refresh(self);
            known.has_work()
        });
        self.searching.fetch_sub(1, Ordering::SeqCst);
        // A thread that brings work behind a fence of its own finds that no worker searches, or
        // this worker's next check finds the work.
        fence(Ordering::SeqCst);
        found
    }

    /// Parks until there may be work. Returns `false` if there was some before.
    fn park(&self, number: usize, known: &mut Known) -> bool {
        known.for_each(|source| source.ran_dry());
        self.sleepers.announce();
        // The other half of the light barriers of plans; see the README.
        barrier::heavy();
        known.refresh(self);
        known.for_each(|source| source.pass_lock());
        let is_alarmed = || self.is_closed() || self.is_superfluous(number);
        if known.has_work() || is_alarmed() {
            self.sleepers.leave();
            return false;
        }
        // Sources that are removed meanwhile should go.
        known.entries.clear();
        known.version = 0;
        self.sleepers.park(None, is_alarmed);
        true
    }

    /// Returns `true` if thread `number` is a spare that should leave its place.
    fn is_superfluous(&self, number: usize) -> bool {
        number >= self.count && self.has_surplus.load(Ordering::Relaxed)
    }

    /// Returns `true` if there will be no more work.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst) && self.registry.is_empty()
    }

    /// Forgets sources that are over.
    fn forget_what_is_over(&self, known: &Known) {
        for entry in &known.entries {
            let is_over = entry
                .enter()
                .is_some_and(|source| source.as_ref().is_some_and(|source| source.is_over()));
            if is_over {
                self.forget(entry);
            }
        }
    }

    /// Takes a source off.
    pub(super) fn forget(&self, entry: &Arc<Entry>) {
        self.registry.remove(entry);
        if self.is_closed() {
            self.sleepers.alarm();
        }
    }

    /// Leaves the place of a spare where there are more threads than workers, until one is missing.
    /// Returns `false` if the thread should end.
    #[cold]
    fn stand_aside(&self, known: &mut Known) -> bool {
        let mut threads = lock(&self.threads);
        self.has_surplus.store(threads.active > self.count + 1, Ordering::Relaxed);
        if threads.active <= self.count {
            return true;
        }
        threads.active -= 1;
        // Work that this thread leaves is for another one.
        self.sleepers.wake(1);
        // Before the lock is given back: who replaces a blocked thread finds this one.
        self.spares.announce();
        drop(threads);
        *known = Known::default();
        let deadline = Some(Instant::now() + SPARE_STAYS).filter(|_| !cfg!(shuttle));
        self.spares.park(deadline, || self.is_closing.load(Ordering::SeqCst))
    }
}
