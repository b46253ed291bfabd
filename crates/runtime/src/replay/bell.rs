//! Bells: sleeping until something that is looked at may have changed. `README.md` beside this file
//! has the argument.

use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use syncline_device::Deadline;

use super::barrier;
use super::sync::{AtomicU32, Ordering, WaitWord, spin_loop, thread};

/// How often a waiter looks before it goes to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Looks with a pause instruction between them.
    pub spins: u32,
    /// Then looks with the time slice given away between them.
    pub yields: u32,
}

impl Patience {
    /// For `lanes` lanes: with a core for each, what is waited for comes soon, and waking takes
    /// longer than looking. With fewer cores, looking takes the core from the one that is waited
    /// for.
    pub fn for_lanes(lanes: usize) -> Self {
        if cfg!(any(loom, shuttle)) {
            return Self { spins: 1, yields: 0 };
        }
        let cores = available_parallelism().map_or(1, usize::from);
        if lanes <= cores {
            Self { spins: 2_000, yields: 20 }
        } else {
            Self { spins: 20, yields: 4 }
        }
    }
}

/// What a waiter sleeps on, and whoever changes what it looks at rings.
#[derive(Debug)]
pub struct Bell {
    sleepers: AtomicU32,
    word: WaitWord,
}

impl Bell {
    /// A sleeper looks again after this time even if nobody wakes it: a bound on what a kernel's
    /// hiccup could cost.
    const NAP: Duration = Duration::from_millis(100);
    /// So many of the first looks follow each other at once.
    const EAGER_SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 200 };

    pub fn new() -> Self {
        Self { sleepers: AtomicU32::new(0), word: WaitWord::new() }
    }

    /// Wakes those that sleep, after a change of what they look at.
    #[inline]
    pub fn ring(&self) {
        // P2 and P3 of the protocol.
        barrier::light();
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        self.word.bump_and_wake();
    }

    /// Waits until `look` finds what it looks for.
    #[cold]
    pub fn wait(&self, patience: Patience, look: impl FnMut() -> bool) {
        self.wait_until(patience, Deadline::NEVER, look);
    }

    /// Waits until `look` finds what it looks for, or the deadline passes. Returns `false` in the
    /// latter case.
    pub fn wait_until(
        &self,
        patience: Patience,
        deadline: Deadline,
        mut look: impl FnMut() -> bool,
    ) -> bool {
        for spin in 0..patience.spins {
            // A pause takes as long as a cache line's way between cores: at first it would only
            // make the waiter late.
            if spin >= Self::EAGER_SPINS {
                spin_loop();
            }
            if look() {
                return true;
            }
        }
        for _ in 0..patience.yields {
            thread::yield_now();
            if look() {
                return true;
            }
        }
        loop {
            if deadline.has_passed() {
                return false;
            }
            let left = deadline.instant().map(|at| at.saturating_duration_since(Instant::now()));
            let nap = left.map_or(Self::NAP, |left| left.min(Self::NAP));
            // S1 to S5 of the protocol.
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            let ticket = self.word.load();
            barrier::heavy();
            let found = look();
            if !found {
                self.word.sleep(ticket, nap);
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            if found || look() {
                return true;
            }
        }
    }
}
