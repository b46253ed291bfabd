//! Bridges: one thread between the events of a driver and the timelines of all others.
//!
//! A lane of a driver that has events of its own needs the host twice: when a wait is for a point
//! that the driver does not know, and when work has completed and other threads and lanes that wait
//! for it must learn of it. A [`Bridge`] does both for any number of lanes with one thread, which
//! parks until there is something to do.
//!
//! A lane asks for a call of [`Woken::wake`] when a point is decided ([`Bridge::when`]), and the
//! driver's callbacks ask for one at once ([`Bridge::wake`]). Calls are made on the bridge's thread
//! only, so that no code of a lane runs inside of a driver's callback or on the thread of a
//! signaller.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use syncline_device::{
    Deadline, DeviceError, DeviceSpec, Point, PointStatus, Timeline, Wake, Watch, drop_guarded,
    guarded,
};
use syncline_sync::{EventCount, lock};

/// What a bridge wakes: a lane, which then checks what there is to do.
pub trait Woken: Send + Sync {
    /// Something may have changed. Called on the bridge's thread; must not wait. A panic ends
    /// there.
    fn wake(self: Arc<Self>);
}

/// One thread that wakes lanes when points that they wait for are decided.
///
/// ```
/// use std::sync::Arc;
/// use syncline_backend::{Bridge, Woken};
/// use syncline_device::{Deadline, DeviceSpec, Timeline};
///
/// struct Echo(Timeline);
/// impl Woken for Echo {
///     fn wake(self: Arc<Self>) {
///         let _ = self.0.signal(1);
///     }
/// }
///
/// let bridge = Bridge::start("example", DeviceSpec::CPU)?;
/// let (ready, echoed) = (Timeline::new("ready", 0), Timeline::new("echoed", 0));
/// bridge.when(&ready.point(1), Arc::new(Echo(echoed.clone())));
/// ready.signal(1)?;
/// echoed.wait(1, Deadline::NEVER)?;
/// # Ok::<(), syncline_device::DeviceError>(())
/// ```
pub struct Bridge {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    inbox: Mutex<Inbox>,
    posted: Arc<Posted>,
}

/// Wakes and waits that there is room for from the start.
const WAKES: usize = 256;

/// Where the thread parks; timelines that it watches wake it too.
struct Posted(EventCount);

impl Wake for Posted {
    fn wake(&self) {
        self.0.wake_all();
    }
}

#[derive(Default)]
struct Inbox {
    wakes: Vec<Arc<dyn Woken>>,
    waits: Vec<(Watch, Arc<dyn Woken>)>,
    forgotten: Vec<Arc<dyn Woken>>,
    parks: bool,
    stops: bool,
}

