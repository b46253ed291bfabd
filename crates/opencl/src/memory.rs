//! Memory of an OpenCL device: buffers of the driver, kept by size for reuse.
//!
//! Where host and device can work on the same memory ([`Context::direct`]), a piece is shared
//! virtual memory with a buffer object over it: kernels see the buffer, the host and our own copies
//! see the address. Elsewhere the host goes through a queue that is used for nothing else.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use opencl3::command_queue::{enqueue_read_buffer, enqueue_write_buffer};
use opencl3::event::release_event;
use opencl3::memory::{
    CL_MEM_READ_WRITE, CL_MEM_SVM_FINE_GRAIN_BUFFER, CL_MEM_USE_HOST_PTR, create_buffer, svm_alloc,
    svm_free,
};
use opencl3::types::{CL_TRUE, cl_mem};
use syncline_copy::CopyPlan;
use syncline_device::{ALIGNMENT, Allocator, DeviceError, DeviceSpec, Memory, MemoryUse, Pool};
use syncline_tensor::View;

use crate::api::{Code, Mem, Queue};
use crate::context::{Context, refused};

/// The allocator of one OpenCL device.
pub(crate) struct OpenClAllocator {
    inner: Arc<Inner>,
}

struct Inner {
    pool: Pool<Piece>,
    /// For the host's reads and writes of memory that it cannot reach.
    transfers: Queue,
    bytes_max: u64,
    /// Goes last, after buffers and the queue: PoCL 3.1 does not survive the other order.
    context: Arc<Context>,
}

impl OpenClAllocator {
    /// An allocator for device number `at` of `context`, of at most `cap_bytes` in use.
    pub(crate) fn new(
        context: &Arc<Context>,
        at: usize,
        cap_bytes: u64,
    ) -> Result<Self, DeviceError> {
        let (spec, device) = &context.devices[at];
        let inner = Inner {
            context: context.clone(),
            pool: Pool::new(*spec, cap_bytes),
            transfers: context.queue(at)?,
            bytes_max: device.allocation_bytes_max,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// As [`Allocator::allocate`], for this backend's own use.
    pub(crate) fn take(&self, bytes: u64) -> Result<OpenClMemory, DeviceError> {
        let inner = &self.inner;
        let piece =
            inner.pool.take(bytes, |bytes| Piece::new(&inner.context, bytes, inner.bytes_max))?;
        Ok(OpenClMemory { piece: Some(piece), inner: inner.clone() })
    }
}

// SAFETY: the pool returns pieces of at least the size, in memory of the context.
unsafe impl Allocator for OpenClAllocator {
    fn device(&self) -> DeviceSpec {
        self.inner.pool.device()
    }

    fn allocate(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(self.take(bytes)?))
    }

    fn memory_use(&self) -> MemoryUse {
        self.inner.pool.memory_use()
    }
}

impl fmt::Debug for OpenClAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenClAllocator({:?})", self.inner.pool)
    }
}

/// A piece that goes back to its pool when dropped.
pub(crate) struct OpenClMemory {
    piece: Option<Piece>,
    inner: Arc<Inner>,
}

impl OpenClMemory {
    /// The driver's buffer.
    pub(crate) fn mem(&self) -> cl_mem {
        self.piece().mem.0
    }

    fn piece(&self) -> &Piece {
        self.piece.as_ref().expect("taken only by drop")
    }

    fn failed(&self, what: &str, code: i32) -> DeviceError {
        refused(self.inner.pool.device(), what, Code(code))
    }
}

impl Drop for OpenClMemory {
    fn drop(&mut self) {
        let piece = self.piece.take().expect("dropped once");
        self.inner.pool.give(piece.bytes, piece);
    }
}

impl fmt::Debug for OpenClMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenClMemory({} bytes on {})", self.bytes(), self.inner.pool.device())
    }
}

// SAFETY: a piece has one place and one size, and has one owner until it goes back.
unsafe impl Memory for OpenClMemory {
    fn bytes(&self) -> u64 {
        self.piece().bytes
    }

