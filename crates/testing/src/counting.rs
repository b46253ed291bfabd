//! An allocator that counts, to show that a path allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, counting allocations of the whole process.
///
/// ```
/// use syncline_testing::CountingAllocator;
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator = CountingAllocator::new();
///
/// let before = ALLOCATOR.allocations();
/// drop(Box::new(1));
/// assert!(ALLOCATOR.allocations() > before);
/// ```
///
/// The system and the test runner have threads that allocate when they like. Where that would
/// disturb, the threads that matter say so with [`CountingAllocator::watch_this_thread`], and
/// theirs are counted separately.
#[derive(Debug, Default)]
pub struct CountingAllocator {
    allocations: AtomicU64,
    watched: AtomicU64,
    bytes_live: AtomicU64,
    bytes_peak: AtomicU64,
}

impl CountingAllocator {
    /// An allocator that has counted nothing yet.
    pub const fn new() -> Self {
        let (allocations, watched) = (AtomicU64::new(0), AtomicU64::new(0));
        let (bytes_live, bytes_peak) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { allocations, watched, bytes_live, bytes_peak }
    }

    /// From here on, allocations of the calling thread are also counted separately.
    pub fn watch_this_thread() {
        IS_WATCHED.set(true);
    }

    /// Allocations and reallocations so far of threads that are watched.
    pub fn watched_allocations(&self) -> u64 {
        self.watched.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.allocations.fetch_add(1, Ordering::Relaxed);
        if IS_WATCHED.get() {
            self.watched.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Allocations and reallocations so far.
    pub fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    /// Bytes allocated and not freed.
    pub fn bytes_live(&self) -> u64 {
        self.bytes_live.load(Ordering::Relaxed)
    }

    /// Calls `run`; returns by how many bytes the live ones grew at most meanwhile, over all
    /// threads.
    pub fn bytes_peak_of<T>(&self, run: impl FnOnce() -> T) -> (T, u64) {
        let before = self.bytes_live();
        self.bytes_peak.store(before, Ordering::Relaxed);
        let result = run();
        (result, self.bytes_peak.load(Ordering::Relaxed).saturating_sub(before))
    }

    fn grow(&self, bytes: usize) {
        let live = self.bytes_live.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        self.bytes_peak.fetch_max(live, Ordering::Relaxed);
    }
}

thread_local! {
    // Constant and without a destructor, so that reading it neither allocates nor comes too
    // late.
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call goes to the system's allocator as it came; only counters are touched beside
// it.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count();
        self.grow(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.bytes_live.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.count();
        self.grow(size);
        self.bytes_live.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