impl Bridge {
    /// Starts the thread, called `name` in debuggers; `device` is named in the error if there is
    /// none to be had.
    pub fn start(name: &str, device: DeviceSpec) -> Result<Self, DeviceError> {
        let posted = Arc::new(Posted(EventCount::new()));
        let (wakes, waits) = (Vec::with_capacity(WAKES), Vec::with_capacity(WAKES));
        let inbox = Inbox { wakes, waits, ..Inbox::default() };
        let shared = Arc::new(Shared { inbox: Mutex::new(inbox), posted });
        let taken = shared.clone();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || taken.run());
        let thread = thread.map_err(|error| DeviceError::Backend {
            device,
            message: format!("no thread for a bridge: {error}").into(),
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Wakes `target` once, when `point` is reached or its timeline has failed.
    pub fn when(&self, point: &Point, target: Arc<dyn Woken>) {
        let shared = &self.shared;
        let watch = point.watch(shared.posted.clone());
        let mut inbox = shared.lock();
        inbox.waits.push((watch, target));
        // The thread stays parked: it finds the wait in its inbox when the timeline wakes it. Hence
        // first the entry, then the check that arms the timeline: a change before it is seen here,
        // and one after it wakes the thread, which reads the inbox only after the event count.
        let status = inbox.waits.last().map(|(watch, _)| watch.look());
        drop(inbox);
        if status != Some(PointStatus::Pending) {
            shared.post(|_| ());
        }
    }

    /// Wakes `target` soon.
    pub fn wake(&self, target: Arc<dyn Woken>) {
        self.shared.wake(target);
    }

    /// Returns a handle that wakes and does not own the thread. It may be kept and used anywhere,
    /// also in a driver's callback.
    pub fn waker(&self) -> BridgeWaker {
        BridgeWaker(self.shared.clone())
    }

    /// Drops every wait of `target`, for a lane that closes.
    pub fn forget(&self, target: Arc<dyn Woken>) {
        self.shared.post(|inbox| inbox.forgotten.push(target));
    }

    /// Waits until the thread has done what it was asked for before, and has dropped what it was
    /// given for that. Not to be called on that thread.
    pub fn settle(&self, deadline: Deadline) {
        let done = Timeline::new("bridge", 0);
        self.wake(Arc::new(Settled(done.clone())));
        // Late is as good as it gets: a target that is being woken takes its time.
        let _ = done.wait(1, deadline);
    }

    /// Whether the calling thread is the bridge's.
    pub fn is_current(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == thread::current().id())
    }
}

/// Woken after everything that was asked for before it.
struct Settled(Timeline);

impl Woken for Settled {
    fn wake(self: Arc<Self>) {
        // It is signalled here only.
        let _ = self.0.signal(1);
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.shared.post(|inbox| inbox.stops = true);
        // The last handle may be dropped by a lane that this very thread woke.
        if !self.is_current()
            && let Some(thread) = self.thread.take()
        {
            // A panic in there was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bridge")
    }
}

/// Wakes lanes on a bridge's thread, if that still runs: see [`Bridge::waker`].
#[derive(Clone)]
pub struct BridgeWaker(Arc<Shared>);

impl BridgeWaker {
    /// Wakes `target` soon, on the bridge's thread.
    pub fn wake(&self, target: Arc<dyn Woken>) {
        self.0.wake(target);
    }
}

impl fmt::Debug for BridgeWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BridgeWaker")
    }
}

impl Shared {
    fn wake(&self, target: Arc<dyn Woken>) {
        self.post(|inbox| {
            // A lane whose work completes faster than the bridge runs is woken once for all of it.
            if !inbox.wakes.last().is_some_and(|last| is_same(last, &target)) {
                inbox.wakes.push(target);
            }
        });
    }

    fn post(&self, change: impl FnOnce(&mut Inbox)) {
        let mut inbox = self.lock();
        change(&mut inbox);
        let parks = mem::take(&mut inbox.parks);
        drop(inbox);
        if parks {
            self.posted.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    fn run(&self) {
        let mut awaited: Vec<(Watch, Arc<dyn Woken>)> = Vec::with_capacity(WAKES);
        let mut due: Vec<Arc<dyn Woken>> = Vec::with_capacity(WAKES);
        loop {
            // As for every wait: the epoch first, then arm or raise the flag, then park.
            let seen = self.posted.0.epoch();
            let mut inbox = self.lock();
            if inbox.stops {
                return;
            }
            due.append(&mut inbox.wakes);
            awaited.append(&mut inbox.waits);
            let forgotten = mem::take(&mut inbox.forgotten);
            drop(inbox);
            awaited.retain(|(watch, target)| {
                if forgotten.iter().any(|other| is_same(other, target)) {
                    return false;
                }
                let pending = watch.look() == PointStatus::Pending;
                if !pending && !due.iter().any(|other| is_same(other, target)) {
                    due.push(target.clone());
                }
                pending
            });
            drop_guarded(forgotten);
            if !due.is_empty() {
                // The panic hook has reported a panic; other lanes go on.
                due.drain(..).for_each(|target| _ = guarded(|| target.wake()));
                continue;
            }
            let mut inbox = self.lock();
            if inbox.is_empty() {
                inbox.parks = true;
                drop(inbox);
                self.posted.0.park(seen, None);
                self.lock().parks = false;
            }
        }
    }
}

impl Inbox {
    fn is_empty(&self) -> bool {
        self.wakes.is_empty() && self.waits.is_empty() && self.forgotten.is_empty() && !self.stops
    }
}

fn is_same(one: &Arc<dyn Woken>, other: &Arc<dyn Woken>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}
