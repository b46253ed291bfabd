//! Slots: where a task lives from its submission until it is reclaimed.
//!
//! Who may touch a slot's [`Work`] changes hands, and every hand-over is a release and an acquire:
//! 1. the holder of the submit lock, from taking a free slot until the last of its predecessors (or
//!    the submission itself) counts [`Slot::pending`] down to zero;
//! 2. the thread that takes it from a ready queue and runs it. Several run the blocks of one task:
//!    they share it, and the last one to count [`Slot::blocks_left`] down owns it;
//! 3. the holder of the submit lock again, once it has found the slot in a queue of finished ones.

use std::cell::UnsafeCell;
use std::sync::Arc;

use syncline_tensor::TaskId;

use syncline_sync::barrier::fence_after_exchange;
use syncline_sync::shim::{AtomicU32, AtomicU64, Ordering};

use super::fanout::Fanout;
use super::scope::ScopeState;
use super::work::{Traits, Work};

/// No predecessor has failed.
const HEALTHY: u64 = u64::MAX;
/// In [`Slot::blocks_left`] of a task that stands for a host access.
const GRANTED: u32 = 0;
const GIVEN_UP: u32 = 2;

/// One place of the task ring.
///
/// What a task goes from one processor to another with lies in the first two cache lines, which are
/// fetched as a pair: the counters, the first successors, the body and the id. The arguments
/// follow; only a body that looks at them moves those lines.
#[repr(C, align(128))]
pub(crate) struct Slot {
    /// Predecessors that have not finished, and one more while the task is being submitted.
    pending: AtomicU32,
    /// Who waits for this task: the first few are here, too.
    pub(crate) fanout: Fanout,
    /// Blocks that have not finished.
    pub(crate) blocks_left: AtomicU32,
    /// What is special about the task: [`Traits`].
    traits: AtomicU32,
    /// The id of the oldest task whose failure this one inherits.
    poison: AtomicU64,
    work: UnsafeCell<Work>,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Slot>() == 3 * 128 && std::mem::offset_of!(Slot, work) == 48);

// SAFETY: the module's documentation says who may touch `work` when; all other members are `Sync`.
unsafe impl Sync for Slot {}
// SAFETY: `Work` holds addresses of buffers beside `Send` members; the buffers stay while a task
// uses them.
unsafe impl Send for Slot {}

impl Slot {
    pub(crate) fn new() -> Self {
        Self {
            pending: AtomicU32::new(0),
            fanout: Fanout::new_closed(),
            blocks_left: AtomicU32::new(0),
            traits: AtomicU32::new(0),
            poison: AtomicU64::new(HEALTHY),
            work: UnsafeCell::new(Work::new()),
        }
    }

    /// The task, for whoever owns the slot.
    ///
    /// # Safety
    /// The caller is the owner by the rules at the top of this module, and holds no other reference
    /// from here.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(crate) unsafe fn work_mut(&self) -> &mut Work {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.work.get() }
    }

    /// The task, for those who share the slot while its blocks run.
    ///
    /// # Safety
    /// The caller owns the slot or runs one of its blocks, and nobody has a reference from
    /// [`Slot::work_mut`].
    #[inline]
    pub(crate) unsafe fn work(&self) -> &Work {
        // SAFETY: the caller's promise.
        unsafe { &*self.work.get() }
    }

    /// What is special about the task.
    #[inline]
    pub(crate) fn traits(&self) -> Traits {
        // Relaxed: written before the slot's number was published.
        Traits::from_bits(self.traits.load(Ordering::Relaxed))
    }

    /// Says what is special about the task that was written. Only the holder of the submit lock.
    #[inline]
    pub(crate) fn set_traits(&self, traits: Traits) {
        self.traits.store(traits.bits(), Ordering::Relaxed);
    }

    /// The scope of a task that belongs to one, taken from it. Only the owner.
    ///
    /// # Safety
    /// As for [`Slot::work_mut`].
    #[inline]
    pub(crate) unsafe fn take_scope(&self) -> Option<Arc<ScopeState>> {
        // SAFETY: the caller's promise.
        unsafe { self.work_mut() }.scope.take()
    }

    /// Prepares a free slot for a task with `predecessors`. Only the holder of the submit lock.
    #[inline]
    pub(crate) fn prepare(&self, predecessors: u32, blocks: u32) {
        // Relaxed: published with the slot's number.
        self.pending.store(predecessors + 1, Ordering::Relaxed);
        self.blocks_left.store(blocks, Ordering::Relaxed);
        self.poison.store(HEALTHY, Ordering::Relaxed);
        self.fanout.open();
    }

    /// Counts `count` reasons to wait off; whether the task is ready, and the caller's to queue.
    #[inline]
    pub(crate) fn count_down(&self, count: u32) -> bool {
        // Release: what the predecessor did is visible to whoever counts last; Acquire: and to the
        // caller, if it did.
        self.pending.fetch_sub(count, Ordering::AcqRel) == count
    }

    /// As [`Slot::count_down`], and a full fence: what was stored before it is seen by whoever is
    /// not seen after it.
    #[inline]
    pub(crate) fn count_down_and_fence(&self, count: u32) -> bool {
        let last = self.pending.fetch_sub(count, Ordering::SeqCst) == count;
        fence_after_exchange();
        last
    }

    /// The host may use the buffer that the task in this slot stands for, unless it has given up.
    pub(crate) fn grant(&self) -> bool {
        // Release: what the predecessors wrote is the host's to see.
        self.blocks_left.compare_exchange(1, GRANTED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the host may use the buffer that the task in this slot stands for.
    pub(crate) fn is_granted(&self) -> bool {
        self.blocks_left.load(Ordering::Acquire) == GRANTED
    }

    /// The host no longer wants the buffer: the task becomes an ordinary, empty one. `false` where
    /// it was granted.
    pub(crate) fn give_up(&self) -> bool {
        self.blocks_left.compare_exchange(1, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The task inherits the failure of `origin`. Before the predecessor is counted off.
    ///
    /// Where several predecessors fail the oldest origin wins, so that the cause does not depend on
    /// timing.
    pub(crate) fn inherit(&self, origin: TaskId) {
        self.poison.fetch_min(origin.to_bits(), Ordering::Relaxed);
    }

    /// The task whose failure this one inherits.
    #[inline]
    pub(crate) fn inherited(&self) -> Option<TaskId> {
        // Relaxed: ordered by the counting.
        let bits = self.poison.load(Ordering::Relaxed);
        (bits != HEALTHY).then(|| TaskId::from_bits(bits))
    }
}
