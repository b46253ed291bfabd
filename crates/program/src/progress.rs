//! Progress: how many tasks of a run are done, and what its workers do, for display.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use syncline_device::{CancelToken, DeviceError, Kernel};

/// A count of the tasks that have run on the CPU, over all repeats. Clones count together.
///
/// Tasks on other devices are not seen one by one: they are counted when their run has ended.
#[derive(Clone, Debug, Default)]
pub struct RunProgress(Arc<State>);

#[derive(Debug, Default)]
struct State {
    done: AtomicU64,
    failed: AtomicU64,
    watches_workers: bool,
    /// Ends the run before its time.
    cancel: CancelToken,
    /// In the order in which they ran their first tasks.
    workers: Mutex<Vec<Arc<Worker>>>,
}

/// What one thread has done.
#[derive(Debug)]
struct Worker {
    name: String,
    tasks: AtomicU64,
    busy_ns: AtomicU64,
    /// The kernel that runs now.
    running: Mutex<Option<Arc<str>>>,
}

/// What one worker thread has done so far, and what it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerProgress {
    /// The name of its thread.
    pub name: String,
    /// Tasks that it has run.
    pub tasks: u64,
    /// Time in their bodies.
    pub busy: Duration,
    /// The kernel that it runs now, if any.
    pub running: Option<Arc<str>>,
}

thread_local! {
    /// The worker that this thread is, for the progress at an address.
    static WORKER: RefCell<Option<(usize, Arc<Worker>)>> = const { RefCell::new(None) };
}

impl RunProgress {
    /// Nothing done yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, which also watches every worker: two readings of the clock for each task.
    pub fn watching_workers() -> Self {
        Self(Arc::new(State { watches_workers: true, ..State::default() }))
    }

    /// Fails the run once `cancel` is cancelled: no task begins on the CPU from then on.
    pub fn ended_by(cancel: &CancelToken) -> Self {
        Self(Arc::new(State { cancel: cancel.clone(), ..State::default() }))
    }

    /// Tasks done so far.
    pub fn done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }

    /// Tasks whose bodies failed.
    pub fn failed(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// What each worker has done, in the order of their first tasks; empty unless workers are
    /// watched.
    pub fn workers(&self) -> Vec<WorkerProgress> {
        let workers = self.0.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = |worker: &Arc<Worker>| WorkerProgress {
            name: worker.name.clone(),
            tasks: worker.tasks.load(Ordering::Relaxed),
            busy: Duration::from_nanos(worker.busy_ns.load(Ordering::Relaxed)),
            running: worker.running.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        workers.iter().map(progress).collect()
    }

    /// Everything up to `tasks` is done, whether or not it was seen.
    pub(crate) fn reach(&self, tasks: u64) {
        self.0.done.fetch_max(tasks, Ordering::Relaxed);
    }

    /// The CPU implementation of `kernel`, counting each of its runs.
    ///
    /// # Errors
    /// It has none.
    pub(crate) fn counted(&self, kernel: &Kernel) -> Result<Kernel, DeviceError> {
        let (state, name) = (self.0.clone(), kernel.name().clone());
        kernel.around(move |body| {
            if state.cancel.is_cancelled() {
                return Err("the run was cancelled".to_owned());
            }
            let outcome = match state.watches_workers {
                true => state.worker().run(&name, body),
                false => body(),
            };
            state.done.fetch_add(1, Ordering::Relaxed);
            state.failed.fetch_add(u64::from(outcome.is_err()), Ordering::Relaxed);
            outcome
        })
    }
}

impl State {
    /// The worker that this thread is.
    fn worker(&self) -> Arc<Worker> {
        let key = std::ptr::from_ref(self) as usize;
        WORKER.with_borrow_mut(|known| match known {
            Some((of, worker)) if *of == key => worker.clone(),
            _ => {
                let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
                let thread = std::thread::current();
                let number = workers.len();
                let name = thread.name().map_or(format!("worker {number}"), str::to_owned);
                let worker = Arc::new(Worker {
                    name,
                    tasks: AtomicU64::new(0),
                    busy_ns: AtomicU64::new(0),
                    running: Mutex::new(None),
                });
                workers.push(worker.clone());
                *known = Some((key, worker.clone()));
                worker
            }
        })
    }
}

impl Worker {
    fn run(
        &self,
        name: &Arc<str>,
        body: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        self.set_running(Some(name.clone()));
        let began = Instant::now();
        let outcome = body();
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.busy_ns.fetch_add(ns, Ordering::Relaxed);
        self.tasks.fetch_add(1, Ordering::Relaxed);
        self.set_running(None);
        outcome
    }

    fn set_running(&self, name: Option<Arc<str>>) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }
}
