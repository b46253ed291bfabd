//! Buffers that are at home in a stream: how they come, and how others get at them.
//!
//! A stream knows a buffer by a number, and runs tasks on it without asking while it *occupies*
//! it (`syncline_device::Home`). Others have it vacated, under the submit lock, when no
//! task uses it; the next task that does is held up in `submit` until the stream occupies it again.

use std::sync::Arc;

use syncline_deps::SubmitError;
use syncline_device::{Buffer, Deadline, DeviceError, Home, Memory};
use syncline_tensor::{Access, Arg, BufferId};

use super::StreamError;
use super::shared::{RootState, Shared};
use super::task::{FRESH, Place, TaskSpec};

impl Shared {
    /// How buffers name this stream.
    #[inline]
    fn home_number(&self) -> u32 {
        self.stream_id as u32
    }

    /// Makes this the home of `buffer`, and returns its number here.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        buffer: &Buffer,
        deadline: Deadline,
    ) -> Result<u32, StreamError> {
        loop {
            let (stream, number) = buffer.home();
            if stream == self.home_number() {
                return Ok(number);
            }
            let refused = |source| StreamError::Buffer { buffer: buffer.id(), source };
            if stream != 0 {
                buffer.unsettle(deadline).map_err(refused)?;
            }
            let mut state = self.lock();
            // It may have been at home here before.
            self.reclaim(&mut state);
            if buffer.home().0 != 0 {
                continue;
            }
            let number = state.heap.add_buffer(buffer);
            state.declare(buffer.id(), buffer.bytes());
            let settled = buffer.settle(self.clone(), self.home_number(), number);
            if !settled && let Some(gone) = state.heap.drop_handle(number, None) {
                // Another stream was faster.
                state.release(gone);
            }
            drop(state);
            if settled {
                self.occupy(buffer, number, deadline).map_err(refused)?;
            }
        }
    }

    /// Waits until the buffer has no other user; tasks may use it from then on.
    fn occupy(&self, buffer: &Buffer, number: u32, deadline: Deadline) -> Result<(), DeviceError> {
        buffer.occupy(deadline, |base| self.lock().heap.occupy(number, buffer.id(), base.as_ptr()))
    }

    /// Finds a task's buffers. Returns one that others may be using.
    #[inline]
    pub(crate) fn find_places(&self, state: &RootState, spec: &mut TaskSpec) -> Option<usize> {
        let TaskSpec { args, places, .. } = spec;
        let mut known = None;
        for (position, (arg, place)) in args.iter().zip(places).enumerate() {
            // Mostly the same buffer as before.
            match known {
                Some((buffer, base)) if buffer == (place.buffer, arg.buffer) => {
                    place.base = base;
                    continue;
                }
                _ => {}
            }
            match state.heap.get(place.buffer, arg.buffer) {
                Some(entry) if entry.is_occupied && !entry.inside => {
                    place.base = entry.base;
                    known = Some(((place.buffer, arg.buffer), entry.base));
                }
                _ if place.buffer == FRESH => {}
                _ => return Some(position),
            }
        }
        None
    }

    /// Makes the buffer of argument `position` one that tasks may use.
    #[cold]
    pub(crate) fn fetch(
        self: &Arc<Self>,
        spec: &mut TaskSpec,
        position: usize,
        deadline: Deadline,
    ) -> Result<(), StreamError> {
        let (id, place) = (spec.args[position].buffer, &mut spec.places[position]);
        let stranger = spec.strangers.iter().find(|buffer| buffer.id() == id);
        if let Some(buffer) = stranger {
            place.buffer = self.adopt(buffer, deadline)?;
        }
        let state = self.lock();
        let inside = state.heap.get(place.buffer, id).is_some_and(|entry| entry.inside);
        let handle = state.heap.handle(place.buffer, id);
        drop(state);
        match handle {
            Some(buffer) if !inside => {
                let refused = |source| StreamError::Buffer { buffer: id, source };
                self.occupy(&buffer, place.buffer, deadline).map_err(refused)
            }
            _ => Err(SubmitError::UnknownBuffer { arg: position, buffer: id }.into()),
        }
    }

    /// Lets buffers go of which the memory is not the stream's own: it is dropped, and no task is
    /// left.
    pub(crate) fn empty_home(&self) {
        let mut state = self.lock();
        self.reclaim(&mut state);
        // What tasks that failed have left is still refused, by this stream.
        let is_sound = self.ring.failures_live() == 0;
        let movable = if is_sound { state.heap.movable() } else { Vec::new() };
        drop(state);
        for buffer in movable.iter().filter_map(|buffer| buffer.upgrade()) {
            // SAFETY: no task uses it, and none will: the stream is being dropped.
            let _ = unsafe { buffer.move_out() };
        }
    }
}

impl RootState {
    /// Makes the buffer of an output, which fits.
    pub(crate) fn make_output(
        &mut self,
        shared: &Arc<Shared>,
        arg: &mut Arg,
        place: &mut Place,
    ) -> Result<Buffer, StreamError> {
        let bytes = arg.view.span().map_or(0, |(_, end)| end);
        let memory = self.heap.output(bytes).ok_or(StreamError::OutOfMemory { bytes })?;
        let (base, number) = (memory.start(), self.heap.next());
        let home = (shared.home_number(), number);
        // SAFETY: the heap keeps the memory, for this buffer alone, until `forget` and longer.
        let buffer = unsafe { Buffer::of_home(base, bytes, shared.clone(), home) };
        self.heap.add_output(&buffer, memory);
        self.declare(buffer.id(), bytes);
        arg.buffer = buffer.id();
        *place = Place { buffer: number, base: base.as_ptr() };
        Ok(buffer)
    }
}

impl Home for Shared {
    fn vacate(
        self: Arc<Self>,
        buffer: BufferId,
        number: u32,
        deadline: Deadline,
        is_sound: bool,
    ) -> Result<(), DeviceError> {
        let mut asked = !is_sound;
        loop {
            let mut state = self.lock();
            self.reclaim(&mut state);
            let Some(handle) = state.heap.handle(number, buffer) else { return Ok(()) };
            // A task that failed may have left anything: whether it wrote this buffer, a host
            // access finds out.
            let answers = asked || self.ring.failures_live() == 0;
            if answers && state.heap.vacate(number) {
                return Ok(());
            }
            drop(state);
            let opened = self.open((&handle, number), Access::InOut, "use by others", deadline);
            match opened {
                // A writer failed, and all that came before has ended.
                Err(StreamError::TaskFailed { .. }) if !is_sound => {}
                Err(error) => {
                    let message = error.to_string().into();
                    return Err(DeviceError::UsedByStream { buffer, message });
                }
                Ok(access) => drop(access),
            }
            asked = true;
        }
    }

    fn forget(&self, number: u32, memory: Option<Box<dyn Memory>>) {
        self.drop_handle(number, memory);
    }
}
