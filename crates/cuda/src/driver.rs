//! What lanes need of CUDA: streams, events, and callbacks.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUresult, CUstream};
use syncline_backend::Bridge;
use syncline_backend::driver::{Driver, Ending, HandedOver};
use syncline_device::{Copy, DeviceError, DeviceSpec, Dispatch, Fill};

use crate::api::{Event, Stream, check, refused, text};
use crate::command::Op;
use crate::prepare::Preparer;

// SAFETY: a stream runs its operations in order and after the events it was told to wait for; ops
// are made of what they are asked for, and `ending` is called by the stream itself.
unsafe impl Driver for Preparer {
    type Queue = Stream;
    type Event = Event;
    type Op = Op;
    type Times = ();

    fn device(&self) -> DeviceSpec {
        self.context.spec
    }

    fn context(&self) -> u64 {
        self.context.id
    }

    fn bridge(&self) -> &Bridge {
        &self.context.bridge
    }

    fn open_queue(&self) -> Result<Stream, DeviceError> {
        let spec = self.context.spec;
        Stream::new(&self.context.primary).map_err(|error| refused(spec, "a stream", error))
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
        queue: &Stream,
        ops: impl Iterator<Item = (&'a Op, u32)>,
        after: &[Event],
        _notes_times: bool,
        ending: Ending<Self>,
    ) -> HandedOver<Self> {
        // SAFETY: the caller's promise.
        let enqueued = unsafe { self.enqueue(queue, ops, after) };
        // What was enqueued before an error runs, and must have ended before the lane is told.
        let event = self.context.events.record(queue);
        // A callback of a stream, and not a host function: the latter is left out where something
        // before it has failed. SAFETY: `ended` takes the address back, once; where this fails, it
        // is not called.
        let asked = unsafe {
            ending.pass(|data| check(sys::cuStreamAddCallback(queue.handle, Some(ended), data, 0)))
        };
        let has_ended = asked.is_err();
        if has_ended {
            // The driver is beyond reporting: wait for it here.
            // SAFETY: the stream lives.
            let _ = unsafe { result::stream::synchronize(queue.handle) };
        }
        let error = enqueued.err().or(event.as_ref().err().copied()).or(asked.err());
        let refused: Option<Arc<str>> = error.map(|error| text(error).into());
        HandedOver { event: event.ok(), refused, has_ended, times: None }
    }

    fn flush(&self, _queue: &Stream) {
        // A stream begins by itself.
    }
}

impl Preparer {
    /// # Safety
    /// As [`Driver::hand_over`].
    unsafe fn enqueue<'a>(
        &self,
        queue: &Stream,
        ops: impl Iterator<Item = (&'a Op, u32)>,
        after: &[Event],
    ) -> Result<(), DriverError> {
        self.context.primary.enter()?;
        after.iter().try_for_each(|event| event.hold_up(queue))?;
        for (op, _) in ops {
            // SAFETY: the caller's promise.
            unsafe { op.enqueue(queue) }?;
        }
        Ok(())
    }
}

/// The driver calls this when all before it in the stream has ended, on a thread of its own, where
/// it must not be called.
unsafe extern "C" fn ended(_stream: CUstream, status: CUresult, data: *mut c_void) {
    // SAFETY: `hand_over` passed this address, for one call.
    let ending = unsafe { Ending::<Preparer>::from_raw(data) };
    // Its name without asking the driver for words.
    ending.end(check(status).map_err(|error| format!("{:?}", error.0).into()));
}
