//! What lanes of all backends have in common.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;

use crate::{DeviceError, Point, Timeline, TimelineOwner};

/// The state machine of a lane: which batches it takes, their values, its failure, recovery and
/// end.
///
/// A backend keeps it under the lane's lock, and adds how batches of type `B` are run: it takes
/// them from [`LaneCore::pending`], signals [`LaneCore::owner`] with their values in order, and
/// calls [`LaneCore::poison`] for the first that fails.
///
/// ```text
///              admit, close            admit: the cause, inherited
///   open ───────────poison──────────────> failed
///     ^                                     │
///     └──────────────recover────────────────┘      close, in either: closed for good
/// ```
pub struct LaneCore<B> {
    name: Arc<str>,
    owner: Arc<TimelineOwner>,
    value_last: u64,
    /// Batches that were admitted and have not begun, in order.
    pub pending: VecDeque<B>,
    failed: Option<DeviceError>,
    closing: bool,
}

impl<B> LaneCore<B> {
    /// An open lane called `name`, whose batches signal `owner`, which stands at 0.
    pub fn new(name: &Arc<str>, owner: TimelineOwner) -> Self {
        Self {
            name: name.clone(),
            owner: Arc::new(owner),
            value_last: 0,
            pending: VecDeque::new(),
            failed: None,
            closing: false,
        }
    }

    /// The right to move the timeline of batches that are admitted now.
    pub fn owner(&self) -> &Arc<TimelineOwner> {
        &self.owner
    }

    /// Returns `true` if `owner` moves the timeline of batches that are admitted now, and not one
    /// from before a recovery.
    pub fn is_current(&self, owner: &Arc<TimelineOwner>) -> bool {
        Arc::ptr_eq(&self.owner, owner)
    }

    /// The point of the batch admitted last.
    pub fn last(&self) -> Point {
        self.owner.timeline().point(self.value_last)
    }

    /// Returns an error unless the lane takes work; `task` is named in it.
    #[inline]
    pub fn check_open(&self, task: Option<&Arc<str>>) -> Result<(), DeviceError> {
        if self.closing {
            return Err(self.closed());
        }
        match &self.failed {
            Some(cause) => Err(cause.inherited(&self.name, task)),
            None => Ok(()),
        }
    }

    /// Admits a batch that waits for `waits`: returns the point at which it will have completed,
    /// and drops waits for earlier batches of this lane. The caller puts the batch at the end of
    /// [`LaneCore::pending`] before it gives up the lock.
    ///
    /// # Errors
    /// Where the lane has failed or is closed, and where the batch waits for a later one of the
    /// same lane, which could never end.
    #[inline]
    pub fn admit(
        &mut self,
        waits: &mut Vec<Point>,
        task: Option<&Arc<str>>,
    ) -> Result<Point, DeviceError> {
        self.check_open(task)?;
        let own = self.owner.timeline().id();
        let is_own = |wait: &Point| wait.timeline().id() == own;
        if let Some(value) = waits.iter().filter(|wait| is_own(wait)).map(Point::value).max() {
            let current = self.value_last;
            if value > current {
                let lane = self.name.clone();
                return Err(DeviceError::WaitsForItself { lane, current, value });
            }
            waits.retain(|wait| !is_own(wait));
        }
        self.value_last += 1;
        Ok(self.last())
    }

    /// Refuses work until the lane recovers, and returns the batches that have not begun. The first
    /// cause is kept.
    ///
    /// The caller fails the timeline afterwards: a thread that learns of the failure from it may
    /// recover the lane at once. Then it drops the leases of the batches, and fails their signals:
    /// a thread that waits for a buffer finds the failure when it gets there.
    #[must_use = "these batches must be given up"]
    pub fn poison(&mut self, cause: &DeviceError) -> VecDeque<B> {
        self.failed.get_or_insert_with(|| cause.clone());
        mem::take(&mut self.pending)
    }

