//! The host's own access to the bytes of buffers that are at home in a stream.
//!
//! The access is a task like any other: it waits for what comes before it, and what comes after
//! waits until the guard is dropped. So safe code never races with tasks.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use syncline_device::{Buffer, Deadline, Element};
use syncline_tensor::{Access, TaskId, View};

use syncline_sync::shim::thread;

use super::StreamError;
use super::circle::Goal;
use super::failure::Record;
use super::holds;
use super::shared::{Guard, Shared};
use super::sleep::Want;
use super::task::{Place, TaskSpec};
use super::wait::Wait;

/// A buffer that the host reads: tasks that would write it wait until this is dropped.
#[derive(Debug)]
pub struct HostRead<'s>(HostAccess<'s>);

/// A buffer that the host reads and writes: tasks that would touch it wait until this is dropped.
#[derive(Debug)]
pub struct HostWrite<'s>(HostAccess<'s>);

#[derive(Debug)]
pub(crate) struct HostAccess<'s> {
    shared: &'s Arc<Shared>,
    buffer: Buffer,
    task: TaskId,
    slot: u32,
    base: *mut u8,
    /// Guards stay on their thread: that is how a wait for one's own guard is recognised.
    _not_send: PhantomData<*mut u8>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({})", self.stream_id)
    }
}

impl Shared {
    pub(crate) fn read<'s>(
        self: &'s Arc<Self>,
        buffer: &Buffer,
        deadline: Deadline,
    ) -> Result<HostRead<'s>, StreamError> {
        let number = self.adopt(buffer, deadline)?;
        self.open((buffer, number), Access::Input, "host read", deadline).map(HostRead)
    }

    pub(crate) fn write<'s>(
        self: &'s Arc<Self>,
        buffer: &Buffer,
        deadline: Deadline,
    ) -> Result<HostWrite<'s>, StreamError> {
        let number = self.adopt(buffer, deadline)?;
        self.open((buffer, number), Access::InOut, "host write", deadline).map(HostWrite)
    }

    /// Ends what stands for guards that were forgotten: when a stream is dropped, none that could
    /// be used is left.
    pub(crate) fn end_forgotten_guards(&self) {
        let mut state = self.lock();
        for guard in std::mem::take(&mut state.guards) {
            if let Some(slot) = state.table.find(guard.task) {
                self.end_guarded(&mut state, slot, Ok(()));
            }
        }
    }

    pub(crate) fn open<'s>(
        self: &'s Arc<Self>,
        (buffer, number): (&Buffer, u32),
        access: Access,
        name: &'static str,
        deadline: Deadline,
    ) -> Result<HostAccess<'s>, StreamError> {
        let began = Instant::now();
        let all = View::bytes_at(0, buffer.bytes())
            .map_err(|_| StreamError::OutOfMemory { bytes: buffer.bytes() })?;
        let mut spec = TaskSpec::reused(name.into());
        spec.host = true;
        spec.stream = self.stream_id;
        spec.args.push(access, buffer.id(), &all);
        spec.places.push(Place { buffer: number, base: std::ptr::null_mut() });
        let thread = thread::current().id();
        let (task, slot) = self.submit_host(spec, deadline)?;
        let place = &self.ring.slots[slot as usize];
        let name = || buffer.id().to_string();
        let (want, goal) = (Want::Task, Goal::Task(task));
        let wait = Wait { want, goal, deadline, what: "opening a buffer", name: &name };
        let granted = self.wait_until(&wait, |_, _| Ok(place.is_granted()));
        match granted {
            Ok(true) => {}
            // Granted in the last moment: go on.
            Ok(false) if !place.give_up() => {}
            Ok(false) => {
                let (what, waited) = (format!("buffer {}", buffer.id()), began.elapsed());
                return Err(StreamError::TimedOut { what, waited });
            }
            // Refused: it waits for this thread, or in a circle.
            Err(_) if !place.give_up() => {}
            Err(error) => return Err(error),
        }
        self.grant((buffer, number), task, slot, thread)
    }

    /// The granted access, or the failure that it inherits.
    fn grant<'s>(
        self: &'s Arc<Self>,
        (buffer, number): (&Buffer, u32),
        task: TaskId,
        slot: u32,
        thread: thread::ThreadId,
    ) -> Result<HostAccess<'s>, StreamError> {
        let mut state = self.lock();
        if let Some(origin) = self.ring.slots[slot as usize].inherited() {
            let failure = self.ring.failure_of(origin);
            let record = Record { origin, failure: failure.clone() };
            self.end_guarded(&mut state, slot, Err(record));
            return Err(StreamError::TaskFailed { task, failure });
        }
        state.guards.push(Guard { task, thread });
        holds::guard_opened();
        let entry = state.heap.get(number, buffer.id()).expect("held by the caller's handle");
        let (base, buffer) = (entry.base, buffer.clone());
        Ok(HostAccess { shared: self, buffer, task, slot, base, _not_send: PhantomData })
    }
}

impl HostAccess<'_> {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the task in `slot` has been granted and not ended: discovery orders every task
        // that writes these bytes before or after it. The buffer lives: `buffer` holds it. Its
        // memory was initialised when it was allocated.
        unsafe { std::slice::from_raw_parts(self.base, self.buffer.bytes() as usize) }
    }

    fn typed<T: Element>(&self) -> Result<usize, StreamError> {
        let (bytes, element, align) = (self.buffer.bytes(), size_of::<T>(), align_of::<T>());
        if !bytes.is_multiple_of(element as u64) || !(self.base as usize).is_multiple_of(align) {
            let buffer = self.buffer.id();
            return Err(StreamError::BadElement { buffer, bytes, element, align });
        }
        Ok((bytes / element as u64) as usize)
    }
}

impl Drop for HostAccess<'_> {
    fn drop(&mut self) {
        let shared = self.shared;
        let mut state = shared.lock();
        state.guards.retain(|guard| guard.task != self.task);
        shared.end_guarded(&mut state, self.slot, Ok(()));
        holds::guard_dropped();
        drop(state);
        shared.sleep.room_made();
        shared.sleep.ran_dry();
    }
}

impl HostRead<'_> {
    /// All bytes as elements.
    ///
    /// # Errors
    /// Where they are no whole number of elements.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], StreamError> {
        let count = self.0.typed::<T>()?;
        // SAFETY: as in `bytes`; size and alignment were checked, and every bit pattern is an
        // element.
        Ok(unsafe { std::slice::from_raw_parts(self.0.base.cast(), count) })
    }
}

impl HostWrite<'_> {
    /// All bytes as elements.
    ///
    /// # Errors
    /// Where they are no whole number of elements.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], StreamError> {
        let count = self.0.typed::<T>()?;
        // SAFETY: as in `DerefMut`; size and alignment were checked, and every bit pattern is an
        // element.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.base.cast(), count) })
    }
}

impl Deref for HostRead<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Deref for HostWrite<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for HostWrite<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; and the task writes, so that every other task that touches these
        // bytes is ordered before or after it, and this borrow of the only guard is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.0.base, self.0.buffer.bytes() as usize) }
    }
}
