//! What stands behind the timeline of a driver's lane: the events of the batches that the driver
//! has.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use syncline_sync::lock;

use crate::Woken;
use syncline_device::Point;

/// The events of one lane's batches, by their values. Lanes of the same context find it as the
/// native object of the timeline, and wait for events where they would otherwise need the host.
pub(super) struct Events<E> {
    context: u64,
    table: Mutex<Table<E>>,
}

struct Table<E> {
    /// Batches that the driver has and that have not completed, in order.
    handed: VecDeque<(u64, E)>,
    /// Lanes that wait for the driver to get a batch.
    hopeful: Vec<(u64, Arc<dyn Woken>)>,
}

/// How a lane of the same context can wait for a point.
pub(super) enum Found<E> {
    /// For this event.
    Event(E),
    /// Not yet: the driver does not have the batch.
    NotYet,
}

impl<E: Clone + Send + Sync + 'static> Events<E> {
    pub(super) fn new(context: u64) -> Arc<Self> {
        let table = Table { handed: VecDeque::new(), hopeful: Vec::with_capacity(8) };
        Arc::new(Self { context, table: Mutex::new(table) })
    }

    /// Makes room for `batches` batches that the driver has.
    pub(super) fn reserve(&self, batches: usize) {
        let mut table = self.lock();
        let missing = batches.saturating_sub(table.handed.len());
        table.handed.reserve(missing);
    }

    /// The events behind `point`, if it belongs to a lane of `context`.
    pub(super) fn behind(point: &Point, context: u64) -> Option<&Self> {
        let events = point.timeline().native()?.downcast_ref::<Self>()?;
        (events.context == context).then_some(events)
    }

    /// The event of the batch of `value`. Where the driver does not have it yet, `hopeful` is woken
    /// when it does.
    pub(super) fn find(
        &self,
        value: u64,
        hopeful: impl FnOnce() -> Option<Arc<dyn Woken>>,
    ) -> Found<E> {
        let mut table = self.lock();
        match table.handed.iter().find(|(of, _)| *of == value) {
            Some((_, event)) => Found::Event(event.clone()),
            None => {
                table.hopeful.extend(hopeful().map(|lane| (value, lane)));
                Found::NotYet
            }
        }
    }

    /// The driver has the batch of `value`. Calls `wake` with each lane that waited for that, under
    /// a lock.
    pub(super) fn hand(&self, value: u64, event: E, wake: impl Fn(Arc<dyn Woken>)) {
        let mut table = self.lock();
        table.handed.push_back((value, event));
        table.hopeful.retain(|(of, lane)| {
            let is_due = *of <= value;
            if is_due {
                wake(lane.clone());
            }
            !is_due
        });
    }

    /// Everything up to `value` has completed.
    pub(super) fn complete(&self, value: u64) {
        let mut table = self.lock();
        table.hopeful.retain(|(of, _)| *of > value);
        while table.handed.front().is_some_and(|(of, _)| *of <= value) {
            let done = table.handed.pop_front();
            // Outside of the lock: releasing an event is a call of the driver.
            drop(table);
            drop(done);
            table = self.lock();
        }
    }

    /// The lane has failed: nothing more will come. Who hoped learns of it from the timeline.
    pub(super) fn abandon(&self) {
        let mut table = self.lock();
        let gone = (std::mem::take(&mut table.handed), std::mem::take(&mut table.hopeful));
        drop(table);
        drop(gone);
    }

    fn lock(&self) -> MutexGuard<'_, Table<E>> {
        lock(&self.table)
    }
}
