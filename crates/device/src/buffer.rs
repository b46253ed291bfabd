//! Buffers: memory on one device, taken at the first use, and safe to touch from the host at any
//! time.
//!
//! Work that is queued holds [`Lease`]s: its buffers live until it has ended, and host access waits
//! for it. Work submitted through the safe path is ordered by what is noted in `hazards`.

mod existing;
mod hazards;
mod home;
mod host;
mod loan;
mod now;
mod uses;

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::{ThreadId, current};

use syncline_sync::{ignore_poison, lock};
use syncline_tensor::{Access, BufferId, Dtype, View};

pub(crate) use hazards::{Hazards, Touch};
pub use home::{Home, WeakBuffer};
pub use host::{Claim, Map, MapMut};
pub use loan::{Loans, lending};
pub use now::call_now;
pub use uses::Lease;
use uses::Uses;

use crate::{Allocator, DeviceError, DeviceSpec, Memory};

/// Memory on one device. Clones are handles of the same buffer.
///
/// Lanes of devices, plans, transfers, refits, tasks of streams and the host take the same buffers.
/// Conflicting uses are ordered across all of them; a wait for oneself is refused.
///
/// ```
/// use syncline_device::cpu::CpuDevice;
///
/// let device = CpuDevice::open_default()?;
/// let buffer = device.buffer(16);
/// buffer.write(4, &[1.5f32, 2.5])?;
/// assert_eq!(buffer.read::<f32>(4, 2)?, [1.5, 2.5]);
/// # Ok::<(), syncline_device::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Buffer(Arc<Inner>);

struct Inner {
    id: BufferId,
    bytes: u64,
    allocator: Arc<dyn Allocator>,
    memory: OnceLock<Box<dyn Memory>>,
    /// The thread that is in the allocator, which runs under no lock.
    allocating: Mutex<Option<ThreadId>>,
    allocated: Condvar,
    uses: Uses,
    hazards: Mutex<Hazards>,
    /// The stream it is at home in and its number there, to be read without a lock; zero for none.
    home: AtomicU64,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(at_home) = self.uses.take_home() {
            at_home.home.forget(at_home.number, self.memory.take());
        }
    }
}

impl Buffer {
    /// A buffer of `bytes` bytes that takes its memory from `allocator` when it is first used.
    pub fn new(allocator: Arc<dyn Allocator>, bytes: u64) -> Self {
        Self::with_memory(allocator, bytes, OnceLock::new())
    }

    fn with_memory(
        allocator: Arc<dyn Allocator>,
        bytes: u64,
        memory: OnceLock<Box<dyn Memory>>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(Arc::new(Inner {
            id: BufferId(NEXT.fetch_add(1, Ordering::Relaxed)),
            bytes,
            allocator,
            memory,
            allocating: Mutex::new(None),
            allocated: Condvar::new(),
            uses: Uses::default(),
            hazards: Mutex::default(),
            home: AtomicU64::new(0),
        }))
    }

    /// Identity.
    pub fn id(&self) -> BufferId {
        self.0.id
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The device whose memory it takes.
    pub fn device(&self) -> DeviceSpec {
        self.0.allocator.device()
    }

    /// Whether memory has been taken.
    pub fn is_allocated(&self) -> bool {
        self.0.memory.get().is_some()
    }

    /// Takes the memory, if that has not happened yet.
    pub fn allocate(&self) -> Result<&dyn Memory, DeviceError> {
        if let Some(memory) = self.0.memory.get() {
            return Ok(&**memory);
        }
        let _turn = self.0.begin_allocating()?;
        if self.0.memory.get().is_none() {
            let memory = self.0.allocator.allocate(self.bytes())?;
            let _ = self.0.memory.set(memory);
        }
        Ok(&**self.0.memory.get().expect("set above, by one thread at a time"))
    }

    /// All its bytes.
    pub fn all(&self) -> BufferView {
        // Nothing of more than 2^62 bytes will ever get memory: such a buffer is refused at its
        // first use.
        let view = View::bytes_at(0, self.bytes().min(1 << 62)).expect("it fits in 63 bits");
        BufferView { buffer: self.clone(), view }
    }

    /// The elements that `view` means.
    ///
    /// # Errors
    /// Where they do not lie inside.
    pub fn view(&self, view: View) -> Result<BufferView, DeviceError> {
        if let Some((start, end)) = view.span()
            && end > self.bytes()
        {
            let (buffer, bytes) = (self.id(), self.bytes());
            return Err(DeviceError::OutOfBounds { buffer, start, end, bytes });
        }
        Ok(BufferView { buffer: self.clone(), view })
    }

    /// Elements of `dtype` one after the other, from the first byte on.
    pub fn tensor(&self, dtype: Dtype, shape: &[u64]) -> Result<BufferView, DeviceError> {
        let view = View::contiguous(dtype, shape).map_err(|_| DeviceError::OutOfBounds {
            buffer: self.id(),
            start: 0,
            end: u64::MAX,
            bytes: self.bytes(),
        })?;
        self.view(view)
    }

    /// A lease for work of `lane` that `access`es this buffer: memory is there, the host keeps off,
    /// until it is dropped.
    ///
    /// # Errors
    /// Where the host has mapped the buffer, or there is no memory.
    pub(crate) fn lease(&self, access: Access, lane: u64) -> Result<Lease, DeviceError> {
        Lease::new(self.clone(), access.writes(), lane)
    }

    /// Makes room for `count` leases at a time, so that none of them allocates.
    pub fn reserve_leases(&self, count: usize) {
        self.0.uses.reserve(count);
    }

    /// A lease for work of whoever has claimed this buffer, or is the only one to know it.
    pub(crate) fn lease_under_claim(&self, writes: bool, lane: u64) -> Result<Lease, DeviceError> {
        Lease::under_claim(self.clone(), writes, lane)
    }

    pub(crate) fn hazards(&self) -> MutexGuard<'_, Hazards> {
        lock(&self.0.hazards)
    }

    /// Where the host reaches the memory, which must have been taken.
    pub(crate) fn host_pointer(&self) -> Option<NonNull<u8>> {
        self.0.memory.get()?.host_pointer()
    }
}

impl Inner {
    /// Waits until no other thread is in the allocator on behalf of this buffer.
    ///
    /// # Errors
    /// Where this thread is: the allocator uses the buffer that it allocates for.
    fn begin_allocating(&self) -> Result<AllocatorTurn<'_>, DeviceError> {
        let mut turn = lock(&self.allocating);
        while let Some(thread) = *turn {
            if thread == current().id() {
                return Err(DeviceError::Unsupported {
                    device: self.allocator.device(),
                    what: "an allocator that uses the buffer which it allocates for".into(),
                });
            }
            turn = ignore_poison(self.allocated.wait(turn));
        }
        *turn = Some(current().id());
        Ok(AllocatorTurn(self))
    }
}

/// The right to call the allocator, given back also if it panics.
struct AllocatorTurn<'a>(&'a Inner);

impl Drop for AllocatorTurn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.allocating) = None;
        self.0.allocated.notify_all();
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{} bytes on {}]", self.id(), self.bytes(), self.device())
    }
}

/// Elements of a buffer. The view is known to lie inside.
#[derive(Clone, Debug)]
pub struct BufferView {
    buffer: Buffer,
    view: View,
}

impl BufferView {
    /// The buffer.
    pub const fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Which of its elements.
    pub const fn view(&self) -> &View {
        &self.view
    }
}
