//! Memory of a CUDA device, kept by size for reuse.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;
use syncline_device::{Allocator, DeviceError, DeviceSpec, Memory, MemoryUse, Pool};

use crate::api::{Primary, refused};
use crate::context::Context;

/// The allocator of one CUDA device.
#[derive(Debug)]
pub(crate) struct CudaAllocator {
    pool: Arc<Pool<Piece>>,
    primary: Arc<Primary>,
}

impl fmt::Debug for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Primary")
    }
}

impl CudaAllocator {
    /// An allocator of at most `cap_bytes` in use.
    pub(crate) fn new(context: &Context, cap_bytes: u64) -> Self {
        let pool = Arc::new(Pool::new(context.spec, cap_bytes));
        Self { pool, primary: context.primary.clone() }
    }

    /// As [`Allocator::allocate`], for this backend's own use.
    pub(crate) fn take(&self, bytes: u64) -> Result<CudaMemory, DeviceError> {
        let piece = self.pool.take(bytes, |bytes| Piece::new(&self.primary, bytes))?;
        Ok(CudaMemory { piece: Some(piece), pool: self.pool.clone() })
    }
}

// SAFETY: the pool returns pieces of at least the size, in memory of the device.
unsafe impl Allocator for CudaAllocator {
    fn device(&self) -> DeviceSpec {
        self.pool.device()
    }

    fn allocate(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(self.take(bytes)?))
    }

    fn memory_use(&self) -> MemoryUse {
        self.pool.memory_use()
    }
}

/// A piece that goes back to its pool when dropped.
#[derive(Debug)]
pub(crate) struct CudaMemory {
    piece: Option<Piece>,
    pool: Arc<Pool<Piece>>,
}

impl CudaMemory {
    /// Its first byte, for the device.
    pub(crate) fn start(&self) -> CUdeviceptr {
        self.piece().start
    }

    fn piece(&self) -> &Piece {
        self.piece.as_ref().expect("taken only by drop")
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        let piece = self.piece.take().expect("dropped once");
        self.pool.give(piece.bytes, piece);
    }
}

// SAFETY: a piece has one place and one size, and has one owner until it goes back.
unsafe impl Memory for CudaMemory {
    fn bytes(&self) -> u64 {
        self.piece().bytes
    }

    fn host_pointer(&self) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), DeviceError> {
        if target.is_empty() {
            return Ok(());
        }
        let from = self.start() + offset;
        // SAFETY: the caller vouches for the range and that it is not written; the call returns
        // when the bytes are there. It goes through the default stream, which our streams neither
        // wait for nor hold up.
        let done = self
            .piece()
            .primary
            .enter()
            .and_then(|()| unsafe { result::memcpy_dtoh_sync(target, from) });
        done.map_err(|error| refused(self.pool.device(), "a read", error))
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<(), DeviceError> {
        if source.is_empty() {
            return Ok(());
        }
        let to = self.start() + offset;
        // SAFETY: as in `read`, the other way round. From memory that is not pinned the driver may
        // return while the last bytes are on their way; waiting for the context's default stream
        // makes sure of them.
        let done = self.piece().primary.enter().and_then(|()| unsafe {
            result::memcpy_htod_sync(to, source)?;
            result::stream::synchronize(result::stream::null())
        });
        done.map_err(|error| refused(self.pool.device(), "a write", error))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Memory of the device.
struct Piece {
    start: CUdeviceptr,
    bytes: u64,
    primary: Arc<Primary>,
}

impl Piece {
    fn new(primary: &Arc<Primary>, bytes: u64) -> Option<Self> {
        primary.enter().ok()?;
        // SAFETY: the context has been entered. Allocations are aligned to 256 bytes.
        let start = unsafe { result::malloc_sync(usize::try_from(bytes).ok()?) }.ok()?;
        Some(Self { start, bytes, primary: primary.clone() })
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.primary.enter().is_ok() {
            // SAFETY: allocated by `new`; the leases of whatever used it are gone.
            let _ = unsafe { result::free_sync(self.start) };
        }
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes)", self.bytes)
    }
}
