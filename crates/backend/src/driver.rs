//! Lanes over the queues and events of a driver, the same for every driver that has such.
//!
//! A driver (OpenCL, CUDA) has in-order queues, events by which queues wait for each other, and a
//! way to call back when work has ended. What it does not have is a counter that any thread can
//! wait for, waits for values that are not promised yet, and failure that stops exactly the work
//! behind it.
//! [`DriverLane`] makes a [`Lane`](syncline_device::Lane) of the former with the latter, and
//! [`DriverDevice`] a [`Device`](syncline_device::Device). Each backend implements [`Driver`].
//! `driver/README.md` has the protocol.

mod call;
mod device;
mod events;
mod lane;
mod launch;
mod programs;
mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use device::DriverDevice;
pub use lane::DriverLane;
pub use launch::{Launch, host_start, memory_of, refuse_between_hosts};
pub use programs::{CompiledProgram, ProgramCache};
pub use queue::Ending;

use crate::Bridge;
use syncline_device::{Backend, CommandTime, Copy, DeviceError, DeviceSpec, Dispatch, Fill};

/// One device of a driver, as its lanes use it.
///
/// # Safety
/// Ops do what the copy, fill or dispatch that they were made of says and touch nothing else; a
/// queue runs them in order and after the events in front of them; an event is reached, and
/// [`Ending::end`] called, not before all of them have ended. [`Driver::device`] and
/// [`Driver::context`] always return the same, and [`Driver::can_access`] is true only of devices
/// whose memory its ops may touch.
pub unsafe trait Driver: Send + Sync + Sized + 'static {
    /// A queue that runs its commands in order.
    type Queue: Send;
    /// A place in a queue that other queues can wait for. Clones are handles of the same place.
    type Event: Clone + Send + Sync + 'static;
    /// A command, ready to be enqueued any number of times.
    type Op: Send + Sync + 'static;
    /// What tells when commands ran.
    type Times: Send;

    /// The device.
    fn device(&self) -> DeviceSpec;

    /// Identity of what events are valid in: queues of drivers with the same number wait for each
    /// other's events.
    fn context(&self) -> u64;

    /// The bridge that the lanes of this device use.
    fn bridge(&self) -> &Bridge;

    /// See [`Lane::can_access`](syncline_device::Lane::can_access). Unless a driver says more: the
    /// device itself, and CPU devices.
    fn can_access(&self, device: DeviceSpec) -> bool {
        device.backend == Backend::Cpu || device == self.device()
    }

    /// A new queue.
    fn open_queue(&self) -> Result<Self::Queue, DeviceError>;

    /// Appends what `copy` comes to.
    fn copy(&self, copy: &Copy, ops: &mut Vec<Self::Op>) -> Result<(), DeviceError>;

    /// Appends what `fill` comes to.
    fn fill(&self, fill: &Fill, ops: &mut Vec<Self::Op>) -> Result<(), DeviceError>;

    /// Appends what `dispatch` comes to, which may be nothing.
    fn dispatch(&self, dispatch: &Dispatch, ops: &mut Vec<Self::Op>) -> Result<(), DeviceError>;

    /// Enqueues `ops`, each with its number among the commands of its batch, to run in order after
    /// `after` and all that was enqueued before; without ops, there is still a place to wait for.
    /// Calls [`Ending::end`] when they have ended.
    ///
    /// # Safety
    /// Until then, the ops stay where they are, the memory in them too, and no work that conflicts
    /// runs.
    unsafe fn hand_over<'a>(
        &self,
        queue: &Self::Queue,
        ops: impl Iterator<Item = (&'a Self::Op, u32)>,
        after: &[Self::Event],
        notes_times: bool,
        ending: Ending<Self>,
    ) -> HandedOver<Self>
    where
        Self::Op: 'a;

    /// Has the driver begin with what was enqueued, if it would otherwise keep it.
    fn flush(&self, queue: &Self::Queue);

    /// Whether it can tell when commands ran.
    fn notes_times(&self) -> bool {
        false
    }

    /// Appends when the commands of the batch of `value`, which have ended, ran.
    fn read_times(&self, times: Self::Times, value: u64, out: &mut Vec<CommandTime>) {
        let _ = (times, value, out);
    }
}

/// Returns a number for [`Driver::context`] that no other context of the process has.
pub fn new_context_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What came of handing commands over.
#[derive(Debug)]
pub struct HandedOver<D: Driver> {
    /// The place behind the last command.
    pub event: Option<D::Event>,
    /// Why the driver would not take all of it. What it took before runs, and `ending` tells when
    /// that has ended.
    pub refused: Option<Arc<str>>,
    /// Everything has ended, and `ending` is not called: the driver could not even do that.
    pub has_ended: bool,
    /// What tells when the commands ran, where that was asked for.
    pub times: Option<D::Times>,
}

/// Commands of a driver in order, and which command of the batch each belongs to.
struct OpList<O> {
    ops: Vec<O>,
    /// For each op the number of its command. A command may come to several ops, or to none.
    commands: Vec<u32>,
}

impl<O> Default for OpList<O> {
    fn default() -> Self {
        Self { ops: Vec::new(), commands: Vec::new() }
    }
}
