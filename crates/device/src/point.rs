//! Points: the only thing that anything ever waits for.

use std::fmt;
use std::time::{Duration, Instant};

use crate::{DeviceError, Timeline};

/// "Everything on `timeline` up to `value` has completed."
///
/// ```
/// use syncline_device::{Deadline, Point, Timeline};
///
/// let timeline = Timeline::new("example", 0);
/// let point = timeline.point(3);
/// assert!(!point.is_reached());
/// timeline.signal(5)?;
/// point.wait(Deadline::NEVER)?;
/// # Ok::<(), syncline_device::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Point {
    timeline: Timeline,
    value: u64,
}

/// Where a point stands.
#[derive(Clone, Debug, PartialEq)]
pub enum PointStatus {
    /// Not reached, and may still be.
    Pending,
    /// Reached. This never changes, also if the timeline fails later.
    Reached,
    /// The timeline failed before it reached the value: every wait returns this.
    Failed(DeviceError),
}

impl Point {
    /// The point at which `timeline` stands at `value` or beyond.
    pub const fn new(timeline: Timeline, value: u64) -> Self {
        Self { timeline, value }
    }

    /// The timeline concerned.
    pub const fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The value awaited.
    pub const fn value(&self) -> u64 {
        self.value
    }

    /// Returns `true` if the value was reached: the work of this point is done. Stays `true` if the
    /// timeline fails later.
    pub fn is_reached(&self) -> bool {
        self.timeline.has_reached(self.value)
    }

    /// Where the point stands, without waiting.
    pub fn status(&self) -> PointStatus {
        self.timeline.status(self.value)
    }

    /// Waits until the point is reached, the timeline fails, or the deadline passes.
    pub fn wait(&self, deadline: Deadline) -> Result<(), DeviceError> {
        self.timeline.wait(self.value, deadline)
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.timeline.label(), self.value)
    }
}

impl PartialEq for Point {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value && self.timeline.id() == other.timeline.id()
    }
}

impl Eq for Point {}

/// When a wait gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// The wait ends only by what it waits for.
    pub const NEVER: Deadline = Deadline(None);

    /// `duration` from this moment; a duration beyond what a clock can hold is never.
    pub fn after(duration: Duration) -> Self {
        Self(Instant::now().checked_add(duration))
    }

    /// At `instant`, which may have passed.
    pub const fn at(instant: Instant) -> Self {
        Self(Some(instant))
    }

    /// The moment, if there is one.
    pub const fn instant(self) -> Option<Instant> {
        self.0
    }

    /// Whether the moment has come.
    #[inline]
    pub fn has_passed(self) -> bool {
        self.0.is_some_and(|at| Instant::now() >= at)
    }
}

impl From<Duration> for Deadline {
    fn from(duration: Duration) -> Self {
        Self::after(duration)
    }
}
