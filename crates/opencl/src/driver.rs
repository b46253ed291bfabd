//! What lanes need of OpenCL: queues, events, and callbacks.

use std::ffi::c_void;
use std::ptr;
use std::time::Instant;

use opencl3::command_queue::{finish, flush};
use opencl3::types::{cl_event, cl_int};
use syncline_backend::Bridge;
use syncline_backend::driver::{Driver, Ending, HandedOver};
use syncline_device::{Backend, CommandTime, Copy, DeviceError, DeviceSpec, Dispatch, Fill};

use crate::api::{Code, Event, Queue, on_end};
use crate::command::{Op, marker};
use crate::prepare::Preparer;
use crate::times::Noted;

// SAFETY: queues are in order and wait for the events they are given; ops are made of what they are
// asked for, and `ending` is called by an event behind all of them.
unsafe impl Driver for Preparer {
    type Queue = Queue;
    type Event = Event;
    type Op = Op;
    type Times = Noted;

    fn device(&self) -> DeviceSpec {
        self.spec()
    }

    fn context(&self) -> u64 {
        self.context.id
    }

    fn bridge(&self) -> &Bridge {
        &self.context.bridge
    }

    fn can_access(&self, device: DeviceSpec) -> bool {
        device.backend == Backend::Cpu || self.context.has(device)
    }

    fn open_queue(&self) -> Result<Queue, DeviceError> {
        self.context.queue(self.at)
    }

    fn copy(&self, copy: &Copy, ops: &mut Vec<Op>) -> Result<(), DeviceError> {
        self.prepare_copy(copy, ops)
    }

    fn fill(&self, fill: &Fill, ops: &mut Vec<Op>) -> Result<(), DeviceError> {
        self.prepare_fill(fill, ops)
    }

    fn dispatch(&self, dispatch: &Dispatch, ops: &mut Vec<Op>) -> Result<(), DeviceError> {
        ops.extend(self.prepare_launch(dispatch)?.map(Op::Launch));
        Ok(())
    }

    unsafe fn hand_over<'a>(
        &self,
        queue: &Queue,
        ops: impl Iterator<Item = (&'a Op, u32)>,
        after: &[Event],
        notes_times: bool,
        ending: Ending<Self>,
    ) -> HandedOver<Self> {
        let mut few = [ptr::null_mut(); 16];
        let many: Vec<cl_event>;
        let after = match few.get_mut(..after.len()) {
            Some(few) => {
                few.iter_mut().zip(after).for_each(|(place, event)| *place = event.0);
                &*few
            }
            None => {
                many = after.iter().map(|event| event.0).collect();
                &many
            }
        };
        let (mut after, mut last, mut refused) = (after, None, None);
        let mut times = notes_times.then(|| Noted { handed: Instant::now(), events: Vec::new() });
        for (op, number) in ops {
            // SAFETY: the caller's promise.
            match unsafe { op.enqueue(queue, after) } {
                Ok(event) => {
                    times.iter_mut().for_each(|of| of.events.push((number, event.clone())));
                    last = Some(event);
                }
                Err(code) => {
                    refused = Some(code);
                    break;
                }
            }
            // The queue runs in order: what the first command waits for, all do.
            after = &[];
        }
        let end = match (last, refused) {
            (Some(last), None) => Ok(last),
            // What was enqueued before an error runs, and must have ended before the lane is told.
            _ => marker(queue, after),
        };
        let end = end.and_then(|event| {
            // SAFETY: `ended` takes the address back, once; where this fails, it is not called.
            unsafe { ending.pass(|data| on_end(&event, ended, data)) }.map(|()| event)
        });
        let has_ended = end.is_err();
        if has_ended {
            // The driver is beyond reporting: wait for it here.
            let _ = finish(queue.0);
        }
        let refused = refused.or(end.as_ref().err().copied());
        let refused = refused.map(|code| code.to_string().into());
        HandedOver { event: end.ok(), refused, has_ended, times }
    }

    fn flush(&self, queue: &Queue) {
        // Others may wait for these events: the driver must not keep them for later. If that fails,
        // so do the commands.
        let _ = flush(queue.0);
    }

    fn notes_times(&self) -> bool {
        true
    }

    fn read_times(&self, times: Noted, value: u64, out: &mut Vec<CommandTime>) {
        times.read(value, out);
    }
}

/// The driver calls this when an event has ended, on any thread, perhaps from within one of our own
/// calls to it.
extern "C" fn ended(_event: cl_event, status: cl_int, data: *mut c_void) {
    // SAFETY: `hand_over` passed this address, for one call.
    let ending = unsafe { Ending::<Preparer>::from_raw(data) };
    ending.end(if status < 0 { Err(Code(status).to_string().into()) } else { Ok(()) });
}
