//! The lanes that a device has opened.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use syncline_sync::lock;

/// The lanes that close with their device. It does not keep them.
pub struct OpenLanes<L>(Mutex<Vec<Weak<L>>>);

impl<L> OpenLanes<L> {
    /// An empty list.
    pub fn new() -> Self {
        Self(Mutex::default())
    }

    /// Adds a lane that was opened, and forgets those that are gone.
    pub fn add(&self, lane: &Arc<L>) {
        let mut lanes = lock(&self.0);
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Arc::downgrade(lane));
    }

    /// Returns the lanes that are still there. A device that goes closes all of them before it
    /// waits for any: one may wait for another.
    pub fn living(&self) -> Vec<Arc<L>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}

impl<L> Default for OpenLanes<L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<L> fmt::Debug for OpenLanes<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenLanes({})", self.living().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_that_are_gone_are_forgotten() {
        let lanes = OpenLanes::new();
        let kept: Vec<_> = (0..3).map(Arc::new).collect();
        kept.iter().for_each(|lane| lanes.add(lane));
        (0..100).for_each(|number| lanes.add(&Arc::new(number)));
        assert_eq!(lanes.living(), kept);
        assert!(lock(&lanes.0).len() <= 4);
    }
}
