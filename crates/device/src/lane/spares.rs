//! Vectors of batches that have ended, kept for batches to come.

use std::sync::Mutex;

use syncline_sync::lock;

use crate::{Lease, Point};

/// Emptied vectors with the room that they have.
///
/// A batch takes its vectors here and its lane gives them back, so that a lane on which the same
/// batches are submitted again and again allocates nothing. How many are kept is bounded by
/// [`Spares::reserve`].
#[derive(Debug, Default)]
pub struct Spares {
    points: Mutex<Vec<Vec<Point>>>,
    leases: Mutex<Vec<Vec<Lease>>>,
}

/// How many vectors are kept at least.
const KEPT: usize = 16;

impl Spares {
    /// Makes sure that `batches` batches find a vector each with room for `waits` points, and one
    /// for `leases` leases.
    pub fn reserve(&self, batches: usize, waits: usize, leases: usize) {
        reserve(&mut lock(&self.points), batches, waits);
        reserve(&mut lock(&self.leases), batches, leases);
    }

    /// An empty vector for points to wait for.
    pub fn take_points(&self) -> Vec<Point> {
        lock(&self.points).pop().unwrap_or_default()
    }

    /// An empty vector for leases.
    pub fn take_leases(&self) -> Vec<Lease> {
        lock(&self.leases).pop().unwrap_or_default()
    }

    /// Takes back a vector of points, which is emptied.
    pub fn give_points(&self, mut points: Vec<Point>) {
        // Outside of the lock: the last handle of a timeline may go with a point.
        points.clear();
        give(&self.points, points);
    }

    /// Takes back a vector of leases, which is empty.
    pub fn give_leases(&self, leases: Vec<Lease>) {
        assert!(leases.is_empty(), "leases are released before");
        give(&self.leases, leases);
    }
}

fn reserve<T>(spares: &mut Vec<Vec<T>>, batches: usize, room: usize) {
    let missing = batches.max(KEPT).saturating_sub(spares.capacity());
    spares.reserve_exact(spares.capacity() - spares.len() + missing);
    spares.iter_mut().for_each(|spare| spare.reserve(room));
    while spares.len() < batches {
        spares.push(Vec::with_capacity(room));
    }
}

fn give<T>(spares: &Mutex<Vec<Vec<T>>>, emptied: Vec<T>) {
    if emptied.capacity() == 0 {
        return;
    }
    let mut spares = lock(spares);
    // What was not reserved for is not kept: keeping it would allocate.
    if spares.len() < spares.capacity() {
        spares.push(emptied);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timeline;

    #[test]
    fn room_is_reserved_kept_and_bounded() {
        let spares = Spares::default();
        spares.give_points(Vec::with_capacity(8));
        assert_eq!(spares.take_points().capacity(), 0, "nothing was reserved");
        spares.reserve(20, 3, 5);
        let taken: Vec<_> = (0..20).map(|_| spares.take_points()).collect();
        assert!(taken.iter().all(|points| points.capacity() >= 3));
        assert!((0..20).all(|_| spares.take_leases().capacity() >= 5));
        let point = Timeline::new("case", 0).point(1);
        for mut points in taken {
            points.push(point.clone());
            spares.give_points(points);
        }
        (0..10).for_each(|_| spares.give_points(Vec::with_capacity(1)));
        let kept = (0..100).filter(|_| spares.take_points().capacity() >= 3).count();
        assert_eq!(kept, 20);
    }
}
