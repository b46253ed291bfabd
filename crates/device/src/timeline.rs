//! Timelines: counters that only grow, and order work across devices.
//!
//! A [`Timeline`] is signalled by one party and awaited by any number. A failed timeline stays
//! failed and keeps its first cause. Every wait for a value that it did not reach returns that
//! cause; a value that was reached stays reached. `timeline/README.md` walks through the wake-up
//! protocol.

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;
mod wait;
mod watch;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use syncline_sync::shim::{AtomicU64, Mutex, Ordering};
use syncline_sync::{CachePadded, EventCount, Spin, lock};
pub use wait::{wait_all, wait_any};
use watch::{Registration, Wakers};
pub use watch::{Wake, Watch};

use crate::{Deadline, DeviceError, Point, PointStatus, drop_guarded, guarded};

/// Identity of a timeline. Ids are never used again within one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimelineId(pub u64);

/// A counter that only grows, and can fail.
///
/// Clones are handles of the same timeline. Waiting for a value that nobody has promised yet is
/// legal.
///
/// ```
/// use std::thread;
/// use syncline_device::{Deadline, Timeline};
///
/// let timeline = Timeline::new("steps", 0);
/// let awaited = timeline.clone();
/// let waiter = thread::spawn(move || awaited.wait(2, Deadline::NEVER));
/// timeline.signal(2)?;
/// waiter.join().unwrap()?;
/// assert!(timeline.signal(1).is_err());
/// # Ok::<(), syncline_device::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Timeline(Arc<Core>);

struct Core {
    /// `value << FLAG_BITS | flags`: one word, so that signalling and learning of waiters are one
    /// step. Padded, since handing out points, which counts the references of the `Arc`, must not
    /// slow down the lane that signals.
    word: CachePadded<AtomicU64>,
    /// Where waiters for this timeline alone park; a signal that finds `ARMED` wakes them.
    parked: EventCount,
    failure: Mutex<Option<DeviceError>>,
    /// Called when a signal finds `ARMED`.
    watchers: Mutex<Vec<Registration>>,
    id: TimelineId,
    label: Arc<str>,
    owned: bool,
    native: Option<Arc<dyn Any + Send + Sync>>,
}

/// A thread is parked, or is about to: the next change of the word must wake it.
const ARMED: u64 = 1;
/// The timeline has failed; the cause is in `failure`.
const FAILED: u64 = 2;
const FLAG_BITS: u32 = 2;

impl Timeline {
    /// The largest value that a timeline can reach.
    pub const MAX_VALUE: u64 = u64::MAX >> FLAG_BITS;

    /// A timeline that stands at `initial` and that anybody may signal. A larger `initial` than
    /// [`Timeline::MAX_VALUE`] counts as that.
    pub fn new(label: &str, initial: u64) -> Self {
        Self::create(label, initial, false, None)
    }

    /// A timeline that only the holder of the returned [`TimelineOwner`] can signal and fail.
    ///
    /// Lanes use it: since nobody else can move the timeline, "reached" and "failed" both prove
    /// that the work before has ended. `native` is the backend's own object behind the timeline, if
    /// any, by which a lane of the same backend recognises what it can wait for without the host.
    pub fn owned(
        label: &str,
        initial: u64,
        native: Option<Arc<dyn Any + Send + Sync>>,
    ) -> TimelineOwner {
        TimelineOwner(Self::create(label, initial, true, native))
    }

