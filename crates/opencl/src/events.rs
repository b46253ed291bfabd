//! What stands behind the timeline of an OpenCL lane: the events of the batches that the driver has.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use syncline_device::{Point, Woken};

use crate::api::Event;

/// The events of one lane's batches, by their values. Lanes of the same context find it as the native object of the
/// timeline, and wait for events where they would otherwise need the host.
pub(crate) struct Events {
    context: u64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Batches that the driver has and that have not completed, in order.
    handed: VecDeque<(u64, Event)>,
    /// Lanes that wait for the driver to get a batch.
    hopeful: Vec<(u64, Arc<dyn Woken>)>,
}

/// How a lane of the same context can wait for a point.
pub(crate) enum Found {
    /// For this event.
    Event(Event),
    /// Not yet: the driver does not have the batch.
    NotYet,
}

impl Events {
    pub(crate) fn new(context: u64) -> Arc<Self> {
        Arc::new(Self { context, table: Mutex::default() })
    }

    /// The events behind `point`, if it belongs to a lane of `context`.
    pub(crate) fn behind(point: &Point, context: u64) -> Option<&Events> {
        let events = point.timeline().native()?.downcast_ref::<Events>()?;
        (events.context == context).then_some(events)
    }

    /// The event of the batch of `value`. Where the driver does not have it yet, `hopeful` is woken when it does.
    pub(crate) fn find(
        &self,
        value: u64,
        hopeful: impl FnOnce() -> Option<Arc<dyn Woken>>,
    ) -> Found {
        let mut table = self.lock();
        match table.handed.iter().find(|(of, _)| *of == value) {
            Some((_, event)) => Found::Event(event.clone()),
            None => {
                table.hopeful.extend(hopeful().map(|lane| (value, lane)));
                Found::NotYet
            }
        }
    }

    /// The driver has the batch of `value`. Returns who waited for that.
    #[must_use]
    pub(crate) fn hand(&self, value: u64, event: Event) -> Vec<Arc<dyn Woken>> {
        let mut table = self.lock();
        table.handed.push_back((value, event));
        if table.hopeful.is_empty() {
            return Vec::new();
        }
        let (due, rest) = table.hopeful.drain(..).partition(|(of, _)| *of <= value);
        table.hopeful = rest;
        let due: Vec<_> = due;
        due.into_iter().map(|(_, lane)| lane).collect()
    }

    /// Everything up to `value` has completed.
    pub(crate) fn complete(&self, value: u64) {
        let mut table = self.lock();
        let done = table.handed.iter().take_while(|(of, _)| *of <= value).count();
        let done: Vec<_> = table.handed.drain(..done).collect();
        table.hopeful.retain(|(of, _)| *of > value);
        drop(table);
        drop(done);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
