//! The bridge: one thread of a device that hands over work once what it waits for has happened elsewhere.
//!
//! It sleeps until a timeline that some lane watches has changed: `README.md`, "The bridge".

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use syncline_device::Wake;

use crate::gpu::lock;
use crate::lane::Core;

/// Lanes that should look again, and who sees to it.
#[derive(Default)]
pub(crate) struct Bridge {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    called: VecDeque<Arc<Call>>,
    closing: bool,
}

/// How a timeline reaches a lane. It holds no lane: the last handle of one must not be dropped by who signals.
pub(crate) struct Call {
    lane: Weak<Core>,
    bridge: Arc<Bridge>,
    queued: AtomicBool,
}

impl Call {
    pub(crate) fn new(lane: Weak<Core>, bridge: &Arc<Bridge>) -> Arc<Self> {
        Arc::new(Self { lane, bridge: bridge.clone(), queued: AtomicBool::new(false) })
    }

    /// Has the bridge look at the lane soon.
    pub(crate) fn queue(self: &Arc<Self>) {
        // `AcqRel`: whoever finds the call queued leaves it to a look that begins after this change.
        if !self.queued.swap(true, Ordering::AcqRel) {
            lock(&self.bridge.state).called.push_back(self.clone());
            self.bridge.changed.notify_one();
        }
    }
}

/// What timelines hold: an `Arc` to wake through.
pub(crate) struct Waker(pub(crate) Arc<Call>);

impl Wake for Waker {
    fn wake(&self) {
        self.0.queue();
    }
}

impl Bridge {
    /// Answers calls until the bridge closes: the body of its one thread.
    pub(crate) fn run(&self) {
        while let Some(call) = self.next() {
            // Before the look: a change that comes during it calls again.
            call.queued.swap(false, Ordering::AcqRel);
            if let Some(lane) = call.lane.upgrade() {
                lane.pump();
            }
        }
    }

    fn next(&self) -> Option<Arc<Call>> {
        let mut state = lock(&self.state);
        loop {
            if let Some(call) = state.called.pop_front() {
                return Some(call);
            }
            if state.closing {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the thread end.
    pub(crate) fn close(&self) {
        lock(&self.state).closing = true;
        self.changed.notify_all();
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bridge")
    }
}
