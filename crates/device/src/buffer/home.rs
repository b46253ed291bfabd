//! Homes: a stream runs tasks on a buffer without a lease for each of them.
//!
//! A buffer is *at home* in at most one stream, which knows it by a number. While it is also
//! *occupied*, tasks of that stream may use it at any time, and the stream orders them. Everybody
//! else, a host access, a claim or a lease, first asks the stream to vacate it, which takes until
//! no task uses it. The stream occupies it again before its next task, and waits for the others
//! then. Both go through [`Uses::enter`](super::uses::Uses::enter), so that there is one order.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use syncline_tensor::BufferId;

use super::uses::HostUse;
use super::{Buffer, Inner};
use crate::memory::HostBytes;
use crate::{Backend, Deadline, DeviceError, Memory};

/// Where buffers can be at home: a stream.
pub trait Home: Send + Sync {
    /// Waits until no task uses buffer number `number`, then calls [`WeakBuffer::leave`] on it.
    /// Where `is_sound` is false, tasks that failed are no error.
    ///
    /// # Errors
    /// The deadline passes; the wait would never end; or a task failed that should have written it.
    fn vacate(
        self: Arc<Self>,
        buffer: BufferId,
        number: u32,
        deadline: Deadline,
        is_sound: bool,
    ) -> Result<(), DeviceError>;

    /// Forgets buffer number `number`, of which the last handle has been dropped. Its `memory` is
    /// dropped when no task uses it any more.
    fn forget(&self, number: u32, memory: Option<Box<dyn Memory>>);
}

/// Where a buffer is at home, and whether it is occupied.
pub(super) struct AtHome {
    pub(super) home: Arc<dyn Home>,
    pub(super) number: u32,
    /// The memory is the home's own.
    pub(super) is_bound: bool,
    pub(super) is_occupied: bool,
}

/// A buffer that may be gone.
#[derive(Clone)]
pub struct WeakBuffer(Weak<Inner>);

impl std::fmt::Debug for WeakBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakBuffer")
    }
}

impl WeakBuffer {
    /// The buffer, if there still is a handle.
    pub fn upgrade(&self) -> Option<Buffer> {
        self.0.upgrade().map(Buffer)
    }

    /// Says that tasks of its home may use the buffer: others have it vacated first. A home calls
    /// it, and [`WeakBuffer::leave`], under the lock of its own flag, so that the two agree.
    pub fn occupied(&self) {
        if let Some(buffer) = self.upgrade() {
            buffer.0.uses.set_occupied(true);
        }
    }

    /// Says that no task of its home uses the buffer any more: others may.
    ///
    /// # Safety
    /// It is so, and stays so until the home occupies the buffer again.
    pub unsafe fn leave(&self) {
        if let Some(buffer) = self.upgrade() {
            buffer.0.uses.set_occupied(false);
        }
    }
}

impl Buffer {
    /// The same buffer, which this does not keep alive.
    pub fn downgrade(&self) -> WeakBuffer {
        WeakBuffer(Arc::downgrade(&self.0))
    }

    /// The stream that the buffer is at home in, as [`Buffer::settle`] was told, and its number
    /// there. Stream number zero is none.
    #[inline]
    pub fn home(&self) -> (u32, u32) {
        let home = self.0.home.load(Ordering::Acquire);
        ((home >> 32) as u32, home as u32)
    }

    /// Makes `home`, a stream called `stream`, the home of a buffer that has none. Returns `false`
    /// if another was faster.
    pub fn settle(&self, home: Arc<dyn Home>, stream: u32, number: u32) -> bool {
        self.settle_as(AtHome { home, number, is_bound: false, is_occupied: false }, stream)
    }

    /// A buffer over memory that its home owns, and occupies from the start, until
    /// [`Home::forget`] is called.
    ///
    /// # Safety
    /// Until then the bytes from `base` on are allocated, initialised, and touched by the home's
    /// tasks and through this buffer only.
    pub unsafe fn of_home(
        base: NonNull<u8>,
        bytes: u64,
        home: Arc<dyn Home>,
        (stream, number): (u32, u32),
    ) -> Self {
        // SAFETY: the caller's promise: the home keeps them until the buffer is gone.
        let memory = unsafe { HostBytes::new(base, bytes, ()) };
        let buffer = Self::over(Box::new(memory), bytes);
        buffer.settle_as(AtHome { home, number, is_bound: true, is_occupied: true }, stream);
        buffer
    }

    fn settle_as(&self, at_home: AtHome, stream: u32) -> bool {
        let number = at_home.number;
        let settled = self.0.uses.set_home(at_home);
        if settled {
            self.0.home.store(u64::from(stream) << 32 | u64::from(number), Ordering::Release);
        }
        settled
    }

    /// Takes the buffer out of its home, if it has one: waits until no task there uses it.
    ///
    /// # Errors
    /// As [`Home::vacate`]; and where the memory is the home's own, as that of outputs is.
    pub fn unsettle(&self, deadline: Deadline) -> Result<(), DeviceError> {
        // While this holds the buffer as a host that writes, no home occupies it.
        let _entered = self.enter(HostUse::new(true, false), deadline)?;
        // SAFETY: just argued.
        unsafe { self.move_out() }
    }

    /// Waits until no user of the buffer is left, and has every use refused from then on.
    pub(super) fn revoke(&self) -> Result<(), DeviceError> {
        let host = HostUse { is_sound: false, ..HostUse::new(true, false) };
        let _entered = self.enter(host, Deadline::NEVER)?;
        self.0.uses.revoke();
        Ok(())
    }

    /// Takes the buffer out of a home that has come to its end.
    ///
    /// # Errors
    /// The memory is the home's own.
    ///
    /// # Safety
    /// No task of the home uses the buffer, and none will.
    pub unsafe fn move_out(&self) -> Result<(), DeviceError> {
        if self.0.uses.is_bound() {
            let message = "its memory is that of the stream whose task made it: copy it".into();
            return Err(DeviceError::UsedByStream { buffer: self.id(), message });
        }
        self.0.home.store(0, Ordering::Release);
        if let Some(AtHome { home, number, .. }) = self.0.uses.take_home() {
            home.forget(number, None);
        }
        Ok(())
    }

    /// Waits until no other user is left, then lets the buffer's home occupy it, unless it does.
    /// `occupy` gets the address of the first byte, and calls [`WeakBuffer::occupied`] if tasks may
    /// use it from now on.
    ///
    /// # Errors
    /// As [`Buffer::write`]; where work that should have written the buffer failed; and for memory
    /// of devices other than CPUs.
    pub fn occupy(
        &self,
        deadline: Deadline,
        occupy: impl FnOnce(NonNull<u8>),
    ) -> Result<(), DeviceError> {
        let device = self.device();
        let unreachable = || DeviceError::Unsupported {
            device,
            what: "a buffer in tasks of a stream, which run on the CPU (transfer it first)".into(),
        };
        if device.backend != Backend::Cpu {
            return Err(unreachable());
        }
        if self.0.uses.is_occupied() {
            return Ok(());
        }
        let _entered = self.enter(HostUse::new(true, false), deadline)?;
        self.refuse_failed(0, self.bytes())?;
        self.allocate()?;
        let base = self.host_pointer().ok_or_else(unreachable)?;
        occupy(base);
        Ok(())
    }
}
