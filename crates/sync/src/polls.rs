//! Polls of a thread that searches for work, with pauses that grow.

use std::time::Duration;
#[cfg(not(shuttle))]
use std::time::Instant;

use crate::shim::thread;

/// Polls of a thread that searches for work before it parks, with pauses between them.
///
/// A cache line that one processor writes and another reads travels for half of the first pause, so
/// that polling faster would hold up the thread that brings the work.
#[derive(Clone, Copy, Debug)]
pub struct Polls {
    left: u32,
    pause: Option<Duration>,
}

impl Polls {
    const COUNT: u32 = if cfg!(shuttle) { 2 } else { 40 };
    const COUNT_CROWDED: u32 = 4;
    const PAUSE_FIRST: Duration = Duration::from_nanos(200);
    const PAUSE_LAST: Duration = Duration::from_micros(3);

    /// Polls with pauses that double; few of them, without pauses, where threads outnumber
    /// processors (`is_crowded`): spinning would keep off the very thread that brings the work.
    pub fn new(is_crowded: bool) -> Self {
        match is_crowded {
            true => Self { left: Self::COUNT_CROWDED, pause: None },
            false => Self { left: Self::COUNT, pause: Some(Self::PAUSE_FIRST) },
        }
    }

    /// Polls with the longest pauses only.
    pub fn rare(is_crowded: bool) -> Self {
        let polls = Self::new(is_crowded);
        Self { pause: polls.pause.map(|_| Self::PAUSE_LAST), ..polls }
    }
}

impl Iterator for Polls {
    type Item = ();

    fn next(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        match &mut self.pause {
            None => thread::yield_now(),
            Some(time) => {
                pause(*time);
                *time = (2 * *time).min(Self::PAUSE_LAST);
            }
        }
        Some(())
    }
}

/// Leaves the processor, and the cache lines of others, alone for a moment.
#[cfg(not(shuttle))]
pub fn pause(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// There is no time in a model: others go first.
#[cfg(shuttle)]
pub fn pause(_time: Duration) {
    thread::yield_now();
}
