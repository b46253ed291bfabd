//! How far a lane is, and who has it.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use syncline_device::Watch;
use syncline_sync::CachePadded;
use syncline_sync::shim::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::apart::Moves;

/// A count that only grows. Who raises it tells the threads that wait: `Shared::published`.
#[derive(Debug, Default)]
pub struct Progress(CachePadded<AtomicU64>);

impl Progress {
    pub fn starting_at(count: u64) -> Self {
        Self(CachePadded::new(AtomicU64::new(count)))
    }

    /// The count.
    #[inline]
    pub fn get(&self) -> u64 {
        // Acquire: what was done before the count was raised is seen by whoever sees the count.
        self.0.load(Ordering::Acquire)
    }

    /// Raises the count to `value`. Only one thread may do so at a time, and another only after it
    /// has seen all that this one says.
    #[inline]
    pub fn raise(&self, value: u64) {
        debug_assert!(self.0.load(Ordering::Relaxed) <= value, "a count only grows");
        self.0.store(value, Ordering::Release);
    }

    /// As [`Progress::raise`] where several threads may, and a late one must not take back what
    /// another said.
    pub fn raise_max(&self, value: u64) {
        self.0.fetch_max(value, Ordering::AcqRel);
    }
}

/// Where a lane stands: what the next thread that takes it needs to go on.
#[derive(Debug, Default)]
pub struct Position {
    /// The run that the lane is in, or has come to the end of.
    pub run: u64,
    /// Whether it is in that run.
    pub is_inside: bool,
    /// The segment that comes next, and how many of its waits are over.
    pub segment: u32,
    pub waited: u32,
    /// Makes the lane ready when a device may have come where it waits for it.
    pub watch: Option<Watch>,
    pub moves: Moves,
}

/// What a lane waits for that nobody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    /// The next run, by its number; zero for nothing.
    Run(u64),
    /// The progress of another lane.
    Lane(u32, u64),
    /// A device.
    Device,
}

/// A lane as data: one thread at a time has it, any thread may be the next.
#[derive(Debug)]
pub struct Seat {
    is_taken: CachePadded<AtomicBool>,
    /// What [`Awaits`] says, for those who look for a lane that can go on.
    kind: AtomicU32,
    value: AtomicU64,
    /// A device may have come where the lane waits for it.
    was_told: AtomicBool,
    position: UnsafeCell<Position>,
}

// SAFETY: `position` is touched by the thread only that has the lane: `Held` is made where
// `is_taken` was changed to true, which acquires what the thread before released.
unsafe impl Sync for Seat {}

const NEXT_RUN: u32 = u32::MAX;
const DEVICE: u32 = u32::MAX - 1;

impl Seat {
    /// A lane that nobody has, before the first run; or one that somebody has for good.
    pub fn new(is_taken: bool) -> Self {
        Self {
            is_taken: CachePadded::new(AtomicBool::new(is_taken)),
            kind: AtomicU32::new(NEXT_RUN),
            value: AtomicU64::new(1),
            was_told: AtomicBool::new(false),
            position: UnsafeCell::default(),
        }
    }

    /// Whether somebody has the lane.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Acquire)
    }

    /// Takes the lane, unless somebody has it.
    #[inline]
    pub fn take(&self) -> Option<Held<'_>> {
        let is_free = !self.is_taken() && !self.is_taken.swap(true, Ordering::Acquire);
        // Made only where it was taken: dropping one gives the lane up.
        is_free.then(|| Held { seat: self })
    }

    /// The lane, for whoever has it already.
    ///
    /// # Safety
    /// The caller has kept the lane ([`Held::keep`]) and nobody was given it since.
    #[inline]
    pub unsafe fn resume(&self) -> Held<'_> {
        Held { seat: self }
    }

    /// What the lane waits for, as far as one can tell that does not have it.
    pub fn awaits(&self) -> Awaits {
        let value = self.value.load(Ordering::Relaxed);
        match self.kind.load(Ordering::Relaxed) {
            NEXT_RUN => Awaits::Run(value),
            DEVICE => Awaits::Device,
            lane => Awaits::Lane(lane, value),
        }
    }

    /// Notes that a device may have come where the lane waits for it.
    pub fn tell(&self) {
        self.was_told.store(true, Ordering::SeqCst);
    }

    pub fn was_told(&self) -> bool {
        self.was_told.load(Ordering::SeqCst)
    }
}

/// A lane that the calling thread has until this is dropped.
#[derive(Debug)]
pub struct Held<'a> {
    seat: &'a Seat,
}

impl Held<'_> {
    /// Says what the lane waits for, before it is given up.
    pub fn set_awaits(&mut self, awaits: Awaits) {
        let (kind, value) = match awaits {
            Awaits::Run(number) => (NEXT_RUN, number),
            Awaits::Lane(lane, value) => (lane, value),
            Awaits::Device => (DEVICE, 0),
        };
        // Relaxed: published when the lane is given up.
        self.seat.kind.store(kind, Ordering::Relaxed);
        self.seat.value.store(value, Ordering::Relaxed);
    }

    /// From here on a device tells anew.
    pub fn forget_told(&mut self) {
        self.seat.was_told.store(false, Ordering::SeqCst);
    }

    /// Keeps the lane for a thread that calls [`Seat::resume`].
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Deref for Held<'_> {
    type Target = Position;

    fn deref(&self) -> &Position {
        // SAFETY: this thread has the lane, and nobody else a reference from here.
        unsafe { &*self.seat.position.get() }
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Position {
        // SAFETY: as above.
        unsafe { &mut *self.seat.position.get() }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.seat.is_taken.store(false, Ordering::Release);
    }
}
