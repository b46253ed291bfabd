//! Waiting for several points at once.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use syncline_sync::{EventCount, Spin};

use super::{Timeline, Wake};
use crate::{Deadline, DeviceError, Point, PointStatus};

/// One parked thread that several timelines can wake.
struct Watcher(EventCount);

impl Wake for Watcher {
    fn wake(&self) {
        self.0.wake_all();
    }
}

/// Waits until every point is reached. The first failure of any of them ends the wait at once, also
/// when another point would never be reached. No points: returns at once.
pub fn wait_all(points: &[Point], deadline: Deadline) -> Result<(), DeviceError> {
    match points {
        [] => Ok(()),
        [point] => point.wait(deadline),
        _ => {
            // One point a timeline is enough, the latest: a list of thousands often names a few
            // lanes.
            let mut latest: Vec<Point> = points.to_vec();
            latest.sort_by_key(|point| (point.timeline().id(), Reverse(point.value())));
            latest.dedup_by_key(|point| point.timeline().id());
            wait_until(&latest, deadline, |statuses| match statuses {
                Statuses { failure: Some(cause), .. } => Some(Err(cause)),
                Statuses { all_reached, .. } => all_reached.then_some(Ok(())),
            })
        }
    }
}

/// Waits until any point is reached, and returns the index of the first of those that are.
///
/// # Errors
/// The failure of any of the timelines while no point is reached; the deadline; an empty list, for
/// which no wait could end.
pub fn wait_any(points: &[Point], deadline: Deadline) -> Result<usize, DeviceError> {
    match points {
        [] => Err(DeviceError::NothingToWaitFor),
        [point] => point.wait(deadline).map(|()| 0),
        _ => wait_until(points, deadline, |statuses| match statuses {
            Statuses { first_reached: Some(first), .. } => Some(Ok(first)),
            Statuses { failure, .. } => failure.map(Err),
        }),
    }
}

/// What one look at all points found.
struct Statuses {
    all_reached: bool,
    first_reached: Option<usize>,
    failure: Option<DeviceError>,
}

fn wait_until<T>(
    points: &[Point],
    deadline: Deadline,
    done: impl Fn(Statuses) -> Option<Result<T, DeviceError>>,
) -> Result<T, DeviceError> {
    let mut result = None;
    Spin::point().until(|| {
        result = done(look(points, Point::status));
        result.is_some()
    });
    if let Some(result) = result {
        return result;
    }
    let began = Instant::now();
    let registered = Registered::new(points);
    loop {
        // As for a single wait: the epoch first, then arm, then park.
        let seen = registered.watcher.0.epoch();
        let statuses = look(points, |point| point.timeline().arm(point.value()));
        if let Some(result) = done(statuses) {
            return result;
        }
        if deadline.has_passed() {
            let pending = points.iter().find(|point| !point.is_reached()).unwrap_or(&points[0]);
            return Err(pending.timeline().deadline_passed(pending.value(), began));
        }
        registered.watcher.0.park(seen, deadline.instant());
    }
}

fn look(points: &[Point], status: impl Fn(&Point) -> PointStatus) -> Statuses {
    let mut statuses = Statuses { all_reached: true, first_reached: None, failure: None };
    for (index, point) in points.iter().enumerate() {
        match status(point) {
            PointStatus::Failed(cause) => {
                statuses.all_reached = false;
                statuses.failure.get_or_insert(cause);
            }
            PointStatus::Pending => statuses.all_reached = false,
            PointStatus::Reached => {
                statuses.first_reached.get_or_insert(index);
            }
        }
    }
    statuses
}

/// A watcher on the lists of its timelines, once on each, taken off again on every way out.
struct Registered<'a> {
    watcher: Arc<Watcher>,
    timelines: Vec<(&'a Timeline, u64)>,
}

impl<'a> Registered<'a> {
    fn new(points: &'a [Point]) -> Self {
        let watcher = Arc::new(Watcher(EventCount::new()));
        let mut timelines: Vec<&Timeline> = points.iter().map(Point::timeline).collect();
        timelines.sort_by_key(|timeline| timeline.id());
        timelines.dedup_by_key(|timeline| timeline.id());
        let add = |timeline: &'a Timeline| (timeline, timeline.add(watcher.clone()));
        let timelines = timelines.into_iter().map(add).collect();
        Self { watcher, timelines }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        for (timeline, id) in &self.timelines {
            timeline.forget(*id);
        }
    }
}