    /// Takes work again after a failure, on the timeline that `fresh` makes for the lane of the
    /// given name. Returns `false` if the lane had not failed, or fails on because of `fresh`.
    pub fn recover(
        &mut self,
        fresh: impl FnOnce(&Arc<str>) -> Result<TimelineOwner, DeviceError>,
    ) -> bool {
        if self.failed.is_none() {
            return false;
        }
        match fresh(&self.name) {
            Ok(owner) => {
                (self.failed, self.owner, self.value_last) = (None, Arc::new(owner), 0);
                true
            }
            Err(cause) => {
                self.failed = Some(cause);
                false
            }
        }
    }

    /// Refuses work for good. Returns `false` if it did so before.
    pub fn close(&mut self) -> bool {
        !mem::replace(&mut self.closing, true)
    }

    /// Returns `true` if the lane was closed.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// The error of work that comes after the lane was closed.
    pub fn closed(&self) -> DeviceError {
        DeviceError::Closed { lane: self.name.clone() }
    }
}

impl<B> fmt::Debug for LaneCore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaneCore({:?}, {} pending)", self.last(), self.pending.len())
    }
}

/// A timeline for a lane that has no object of a driver's behind it.
pub(crate) fn host_timeline(name: &Arc<str>) -> TimelineOwner {
    Timeline::owned(name, 0, None)
}

/// Fails the timelines that a batch was to signal.
pub fn fail_signals(signals: &[Point], cause: &DeviceError) {
    for point in signals {
        // Checked at submission: no lane owns these.
        let _ = point.timeline().fail(cause.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(reason: &str) -> DeviceError {
        DeviceError::Cancelled { reason: reason.into() }
    }

    fn lane() -> LaneCore<u64> {
        let name: Arc<str> = "lane".into();
        let owner = host_timeline(&name);
        LaneCore::new(&name, owner)
    }

    /// Admits a batch as a backend does.
    fn push(lane: &mut LaneCore<u64>, mut waits: Vec<Point>) -> Result<Vec<Point>, DeviceError> {
        let point = lane.admit(&mut waits, None)?;
        lane.pending.push_back(point.value());
        Ok(waits)
    }

    #[test]
    fn own_waits_are_implied_and_later_ones_refused() {
        let mut lane = lane();
        let foreign = Timeline::new("other", 0).point(7);
        assert_eq!(push(&mut lane, vec![]), Ok(vec![]));
        let own = lane.last();
        let left = push(&mut lane, vec![own.clone(), foreign.clone(), own.clone()]).unwrap();
        assert_eq!(left, [foreign]);
        let later = own.timeline().point(3);
        let refused = push(&mut lane, vec![own, later]);
        assert!(
            matches!(refused, Err(DeviceError::WaitsForItself { current: 2, value: 3, .. })),
            "{refused:?}"
        );
        assert_eq!((lane.last().value(), lane.pending.len()), (2, 2));
    }

    #[test]
    fn the_first_failure_is_kept_until_recovery() {
        let mut lane = lane();
        push(&mut lane, vec![]).unwrap();
        push(&mut lane, vec![]).unwrap();
        let before = lane.owner().clone();
        assert_eq!(lane.poison(&cause("first")), [1, 2]);
        assert!(lane.poison(&cause("second")).is_empty());
        let refused = push(&mut lane, vec![]).unwrap_err();
        assert!(refused.to_string().contains("first"), "{refused}");
        assert!(!lane.recover(|_| Err(cause("no queue"))) && lane.is_current(&before));
        let refused = push(&mut lane, vec![]).unwrap_err();
        assert!(refused.to_string().contains("no queue"), "{refused}");
        assert!(lane.recover(|name| Ok(host_timeline(name))) && !lane.is_current(&before));
        assert!(!lane.recover(|_| unreachable!("it has not failed")));
        assert_eq!(push(&mut lane, vec![before.timeline().point(9)]).unwrap().len(), 1);
        assert_eq!(lane.last().value(), 1);
    }

    #[test]
    fn a_closed_lane_refuses_and_keeps_what_it_has() {
        let mut lane = lane();
        push(&mut lane, vec![]).unwrap();
        assert!(lane.close() && !lane.close() && lane.is_closing());
        let _ = lane.poison(&cause("first"));
        assert_eq!(push(&mut lane, vec![]).unwrap_err(), lane.closed());
        assert!(lane.recover(|name| Ok(host_timeline(name))));
        assert_eq!(push(&mut lane, vec![]).unwrap_err(), lane.closed());
    }
}
