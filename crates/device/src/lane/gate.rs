//! Waits that can be given up: one point in the place of many.

use std::sync::{Arc, Mutex};

use syncline_sync::lock;

use crate::{CancelToken, DeviceError, Point, PointStatus, Timeline, Wake, Watch};

/// Returns a point that is reached when all of `points` are. It fails with the first of them that
/// fails, and when `token` is cancelled before.
pub(crate) fn gate(points: &[Point], token: &CancelToken) -> Point {
    let timeline = Timeline::new("gate", 0);
    let point = timeline.point(1);
    let gate = Arc::new(Gate { timeline, token: token.clone(), watches: Mutex::new(None) });
    let watches = points.iter().map(|point| point.watch(gate.clone())).collect();
    *lock(&gate.watches) = Some(watches);
    token.watch(&gate);
    gate.wake();
    point
}

/// What the timelines of the points call. They keep it until it is decided.
struct Gate {
    timeline: Timeline,
    token: CancelToken,
    /// None before all points are watched, and after the gate is decided.
    watches: Mutex<Option<Vec<Watch>>>,
}

impl Gate {
    /// Returns how the gate is decided, if it is. Points that are pending wake it again.
    fn decision(&self, watches: &[Watch]) -> Option<Result<(), DeviceError>> {
        if self.token.is_cancelled() {
            let reason = "it waited for conflicting work when it was cancelled".into();
            return Some(Err(DeviceError::Cancelled { reason }));
        }
        let mut is_reached = true;
        for watch in watches {
            match watch.look() {
                PointStatus::Reached => {}
                PointStatus::Pending => is_reached = false,
                PointStatus::Failed(cause) => return Some(Err(cause)),
            }
        }
        is_reached.then_some(Ok(()))
    }
}

impl Wake for Gate {
    fn wake(&self) {
        let mut watches = lock(&self.watches);
        let Some(decision) = watches.as_deref().and_then(|watches| self.decision(watches)) else {
            return;
        };
        let decided = watches.take();
        drop(watches);
        // Under no lock: others wait for the gate. It is decided here, once.
        let _ = match decision {
            Ok(()) => self.timeline.signal(1),
            Err(cause) => self.timeline.fail(cause),
        };
        drop(decided);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points<const N: usize>() -> ([Timeline; N], Vec<Point>) {
        let timelines = [(); N].map(|()| Timeline::new("awaited", 0));
        let points = timelines.iter().map(|timeline| timeline.point(1)).collect();
        (timelines, points)
    }

    #[test]
    fn a_gate_opens_when_all_points_are_reached() {
        let ([first, second], points) = points();
        let gate = gate(&points, &CancelToken::new());
        second.signal(1).unwrap();
        assert_eq!(gate.status(), PointStatus::Pending);
        first.signal(2).unwrap();
        assert_eq!(gate.status(), PointStatus::Reached);
    }

    #[test]
    fn a_gate_fails_with_its_points_and_its_token() {
        let ([first, _], points) = points();
        let token = CancelToken::new();
        let (failed, cancelled) = (gate(&points, &token), gate(&points[1..], &token));
        let cause = DeviceError::Cancelled { reason: "first".into() };
        first.fail(cause.clone()).unwrap();
        assert_eq!(failed.status(), PointStatus::Failed(cause));
        assert_eq!(cancelled.status(), PointStatus::Pending);
        token.cancel();
        assert!(matches!(cancelled.status(), PointStatus::Failed(_)));
        assert!(matches!(gate(&points[1..], &token).status(), PointStatus::Failed(_)));
    }
}
