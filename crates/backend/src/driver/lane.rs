//! Lanes of drivers.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, Weak};

use syncline_sync::{ignore_poison, lock};

use super::queue::{LaneQueue, Step};
use super::{Driver, OpList};
use syncline_device::{
    Command, CommandTime, Commands, DeviceError, DeviceSpec, Lane, LaneInfo, LaneKind, Point,
    Recording, Timeline, Work,
};

/// A lane over a queue of a driver. Closes when dropped.
pub struct DriverLane<D: Driver> {
    queue: Arc<LaneQueue<D>>,
    /// Recordings that keep commands prepared for this lane.
    recordings: Mutex<Vec<Weak<Recording>>>,
}

impl<D: Driver> DriverLane<D> {
    /// A lane of `driver`'s device, called by the device and `name`.
    pub fn open(driver: &Arc<D>, kind: LaneKind, name: &str) -> Result<Self, DeviceError> {
        let device = driver.device();
        let info = LaneInfo::new(format!("{device} {name}"), kind, device);
        let queue = LaneQueue::new(info, driver.clone())?;
        Ok(Self { queue, recordings: Mutex::default() })
    }

    /// The queue, which the device closes.
    pub(super) fn queue(&self) -> &Arc<LaneQueue<D>> {
        &self.queue
    }

    /// Appends the steps of `commands` to `steps`, which is empty. Leaves all commands but the host
    /// functions, and those too where one is refused.
    fn prepare_all(
        &self,
        commands: &mut Commands,
        steps: &mut VecDeque<Step<D>>,
    ) -> Result<(), DeviceError> {
        let (mut list, mut number) = (OpList::default(), 0);
        let mut result = Ok(());
        for command in mem::take(commands) {
            match command {
                Command::Host(function) if result.is_ok() => {
                    flush(&mut list, steps);
                    steps.push_back(Step::Call(function));
                    number += 1;
                    continue;
                }
                Command::Recording(recording) if result.is_ok() => {
                    flush(&mut list, steps);
                    let first = number;
                    number += recording.commands().len() as u32;
                    result = self.prepared(&recording).map(|list| {
                        steps.push_back(Step::Ops { list, first });
                    });
                    commands.push(Command::Recording(recording));
                    continue;
                }
                command if result.is_ok() => {
                    result = self.prepare(&command, number, &mut list);
                    number += 1;
                    commands.push(command);
                }
                command => commands.push(command),
            }
        }
        flush(&mut list, steps);
        if result.is_err() {
            give_back(steps, commands);
        }
        result
    }

    fn prepare(
        &self,
        of: &Command,
        number: u32,
        list: &mut OpList<D::Op>,
    ) -> Result<(), DeviceError> {
        let (driver, ops) = (&self.queue.driver, &mut list.ops);
        match of {
            Command::Copy(copy) => driver.copy(copy, ops)?,
            Command::Fill(fill) => driver.fill(fill, ops)?,
            Command::Dispatch(dispatch) => driver.dispatch(dispatch, ops)?,
            other => unreachable!("a step of its own, or unknown to drivers: {other:?}"),
        }
        list.commands.resize(list.ops.len(), number);
        Ok(())
    }

    /// The commands of a recording, prepared at its first submission to this lane.
    fn prepared(&self, recording: &Arc<Recording>) -> Result<Arc<OpList<D::Op>>, DeviceError> {
        recording.keep(self.queue.info.id(), |commands| {
            let mut list = OpList::default();
            for (command, number) in commands.iter().zip(0..) {
                self.prepare(command, number, &mut list)?;
            }
            let mut recordings = lock(&self.recordings);
            recordings.retain(|other| other.strong_count() > 0);
            recordings.push(Arc::downgrade(recording));
            Ok(list)
        })
    }
}

/// Returns the host functions of `steps` to `commands`.
fn give_back<D: Driver>(steps: &mut VecDeque<Step<D>>, commands: &mut Commands) {
    for step in steps.drain(..) {
        if let Step::Call(function) = step {
            commands.push(Command::Host(function));
        }
    }
}

/// Makes what was prepared so far a step.
fn flush<D: Driver>(list: &mut OpList<D::Op>, steps: &mut VecDeque<Step<D>>) {
    if !list.ops.is_empty() {
        steps.push_back(Step::Ops { list: Arc::new(mem::take(list)), first: 0 });
    }
}

// SAFETY: the queue hands over in order and after all waits (`driver/README.md`); the driver keeps
// its own contract.
unsafe impl<D: Driver> Lane for DriverLane<D> {
    fn info(&self) -> &LaneInfo {
        &self.queue.info
    }

    fn timeline(&self) -> Timeline {
        self.queue.last().timeline().clone()
    }

    fn last(&self) -> Point {
        self.queue.last()
    }

    fn can_access(&self, device: DeviceSpec) -> bool {
        self.queue.driver.can_access(device)
    }

    unsafe fn enqueue(&self, work: &mut Work) -> Result<Point, DeviceError> {
        self.queue.check_open(work.task.as_ref())?;
        let (waits, mut steps) = self.queue.take_room();
        self.prepare_all(&mut work.commands, &mut steps)?;
        let pushed = self.queue.push(work, waits, &mut steps);
        if pushed.is_err() {
            give_back(&mut steps, &mut work.commands);
        }
        pushed
    }

    fn recover(&self) {
        self.queue.recover();
    }

    fn close(&self) {
        self.queue.close();
    }

    fn reserve(&self, batches: usize, waits: usize, buffers: usize) {
        self.queue.reserve(batches, waits, buffers);
    }

    fn note_times(&self, on: bool) -> bool {
        let notes = on && self.queue.driver.notes_times();
        self.queue.note_times(notes);
        notes
    }

    fn take_times(&self) -> Vec<CommandTime> {
        self.queue.take_times()
    }
}

impl<D: Driver> Drop for DriverLane<D> {
    fn drop(&mut self) {
        self.queue.close();
        let recordings = ignore_poison(self.recordings.get_mut());
        for recording in recordings.iter().filter_map(Weak::upgrade) {
            recording.forget(self.queue.info.id());
        }
    }
}

impl<D: Driver> fmt::Debug for DriverLane<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriverLane({:?})", self.queue.last())
    }
}