    fn create(
        label: &str,
        initial: u64,
        owned: bool,
        native: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Core {
            word: CachePadded::new(AtomicU64::new(initial.min(Self::MAX_VALUE) << FLAG_BITS)),
            parked: EventCount::new(),
            failure: Mutex::new(None),
            // Lanes watch each other: they have room from the start.
            watchers: Mutex::new(Vec::with_capacity(if owned { 8 } else { 0 })),
            id: next_id(),
            label: label.into(),
            owned,
            native,
        }))
    }

    /// Identity of this timeline.
    pub fn id(&self) -> TimelineId {
        self.0.id
    }

    /// What it is called in errors and traces.
    pub fn label(&self) -> &Arc<str> {
        &self.0.label
    }

    /// The backend's own object behind this timeline.
    pub fn native(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.0.native.as_deref()
    }

    /// The point at which this timeline has reached `value`.
    pub fn point(&self, value: u64) -> Point {
        Point::new(self.clone(), value)
    }

    /// The value reached, whether or not the timeline has failed since.
    #[inline]
    pub fn value(&self) -> u64 {
        self.word().load(Ordering::Acquire) >> FLAG_BITS
    }

    /// The cause of the failure, if the timeline has failed.
    pub fn failure(&self) -> Option<DeviceError> {
        let failed = self.word().load(Ordering::Acquire) & FAILED != 0;
        failed.then(|| self.cause())
    }

    /// Returns `true` if `value` was reached, whether or not the timeline has failed since.
    #[inline]
    pub fn has_reached(&self, value: u64) -> bool {
        self.value() >= value
    }

    /// Where `value` stands, without waiting.
    pub fn status(&self, value: u64) -> PointStatus {
        self.judge(self.word().load(Ordering::Acquire), value)
    }

    /// Moves the timeline to `value`, which must be larger than where it stands.
    ///
    /// # Errors
    /// Where `value` is not larger, or too large; where the timeline has failed (its cause); where
    /// a lane owns it.
    pub fn signal(&self, value: u64) -> Result<(), DeviceError> {
        self.refuse_if_owned()?;
        self.advance(value)
    }

    /// Fails the timeline for good: every present and later wait for a value that was not reached
    /// returns the first cause given.
    ///
    /// # Errors
    /// Where a lane owns the timeline.
    pub fn fail(&self, cause: DeviceError) -> Result<(), DeviceError> {
        self.refuse_if_owned()?;
        self.fail_first(cause);
        Ok(())
    }

    /// Waits until the timeline reaches `value`, fails, or the deadline passes.
    ///
    /// Checks for about a microsecond, then parks.
    pub fn wait(&self, value: u64, deadline: Deadline) -> Result<(), DeviceError> {
        let mut status = PointStatus::Pending;
        Spin::point().until(|| {
            status = self.status(value);
            status != PointStatus::Pending
        });
        match status {
            PointStatus::Pending => self.wait_parked(value, deadline),
            PointStatus::Reached => Ok(()),
            PointStatus::Failed(cause) => Err(cause),
        }
    }

    fn wait_parked(&self, value: u64, deadline: Deadline) -> Result<(), DeviceError> {
        let began = Instant::now();
        loop {
            // Before the timeline is armed: see "Event before W1" in the README of event counts.
            let seen = self.0.parked.epoch();
            match self.arm(value) {
                PointStatus::Reached => return Ok(()),
                PointStatus::Failed(cause) => return Err(cause),
                PointStatus::Pending if deadline.has_passed() => {
                    return Err(self.deadline_passed(value, began));
                }
                PointStatus::Pending => self.0.parked.park(seen, deadline.instant()),
            }
        }
    }

    fn deadline_passed(&self, value: u64, began: Instant) -> DeviceError {
        DeviceError::DeadlinePassed {
            timeline: self.label().clone(),
            value,
            current: self.value(),
            waited: began.elapsed(),
        }
    }

    /// Makes sure that the next change of the word wakes parked threads, unless `value` is decided
    /// already.
    fn arm(&self, value: u64) -> PointStatus {
        let mut word = self.word().load(Ordering::Acquire);
        loop {
            match self.judge(word, value) {
                PointStatus::Pending if word & ARMED == 0 => {
                    // `Release` makes the read of the event count happen before it moves for a
                    // thread that finds `ARMED`.
                    match self.word().compare_exchange_weak(
                        word,
                        word | ARMED,
                        Ordering::AcqRel,
                        Ordering::Acquire,
                    ) {
                        Ok(_) => return PointStatus::Pending,
                        Err(changed) => word = changed,
                    }
                }
                status => return status,
            }
        }
    }

    fn judge(&self, word: u64, value: u64) -> PointStatus {
        // A value that was reached stays reached: the work before it is done, whatever failed
        // later.
        if word >> FLAG_BITS >= value {
            PointStatus::Reached
        } else if word & FAILED != 0 {
            PointStatus::Failed(self.cause())
        } else {
            PointStatus::Pending
        }
    }

    fn advance(&self, value: u64) -> Result<(), DeviceError> {
        if value > Self::MAX_VALUE {
            return Err(DeviceError::ValueTooLarge { value, max: Self::MAX_VALUE });
        }
        let mut word = self.word().load(Ordering::Relaxed);
        loop {
            if word & FAILED != 0 {
                return Err(self.cause());
            }
            let current = word >> FLAG_BITS;
            if value <= current {
                let timeline = self.label().clone();
                return Err(DeviceError::SignalBackwards { timeline, current, value });
            }
            // `Release` publishes the work before the signal, `Acquire` pairs with `arm`.
            match self.word().compare_exchange_weak(
                word,
                value << FLAG_BITS,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) if word & ARMED != 0 => {
                    self.wake();
                    return Ok(());
                }
                Ok(_) => return Ok(()),
                Err(changed) => word = changed,
            }
        }
    }

    fn fail_first(&self, cause: DeviceError) {
        {
            let mut failure = lock(&self.0.failure);
            if failure.is_some() {
                return;
            }
            *failure = Some(cause);
        }
        // The cause is stored before the flag: who sees the flag finds the cause. The flag is never
        // cleared, since `advance` refuses to replace a word that has it.
        if self.word().fetch_or(FAILED, Ordering::AcqRel) & ARMED != 0 {
            self.wake();
        }
    }

    /// Wakes all waiters to check again. A waiter that still has to wait arms the timeline anew.
    ///
    /// Watchers are called under no lock, and each of them whatever another one does: a waker is
    /// user code. The panic hook has reported a panic.
    #[cold]
    fn wake(&self) {
        self.0.parked.wake_all();
        let mut wakers = Wakers::default();
        self.watchers().iter().for_each(|registered| wakers.add(&registered.waker));
        for waker in wakers.iter() {
            let _ = guarded(|| waker.wake());
        }
        // A watch that was dropped meanwhile leaves its waker to this thread.
        drop_guarded(wakers);
    }

    fn cause(&self) -> DeviceError {
        lock(&self.0.failure).clone().expect("the cause is stored before the flag is set")
    }

    pub(crate) fn refuse_if_owned(&self) -> Result<(), DeviceError> {
        match self.0.owned {
            true => Err(DeviceError::NotTheOwner { timeline: self.label().clone() }),
            false => Ok(()),
        }
    }

    #[inline]
    fn word(&self) -> &AtomicU64 {
        &self.0.word
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = if self.failure().is_some() { " failed" } else { "" };
        write!(f, "{}={}{failed}", self.label(), self.value())
    }
}

/// The sole right to signal and fail a timeline.
///
/// Dropping it without a failure leaves the timeline where it stands.
#[derive(Debug)]
pub struct TimelineOwner(Timeline);

impl TimelineOwner {
    /// The timeline, for waiting.
    pub const fn timeline(&self) -> &Timeline {
        &self.0
    }

    /// Moves the timeline to `value`.
    ///
    /// # Errors
    /// As [`Timeline::signal`].
    #[inline]
    pub fn signal(&self, value: u64) -> Result<(), DeviceError> {
        self.0.advance(value)
    }

    /// Fails the timeline for good; the first cause is kept.
    pub fn fail(&self, cause: DeviceError) {
        self.0.fail_first(cause);
    }
}

fn next_id() -> TimelineId {
    // Not from the shim: identity takes no part in the protocol that is model-checked.
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    TimelineId(NEXT.fetch_add(1, Ordering::Relaxed))
}
