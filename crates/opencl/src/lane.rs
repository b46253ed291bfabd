//! Lanes of an OpenCL device: in-order command queues.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use syncline_device::{
    Backend, Command, CommandTime, Commands, DeviceError, DeviceSpec, Lane, LaneInfo, Point,
    Recording, Timeline, Work,
};

use crate::command::OpList;
use crate::prepare::Preparer;
use crate::queue::{LaneQueue, Pending, Step, Wait};

/// The handle of a lane: closes it when dropped.
pub(crate) struct OpenClLane {
    pub(crate) queue: Arc<LaneQueue>,
    preparer: Arc<Preparer>,
    /// Recordings that keep commands prepared for this lane.
    recordings: Mutex<Vec<Weak<Recording>>>,
}

impl OpenClLane {
    pub(crate) fn open(info: LaneInfo, preparer: &Arc<Preparer>) -> Result<Self, DeviceError> {
        let queue = LaneQueue::new(info, preparer.context.clone(), preparer.at)?;
        Ok(Self { queue, preparer: preparer.clone(), recordings: Mutex::default() })
    }

    fn steps(&self, commands: Commands) -> Result<VecDeque<Step>, DeviceError> {
        let (mut steps, mut list, mut number) = (VecDeque::new(), OpList::default(), 0);
        for command in commands {
            let first = number;
            let (step, count) = match command {
                Command::Host(function) => (Step::Call(function), 1),
                Command::Recording(recording) => {
                    let list = self.prepared(&recording)?;
                    (Step::Ops { list, first }, recording.commands().len() as u32)
                }
                command => {
                    self.prepare(&command, number, &mut list)?;
                    number += 1;
                    continue;
                }
            };
            number += count;
            flush(&mut list, &mut steps);
            steps.push_back(step);
        }
        flush(&mut list, &mut steps);
        Ok(steps)
    }

    fn prepare(&self, of: &Command, number: u32, list: &mut OpList) -> Result<(), DeviceError> {
        self.preparer.prepare(of, &mut list.ops)?;
        list.commands.resize(list.ops.len(), number);
        Ok(())
    }

    /// The commands of a recording, prepared at its first submission to this lane.
    fn prepared(&self, recording: &Arc<Recording>) -> Result<Arc<OpList>, DeviceError> {
        recording.keep(self.queue.info.id(), |commands| {
            let mut list = OpList::default();
            for (command, number) in commands.iter().zip(0..) {
                self.prepare(command, number, &mut list)?;
            }
            let mut recordings = self.recordings.lock().unwrap_or_else(PoisonError::into_inner);
            recordings.retain(|other| other.strong_count() > 0);
            recordings.push(Arc::downgrade(recording));
            Ok(list)
        })
    }
}

/// Makes what was prepared so far a step.
fn flush(list: &mut OpList, steps: &mut VecDeque<Step>) {
    if !list.ops.is_empty() {
        steps.push_back(Step::Ops { list: Arc::new(mem::take(list)), first: 0 });
    }
}

impl Lane for OpenClLane {
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
        device.backend == Backend::Cpu || self.queue.context.has(device)
    }

    unsafe fn enqueue(&self, work: Work) -> Result<Point, DeviceError> {
        self.queue.check_open(work.task.as_ref())?;
        let Work { waits, commands, signals, task, leases } = work;
        let steps = self.steps(commands)?;
        let waits = waits.into_iter().map(Wait::from).collect();
        self.queue.push(Pending { value: 0, waits, steps, signals, task, leases })
    }

    fn recover(&self) {
        self.queue.recover();
    }

    fn close(&self) {
        self.queue.close();
    }

    fn note_times(&self, on: bool) -> bool {
        self.queue.note_times(on);
        on
    }

    fn take_times(&self) -> Vec<CommandTime> {
        self.queue.take_times()
    }
}

impl Drop for OpenClLane {
    fn drop(&mut self) {
        self.queue.close();
        let recordings = self.recordings.get_mut().unwrap_or_else(PoisonError::into_inner);
        for recording in recordings.iter().filter_map(Weak::upgrade) {
            recording.forget(self.queue.info.id());
        }
    }
}

impl fmt::Debug for OpenClLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenClLane({:?})", self.queue.last())
    }
}
