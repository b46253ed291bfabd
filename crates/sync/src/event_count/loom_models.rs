//! All interleavings of the scenarios in `README.md`. A lost wake-up is a thread that is parked for
//! ever, which `loom` reports.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::lock;
use crate::shim::{AtomicU64, Mutex};

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// An event count and what its threads wait for.
#[derive(Default)]
struct Model {
    event: EventCount,
    /// A condition without a lock.
    value: AtomicU64,
    /// A condition with one, and the announcement of a waiter.
    state: Mutex<(u64, bool)>,
}

impl Model {
    fn wait_counted(&self, value: u64) {
        let reached = || self.value.load(Ordering::Acquire) >= value;
        assert!(self.event.wait_until(Spin::NONE, None, reached));
    }

    fn notify(&self, value: u64) {
        self.value.store(value, Ordering::Release);
        self.event.notify();
    }

    fn wait_flagged(&self, value: u64) {
        loop {
            let seen = self.event.epoch();
            let mut state = lock(&self.state);
            if state.0 >= value {
                return;
            }
            state.1 = true;
            drop(state);
            self.event.park(seen, None);
        }
    }

    fn notify_flagged(&self, value: u64) {
        let mut state = lock(&self.state);
        state.0 = value;
        let wake = std::mem::take(&mut state.1);
        drop(state);
        if wake {
            self.event.wake_all();
        }
    }

    fn wait_unannounced(&self, value: u64) {
        loop {
            let seen = self.event.epoch();
            if self.value.load(Ordering::Acquire) >= value {
                return;
            }
            self.event.park(seen, None);
        }
    }
}

#[test]
fn loom_a_counted_waiter_is_woken() {
    explore(|| {
        let model = Arc::new(Model::default());
        let waiting = Arc::clone(&model);
        let waiter = thread::spawn(move || waiting.wait_counted(2));
        model.notify(1);
        model.notify(2);
        waiter.join().unwrap();
    });
}

#[test]
fn loom_two_counted_waiters_are_woken() {
    explore(|| {
        let model = Arc::new(Model::default());
        let waiters = [1, 1].map(|value| {
            let waiting = Arc::clone(&model);
            thread::spawn(move || waiting.wait_counted(value))
        });
        model.notify(1);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

#[test]
fn loom_waiters_with_a_flag_are_woken_also_by_the_flag_of_another() {
    explore(|| {
        let model = Arc::new(Model::default());
        let waiters = [1, 2].map(|value| {
            let waiting = Arc::clone(&model);
            thread::spawn(move || waiting.wait_flagged(value))
        });
        model.notify_flagged(2);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

#[test]
fn loom_a_waiter_with_a_flag_survives_an_event_that_decides_nothing() {
    explore(|| {
        let model = Arc::new(Model::default());
        let waiting = Arc::clone(&model);
        let waiter = thread::spawn(move || waiting.wait_flagged(2));
        model.notify_flagged(1);
        model.notify_flagged(2);
        waiter.join().unwrap();
    });
}

#[test]
fn loom_a_waiter_that_announces_nothing_is_woken() {
    explore(|| {
        let model = Arc::new(Model::default());
        let waiting = Arc::clone(&model);
        let waiter = thread::spawn(move || waiting.wait_unannounced(2));
        for value in 1..=2 {
            model.value.store(value, Ordering::Release);
            model.event.wake_all();
        }
        waiter.join().unwrap();
    });
}

#[test]
fn loom_each_of_two_permits_is_taken() {
    explore(|| {
        let model = Arc::new(Model::default());
        let waiters = [(); 2].map(|()| {
            let waiting = Arc::clone(&model);
            thread::spawn(move || {
                loop {
                    let seen = waiting.event.epoch();
                    let mut state = lock(&waiting.state);
                    if state.0 > 0 {
                        state.0 -= 1;
                        return;
                    }
                    drop(state);
                    waiting.event.park(seen, None);
                }
            })
        });
        for _ in 0..2 {
            lock(&model.state).0 += 1;
            model.event.wake(1);
        }
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}
