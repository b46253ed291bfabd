//! Which pending work touches which bytes of a buffer, so that later work can be ordered behind it.
//!
//! Bytes are compared exactly, as regions: two column blocks of a matrix do not wait for each
//! other. Entries of work that has ended are dropped when somebody looks; a write that *failed*
//! stays until the bytes are written anew, so that nobody reads what it left behind without being
//! told.

use syncline_tensor::{Region, View};

use crate::{DeviceError, Point, PointStatus};

/// Above this many entries, those of one timeline are merged.
const ENTRIES_MAX: usize = 64;

/// The pending work on one buffer.
#[derive(Debug, Default)]
pub(crate) struct Hazards(Vec<Hazard>);

#[derive(Clone, Debug)]
struct Hazard {
    region: Region,
    writes: bool,
    point: Point,
}

impl Hazard {
    fn overlaps(&self, region: &Region) -> bool {
        self.region.overlaps(region)
    }
}

/// How one command of a batch touches a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) region: Region,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Hazards {
    /// Adds to `waits` the points of all work that must come before `touch`.
    pub(crate) fn collect(&mut self, touch: &Touch, waits: &mut Vec<Point>) {
        self.0.retain(|hazard| {
            let (conflicts, stays) = match hazard.point.status() {
                PointStatus::Pending => (touch.writes || hazard.writes, true),
                // The failed work has ended. Who reads what it left must fail too; who only writes
                // need not.
                PointStatus::Failed(_) => (touch.reads && hazard.writes, hazard.writes),
                PointStatus::Reached => (false, false),
            };
            if conflicts && hazard.overlaps(&touch.region) {
                add_latest(waits, &hazard.point);
            }
            stays
        });
    }

    /// Notes that the work of `point` touches the buffer.
    pub(crate) fn note(&mut self, touch: &Touch, point: &Point) {
        if touch.writes && !touch.reads {
            self.forgive(&touch.region);
        }
        let (region, writes) = (touch.region, touch.writes);
        let same = self.0.iter_mut().find(|hazard| {
            hazard.writes == writes
                && hazard.point.timeline().id() == point.timeline().id()
                && hazard.region == region
        });
        match same {
            Some(hazard) => hazard.point = point.clone(),
            None => self.0.push(Hazard { region, writes, point: point.clone() }),
        }
        if self.0.len() > ENTRIES_MAX {
            self.merge();
        }
    }

    /// The failure of whatever should have written bytes of `region`, if it failed.
    pub(crate) fn failure(&self, region: &Region) -> Option<DeviceError> {
        let mut written = self.0.iter().filter(|hazard| hazard.writes && hazard.overlaps(region));
        written.find_map(|hazard| match hazard.point.status() {
            PointStatus::Failed(cause) => Some(cause),
            PointStatus::Pending | PointStatus::Reached => None,
        })
    }

    /// The bytes of `region` are overwritten: what failed there before no longer matters.
    pub(crate) fn forgive(&mut self, region: &Region) {
        self.0.retain(|hazard| {
            let failed = matches!(hazard.point.status(), PointStatus::Failed(_));
            !(failed && region.covers(&hazard.region))
        });
    }

    /// One entry for each timeline and kind, over all their bytes and with the latest value. It
    /// orders more than it must, but only behind work that was submitted before.
    fn merge(&mut self) {
        let mut merged: Vec<Hazard> = Vec::new();
        for hazard in self.0.drain(..) {
            let same = merged.iter_mut().find(|other| {
                other.writes == hazard.writes
                    && other.point.timeline().id() == hazard.point.timeline().id()
            });
            match same {
                None => merged.push(hazard),
                Some(other) => {
                    other.region = hull(&other.region, &hazard.region);
                    if hazard.point.value() > other.point.value() {
                        other.point = hazard.point;
                    }
                }
            }
        }
        self.0 = merged;
    }
}

/// All bytes from the first of the two regions to the last.
fn hull(one: &Region, other: &Region) -> Region {
    let start = one.start().min(other.start());
    let bytes = one.end().max(other.end()) - start;
    Region::of(&View::bytes_at(start, bytes).expect("between bytes of views that exist"))
}

/// Keeps for each timeline the largest value only: it implies the smaller ones.
fn add_latest(waits: &mut Vec<Point>, point: &Point) {
    let same = waits.iter_mut().find(|wait| wait.timeline().id() == point.timeline().id());
    match same {
        Some(wait) if wait.value() >= point.value() => {}
        Some(wait) => *wait = point.clone(),
        None => waits.push(point.clone()),
    }
}
