//! What a stream has done and holds.

use std::time::{Duration, Instant};

use syncline_sync::lock;
use syncline_sync::shim::{AtomicU64, Ordering};

use super::shared::Shared;

/// What a [`Stream`](super::Stream) has done and holds, at one moment while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStats {
    /// Tasks submitted, those of the host's own accesses included.
    pub submitted: u64,
    /// Tasks that could run and do not yet, about.
    pub ready: u64,
    /// Threads that are running a task, about.
    pub running: u64,
    /// Tasks that have ended, in whatever way.
    pub done: u64,
    /// Those of them that failed, or depended on one that did.
    pub failed: u64,
    /// Tasks run by threads that were waiting for the stream.
    pub helped: u64,
    /// Tasks in the ring: now and at most.
    pub ring_tasks: HighWater,
    /// Bytes of outputs: now and at most.
    pub heap_bytes: HighWater,
    /// Edges between unfinished tasks: now and at most.
    pub edges: HighWater,
    /// Accesses of unfinished tasks, which dependency discovery has to remember: now and at most.
    pub map_entries: HighWater,
    /// How long submissions waited for a free slot.
    pub blocked_on_ring: Duration,
    /// How long they waited for memory.
    pub blocked_on_heap: Duration,
    /// How long they waited for edges.
    pub blocked_on_edges: Duration,
    /// How long they waited for entries of the tensor map.
    pub blocked_on_map: Duration,
}

impl StreamStats {
    /// As a JSON object, times in nanoseconds.
    pub fn to_json(&self) -> String {
        let Self { submitted, ready, running, done, failed, helped, .. } = self;
        let high = [
            ("ring_tasks", self.ring_tasks),
            ("heap_bytes", self.heap_bytes),
            ("edges", self.edges),
            ("map_entries", self.map_entries),
        ];
        let high = high.map(|(name, level)| {
            format!(r#""{name}":{{"now":{},"high":{}}}"#, level.now, level.high)
        });
        let blocked = [
            ("ring", self.blocked_on_ring),
            ("heap", self.blocked_on_heap),
            ("edges", self.blocked_on_edges),
            ("map", self.blocked_on_map),
        ];
        let blocked =
            blocked.map(|(name, time)| format!(r#""blocked_on_{name}_ns":{}"#, time.as_nanos()));
        format!(
            r#"{{"submitted":{submitted},"ready":{ready},"running":{running},"done":{done},"failed":{failed},"helped":{helped},{},{}}}"#,
            high.join(","),
            blocked.join(",")
        )
    }
}

/// A resource's use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HighWater {
    /// In use.
    pub now: u64,
    /// In use at most, so far.
    pub high: u64,
}

/// What a submission may have to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Ring,
    Heap,
    Edges,
    Map,
}

impl Resource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Resource::Ring => "slots of the task ring",
            Resource::Heap => "bytes of outputs",
            Resource::Edges => "edges",
            Resource::Map => "entries of the tensor map",
        }
    }
}

/// Counters that no lock guards.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) helped: AtomicU64,
    blocked_ns: [AtomicU64; 4],
    workers: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            helped: AtomicU64::new(0),
            blocked_ns: Default::default(),
            workers: AtomicU64::new(0),
        }
    }
}

/// Counts the time until it is dropped.
pub(crate) struct Blocked<'a> {
    total_ns: &'a AtomicU64,
    started: Instant,
}

impl Counters {
    pub(crate) fn blocked_on(&self, resource: Resource, started: Instant) -> Blocked<'_> {
        Blocked { total_ns: &self.blocked_ns[resource as usize], started }
    }

    pub(crate) fn set_workers(&self, workers: usize) {
        self.workers.store(workers as u64, Ordering::Relaxed);
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.total_ns.fetch_add(self.started.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Shared {
    pub(crate) fn stats(&self) -> StreamStats {
        let state = self.lock();
        let level = |level: super::task_table::Level| HighWater {
            now: level.now as u64,
            high: level.high as u64,
        };
        let blocked = |resource: Resource| {
            Duration::from_nanos(
                self.counters.blocked_ns[resource as usize].load(Ordering::Relaxed),
            )
        };
        let (heap_now, heap_high) = state.heap.use_bytes();
        let done = self.ended();
        StreamStats {
            submitted: self.submitted.load(Ordering::SeqCst),
            ready: self.ready_count() as u64,
            running: self.lanes.iter().filter(|lane| lane.running.load(Ordering::Relaxed)).count()
                as u64,
            done,
            failed: lock(&self.ring.failures).total(),
            helped: self.counters.helped.load(Ordering::Relaxed),
            ring_tasks: level(state.table.tasks()),
            heap_bytes: HighWater { now: heap_now, high: heap_high },
            edges: level(state.table.edges()),
            map_entries: level(state.table.accesses()),
            blocked_on_ring: blocked(Resource::Ring),
            blocked_on_heap: blocked(Resource::Heap),
            blocked_on_edges: blocked(Resource::Edges),
            blocked_on_map: blocked(Resource::Map),
        }
    }
}
