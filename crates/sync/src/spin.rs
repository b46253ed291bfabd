//! How often a thread checks before it parks.

use std::sync::OnceLock;
use std::thread::available_parallelism;

use crate::shim::{spin_loop, thread};

/// How often a thread checks its condition before it parks.
///
/// Waking a thread takes 5 to 50 us, so a short wait is better spent checking. A long one is not:
/// checking takes cache lines, and where threads outnumber processors also the processor, from the
/// very thread that is awaited. The constructors are the presets of the workspace, and the only
/// ones but for the workers of streams, whose `Tuning` says how they search for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin {
    /// Checks in a row.
    checks: u32,
    /// How many of them follow each other without a pause.
    eager: u32,
    /// Pause instructions before each later check.
    pauses: u32,
    /// Then checks that give the time slice away first.
    yields: u32,
}

impl Spin {
    /// Parks at once.
    pub const NONE: Self = Self { checks: 0, eager: 0, pauses: 0, yields: 0 };

    /// For a point of a timeline: a microsecond or two, longer than a signal takes to travel.
    pub fn point() -> Self {
        Self { checks: 60, eager: 1, pauses: 1, yields: 0 }.unless_alone()
    }

    /// For work in a queue: as long as [`Spin::point`] in fewer checks. Each takes a cache line
    /// from the submitter, who gets several small batches in between two.
    pub fn queue() -> Self {
        Self { checks: 7, eager: 0, pauses: 8, yields: 0 }.unless_alone()
    }

    /// For the progress of one of `lanes` lanes of a plan. With a processor for each, the wait is
    /// short: 2000 checks, the first 200 without a pause, which would take as long as
    /// a cache line on its way. With fewer, 20 checks.
    pub fn lanes(lanes: usize) -> Self {
        if cfg!(any(loom, shuttle)) {
            return Self { checks: 1, ..Self::NONE };
        }
        let eager = 200;
        if lanes <= processors() {
            Self { checks: 2_000, eager, pauses: 1, yields: 20 }
        } else {
            Self { checks: 20, eager, pauses: 1, yields: 4 }
        }
    }

    /// For a member of a group of processes, which often outnumber processors: long enough for a
    /// message that is under way already.
    pub const fn member() -> Self {
        Self { checks: 64, eager: 1, pauses: 1, yields: 0 }
    }

    /// The same with `checks` in a row.
    #[must_use]
    pub const fn with_checks(self, checks: u32) -> Self {
        Self { checks, ..self }
    }

    /// Checks `condition`; returns `true` as soon as it holds, `false` if it is time to park.
    #[inline]
    pub fn until(self, mut condition: impl FnMut() -> bool) -> bool {
        for check in 0..self.checks {
            if check >= self.eager {
                (0..self.pauses).for_each(|_| spin_loop());
            }
            if condition() {
                return true;
            }
        }
        for _ in 0..self.yields {
            thread::yield_now();
            if condition() {
                return true;
            }
        }
        false
    }

    /// Parks at once on a single processor, where nothing can change while a thread checks, and in
    /// models, which explore parking.
    fn unless_alone(self) -> Self {
        match cfg!(any(loom, shuttle)) || processors() == 1 {
            true => Self::NONE,
            false => self,
        }
    }
}

/// Returns how many processors this process may use, counted once.
pub fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| available_parallelism().map_or(1, usize::from))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn checks_as_often_as_it_says_and_no_longer_than_needed() {
        let count = |spin: Spin, enough| {
            let mut checks = 0;
            let found = spin.until(|| {
                checks += 1;
                checks == enough
            });
            (found, checks)
        };
        assert_eq!(count(Spin::NONE, 1), (false, 0));
        assert_eq!(count(Spin::member(), 3), (true, 3));
        assert_eq!(count(Spin::member(), u32::MAX), (false, 64));
        assert_eq!(count(Spin::lanes(usize::MAX), u32::MAX), (false, 24));
        assert_eq!(count(Spin::lanes(usize::MAX).with_checks(0), 5), (false, 4));
    }
}