    fn host_pointer(&self) -> Option<NonNull<u8>> {
        self.piece().shared.as_ref().map(|shared| shared.start)
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), DeviceError> {
        if target.is_empty() {
            return Ok(());
        }
        if let Some(start) = self.host_pointer() {
            // SAFETY: the caller vouches for the range and that it is not written.
            unsafe { copy(start.as_ptr().add(offset as usize), target.as_mut_ptr(), target.len()) };
            return Ok(());
        }
        // SAFETY: the buffer and the queue are of one context and live; the caller vouches for the
        // range; the call returns when the bytes are there.
        let done = unsafe {
            let (queue, at) = (self.inner.transfers.0, target.as_mut_ptr().cast());
            let read = enqueue_read_buffer;
            read(queue, self.mem(), CL_TRUE, offset as usize, target.len(), at, 0, ptr::null())
        };
        let event = done.map_err(|code| self.failed("a read", code))?;
        // SAFETY: the event was returned to us with a reference of ours.
        let _ = unsafe { release_event(event) };
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<(), DeviceError> {
        if source.is_empty() {
            return Ok(());
        }
        if let Some(start) = self.host_pointer() {
            // SAFETY: the caller vouches for the range and that it is not touched.
            unsafe { copy(source.as_ptr(), start.as_ptr().add(offset as usize), source.len()) };
            return Ok(());
        }
        // SAFETY: as in `read`, the other way round.
        let done = unsafe {
            let (queue, at) = (self.inner.transfers.0, source.as_ptr().cast());
            let write = enqueue_write_buffer;
            write(queue, self.mem(), CL_TRUE, offset as usize, source.len(), at, 0, ptr::null())
        };
        let event = done.map_err(|code| self.failed("a write", code))?;
        // SAFETY: as in `read`.
        let _ = unsafe { release_event(event) };
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Copies bytes, past the cache where there are many.
///
/// # Safety
/// Both ranges are valid and do not overlap; the source is not written, the target not touched.
unsafe fn copy(source: *const u8, target: *mut u8, bytes: usize) {
    let plan = View::bytes_at(0, bytes as u64).ok().and_then(|all| CopyPlan::new(&all, &all).ok());
    // SAFETY: the caller's promise.
    unsafe {
        match plan {
            Some(plan) => plan.run(source, target),
            None => ptr::copy_nonoverlapping(source, target, bytes),
        }
    }
}

/// A buffer of the driver, over shared memory where the context is direct.
struct Piece {
    /// Goes before `shared`, on which it stands. No command uses either when a piece is dropped,
    /// since the leases of whatever did are gone.
    mem: Mem,
    shared: Option<Shared>,
    bytes: u64,
}

impl Piece {
    fn new(context: &Arc<Context>, bytes: u64, bytes_max: u64) -> Option<Self> {
        // Not every driver refuses more than it says it can give.
        let size = usize::try_from(bytes).ok().filter(|_| bytes <= bytes_max)?;
        let shared = match context.direct {
            true => Some(Shared::new(context, size)?),
            false => None,
        };
        let (flags, start) = match &shared {
            Some(shared) => (CL_MEM_USE_HOST_PTR, shared.start.as_ptr().cast::<c_void>()),
            None => (0, ptr::null_mut()),
        };
        // SAFETY: the address, where there is one, is that of `size` bytes, which outlive the
        // buffer.
        let mem = unsafe { create_buffer(context.cl(), CL_MEM_READ_WRITE | flags, size, start) };
        Some(Self { mem: Mem(mem.ok()?), shared, bytes })
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes)", self.bytes)
    }
}

/// Memory that host and device work on at the same time.
struct Shared {
    start: NonNull<u8>,
    context: Arc<Context>,
}

// SAFETY: it owns its memory; access goes through raw pointers under the callers' promises.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(context: &Arc<Context>, size: usize) -> Option<Self> {
        let flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;
        // SAFETY: the context is valid, and its devices can do this, or it would not be direct.
        // What the bytes are is unspecified, but they come from beyond what the compiler sees: they
        // are bytes.
        let start = unsafe { svm_alloc(context.cl(), flags, size, ALIGNMENT as u32) }.ok()?;
        Some(Self { start: NonNull::new(start.cast())?, context: context.clone() })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `svm_alloc` of the same context returned this address, and nothing uses it any
        // longer.
        let _ = unsafe { svm_free(self.context.cl(), self.start.as_ptr().cast()) };
    }
}
