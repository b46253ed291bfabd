//! Workers: the threads of a CPU device, and the sources of work that they serve.
//!
//! Lanes, plans and streams have no threads. They are [`Source`]s: a worker polls them in turn,
//! runs what it finds, and turns to the next one when a source has had its share or has nothing
//! left. `workers/README.md` has the protocols.

mod registry;
mod serve;

use std::fmt;
use std::sync::{Arc, Weak};

use syncline_sync::shim::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, thread};
use syncline_sync::{CachePadded, EventCount, Sleepers, barrier, blocking, lock, processors};

use crate::{DeviceError, DeviceSpec};
use registry::Registry;
pub use registry::Served;
pub use serve::Turn;

/// Work that workers run, in pieces.
///
/// A piece that blocks holds up its worker. Where it blocks in this system (a point, a stream, a
/// plan, a buffer), another thread takes the worker's place once no other is left; code that blocks
/// in another way calls [`blocking::section`] first.
pub trait Source: Send + Sync {
    /// Runs pieces of work on the calling worker until there is none or the turn is over: calls
    /// [`Turn::starts`] before each piece and [`Turn::goes_on`] after it.
    fn serve(&self, turn: &mut Turn<'_>);

    /// Returns `true` if a worker may find work. Called under no lock, by workers that have
    /// announced that they park: work that was made available before the announcement must be seen.
    /// Work that is made available later is told by [`WorkersHandle::work_arrived`].
    fn has_work(&self) -> bool;

    /// Called by a worker that has found no work and is about to park.
    fn ran_dry(&self) {}

    /// Takes a lock under which work is made available, and gives it back. Called by a worker that
    /// has announced that it parks, before its last [`Source::has_work`]: work that was made
    /// available under the lock before is seen then, and a thread that takes the lock later sees
    /// that the worker parks, without a barrier.
    fn pass_lock(&self) {}

    /// Returns `true` if there will never be work again: the source is then forgotten.
    fn is_over(&self) -> bool {
        false
    }
}

/// A set of threads that serve sources of work. They end when the last handle is dropped and all
/// sources are over.
///
/// ```
/// use syncline_device::cpu::Workers;
///
/// let workers = Workers::start("example", 2).expect("two threads");
/// assert_eq!(workers.count(), 2);
/// ```
pub struct Workers {
    pool: Arc<Pool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` workers, at least one, whose threads are called by `name`.
    ///
    /// # Errors
    /// Where a thread cannot be started: the reason.
    pub fn start(name: &str, count: usize) -> std::io::Result<Arc<Self>> {
        Self::start_on(name, count, |_| None)
    }

    /// As [`Workers::start`], with worker `n` staying on the processor that `pin(n)` gives.
    pub(super) fn start_on(
        name: &str,
        count: usize,
        pin: impl Fn(usize) -> Option<usize>,
    ) -> std::io::Result<Arc<Self>> {
        // Sources publish work with light barriers; see the README.
        barrier::prepare();
        let count = count.max(1);
        let pool = Arc::new_cyclic(|own| Pool::new(own.clone(), name, count));
        let mut workers = Self { pool, threads: Vec::with_capacity(count) };
        for number in 0..count {
            // Threads that were started end when `workers` is dropped here.
            workers.threads.push(workers.pool.spawn(number, pin(number))?);
        }
        Ok(Arc::new(workers))
    }

    /// As [`Workers::start_on`], for a device.
    pub(super) fn of_device(
        device: DeviceSpec,
        count: usize,
        pin: impl Fn(usize) -> Option<usize>,
    ) -> Result<Arc<Self>, DeviceError> {
        Self::start_on(&device.to_string(), count, pin).map_err(|error| DeviceError::Backend {
            device,
            message: format!("no thread for a worker: {error}").into(),
        })
    }

    /// How many workers there are: the pieces of work that run at a time, but for blocked ones.
    pub fn count(&self) -> usize {
        self.pool.count
    }

    /// What sources tell of new work.
    pub fn handle(&self) -> WorkersHandle {
        WorkersHandle(self.pool.clone())
    }

    /// Has the workers serve `source` until the result is dropped or the source is over.
    pub fn serve(&self, source: Arc<dyn Source>) -> Served {
        let served = Served::new(&self.pool, source);
        self.pool.work_arrived();
        served
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.pool.is_closing.store(true, Ordering::SeqCst);
        self.pool.sleepers.alarm();
        self.pool.spares.alarm();
        // A worker may drop the last handle; and sources that are left keep their workers.
        if serve::is_thread_of(&self.pool) || !self.pool.registry.is_empty() {
            return;
        }
        for thread in self.threads.drain(..) {
            // Sources catch what bodies throw; a panic of a worker was reported by the panic hook.
            let _ = thread.join();
        }
        self.pool.wait_for_spares();
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workers({} of {:?})", self.count(), self.pool.name)
    }
}

/// What a source tells of new work. It does not keep the workers.
#[derive(Clone)]
pub struct WorkersHandle(Arc<Pool>);

impl WorkersHandle {
    /// A handle of no workers: only threads that wait run anything.
    pub fn none() -> Self {
        Self(Arc::new_cyclic(|own| Pool::new(own.clone(), "no", 0)))
    }

    /// Returns `true` if a worker searches for work.
    #[inline]
    pub fn any_searching(&self) -> bool {
        self.0.searching.load(Ordering::SeqCst) != 0
    }

    /// How many workers there are.
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// Returns `true` if a worker is parked that could run new work. Ask behind a full barrier, or
    /// under the lock of [`Source::pass_lock`].
    #[inline]
    pub fn any_idle(&self) -> bool {
        self.0.sleepers.any()
    }

    /// Tells that a source has new work: wakes a worker, unless another one searches for work
    /// already. Call it after the work was made available with a sequentially consistent store, or
    /// behind a full fence.
    #[inline]
    pub fn work_arrived(&self) {
        self.0.work_arrived();
    }

    /// Wakes up to `count` workers, also if others search. Returns how many were parked.
    pub fn wake(&self, count: u32) -> u32 {
        self.0.sleepers.wake(count)
    }

    /// Returns `true` if workers and one more thread outnumber the processors while they are awake.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.0.is_crowded()
    }

    /// Takes the right to hand out the blocks of a gang, which one source has at a time: two gangs
    /// can never hold half of the workers each. Until it is given back by
    /// [`WorkersHandle::gang_formed`], workers that block are replaced.
    pub fn try_form_gang(&self) -> bool {
        if self.0.gang_forms.swap(true, Ordering::SeqCst) {
            self.0.gang_waits.store(true, Ordering::SeqCst);
            // It may have been given back in between, before it was told.
            return !self.0.gang_forms.swap(true, Ordering::SeqCst);
        }
        self.0.replace_blocked();
        true
    }

    /// Gives that right back: every block of the gang has a thread.
    pub fn gang_formed(&self) {
        self.0.gang_forms.store(false, Ordering::SeqCst);
        if self.0.gang_waits.swap(false, Ordering::SeqCst) {
            self.0.sleepers.wake(u32::MAX);
        }
    }

    /// Returns `true` if a gang is being formed.
    pub fn gang_forms(&self) -> bool {
        self.0.gang_forms.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for WorkersHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkersHandle({:?})", self.0.name)
    }
}

/// What the threads of one set of workers share.
struct Pool {
    own: Weak<Pool>,
    name: String,
    count: usize,
    registry: Registry,
    sleepers: Sleepers,
    /// Workers that search for work. On a line of its own: it changes all the time.
    searching: CachePadded<AtomicU32>,
    is_closing: AtomicBool,
    gang_forms: AtomicBool,
    /// A source has a gang that could not be formed yet.
    gang_waits: AtomicBool,
    /// There are more threads than there should be: one of them leaves its place.
    has_surplus: AtomicBool,
    threads: Mutex<Threads>,
    /// Where threads park that have left their places.
    spares: Sleepers,
    /// Moves when a thread ends that was started as a spare.
    ended: EventCount,
    numbers: AtomicU64,
}

/// How many threads there are.
#[derive(Debug)]
struct Threads {
    /// Threads in a place, but for threads that are blocked in the middle of their work.
    active: usize,
    blocked: usize,
    /// Threads that were started as spares and have not ended.
    spares: usize,
}

impl Pool {
    fn new(own: Weak<Pool>, name: &str, count: usize) -> Self {
        Self {
            own,
            name: name.to_owned(),
            count,
            registry: Registry::default(),
            sleepers: Sleepers::default(),
            searching: CachePadded::default(),
            is_closing: AtomicBool::new(false),
            gang_forms: AtomicBool::new(false),
            gang_waits: AtomicBool::new(false),
            has_surplus: AtomicBool::new(false),
            threads: Mutex::new(Threads { active: count, blocked: 0, spares: 0 }),
            spares: Sleepers::default(),
            ended: EventCount::new(),
            numbers: AtomicU64::new(count as u64),
        }
    }

    fn spawn(&self, number: usize, pin: Option<usize>) -> std::io::Result<thread::JoinHandle<()>> {
        let pool = self.own.upgrade().expect("it is used");
        let is_spare = number >= self.count;
        thread::Builder::new().name(format!("{} worker {number}", self.name)).spawn(move || {
            pin.inspect(|&processor| pin_to(processor));
            blocking::join_pool(pool.clone());
            pool.run(number);
            if is_spare {
                lock(&pool.threads).spares -= 1;
                pool.ended.wake_all();
            }
        })
    }

    #[inline]
    fn work_arrived(&self) {
        if self.sleepers.any() && self.searching.load(Ordering::SeqCst) == 0 {
            self.sleepers.wake(1);
        }
    }

    fn is_crowded(&self) -> bool {
        let awake = self.count.saturating_sub(self.sleepers.count() as usize);
        awake + 1 > processors()
    }

    /// How many threads must be able to run: one, so that all work goes on in the end, and as many
    /// as there are workers where a gang needs them at once.
    fn active_min(&self) -> usize {
        if self.gang_forms.load(Ordering::SeqCst) { self.count } else { 1 }
    }

    /// Puts spares in the places of blocked threads as far as needed.
    fn replace_blocked(&self) {
        let mut threads = lock(&self.threads);
        while threads.active < self.active_min() {
            if self.spares.wake(1) == 0 {
                let number = self.numbers.fetch_add(1, Ordering::Relaxed) as usize;
                // Without a thread, work waits until the blocked threads go on.
                if self.spawn(number, None).is_err() {
                    return;
                }
                threads.spares += 1;
            }
            threads.active += 1;
        }
    }

    fn wait_for_spares(&self) {
        loop {
            let epoch = self.ended.epoch();
            if lock(&self.threads).spares == 0 {
                return;
            }
            self.ended.park(epoch, None);
        }
    }
}

impl blocking::Standins for Pool {
    fn thread_blocks(&self) {
        let mut threads = lock(&self.threads);
        threads.active -= 1;
        threads.blocked += 1;
        drop(threads);
        self.replace_blocked();
    }

    fn thread_goes_on(&self) {
        let mut threads = lock(&self.threads);
        threads.active += 1;
        threads.blocked -= 1;
        let has_surplus = threads.active > self.count;
        drop(threads);
        if has_surplus {
            self.has_surplus.store(true, Ordering::SeqCst);
            // A spare that is parked leaves its place.
            self.sleepers.alarm();
        }
    }
}

#[cfg(target_os = "linux")]
fn pin_to(processor: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    set.set(processor);
    // Where the system refuses (a container that changed its mind), the worker runs wherever it
    // may.
    let _ = sched_setaffinity(None, &set);
}

#[cfg(not(target_os = "linux"))]
fn pin_to(_processor: usize) {}
