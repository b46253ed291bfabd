//! Threads that run tasks: the workers, and whoever helps them.

use std::sync::Arc;

use super::run;
use super::shared::Shared;
use super::sleep::Want;

/// Looks before a worker sleeps, each a little later than the one before.
const LOOKS: u32 = 40;
/// Pauses between two looks, at most: about a microsecond, so that the submitter's cache lines are left alone.
const PAUSES_MAX: u32 = 64;
/// Tasks that a helper runs before it looks again at what it waits for.
const HELP_BURST: usize = 16;

/// Runs tasks on `lane` until the stream stops.
pub(crate) fn work(shared: &Arc<Shared>, lane: usize) {
    run::enter(shared.stream_id);
    let (mut turn, mut batch) = (0, Vec::new());
    let mut searched = false;
    loop {
        match shared.pick(lane, &mut turn, &mut batch) {
            Some(job) => {
                if std::mem::take(&mut searched) && shared.has_work() {
                    shared.sleep.work_arrived();
                }
                shared.run(lane, job);
            }
            None if shared.is_stopping() => return,
            None => {
                searched = true;
                if !search(shared) {
                    sleep(shared);
                }
            }
        }
    }
}

/// Looks for work for a while; whether there is some.
fn search(shared: &Shared) -> bool {
    shared.sleep.start_searching();
    let crowded = shared.counters.is_crowded();
    let looks = if crowded { 4 } else { LOOKS };
    let mut pauses = 1;
    let found = (0..looks).any(|_| {
        if crowded {
            // Spinning would keep off the very thread that has to bring the work.
            std::thread::yield_now();
        } else {
            (0..pauses).for_each(|_| std::hint::spin_loop());
            pauses = (pauses * 2).min(PAUSES_MAX);
        }
        shared.has_work() || shared.is_stopping()
    });
    shared.sleep.stop_searching();
    found
}

fn sleep(shared: &Shared) {
    shared.sleep.ran_dry();
    let ticket = shared.sleep.prepare(Want::Work, true);
    if shared.has_work() || shared.is_stopping() {
        shared.sleep.cancel(ticket);
    } else {
        shared.sleep.commit(ticket, None);
    }
}

impl Shared {
    /// Runs some ready tasks on the calling thread, which waits for something: how many, or `None` where it may not.
    pub(crate) fn help(self: &Arc<Self>) -> Option<usize> {
        if !self.options.help {
            return None;
        }
        let (lane, _guard) = self.host_lane()?;
        let before = run::enter(self.stream_id);
        let (mut turn, mut batch, mut count) = (0, Vec::new(), 0);
        while count < HELP_BURST
            && let Some(job) = self.pick(lane, &mut turn, &mut batch)
        {
            self.run(lane, job);
            count += 1;
        }
        // What is left in this lane's queue is for others: whoever put it there took it for this thread's next.
        if self.lanes[lane].ready.len() > 0 {
            self.sleep.work_arrived();
        }
        run::enter(before);
        self.counters.helped.fetch_add(count as u64, std::sync::atomic::Ordering::Relaxed);
        Some(count)
    }
}
